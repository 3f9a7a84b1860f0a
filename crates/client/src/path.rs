//! Paths and queries, percent-encoded.

use crate::held::Held;
use std::fmt::Write;

/// `/v1/locks/{key}/{action}?namespace=…`, or an election's; without an action, the lock or the election itself.
pub(crate) fn of(held: Held, key: &str, action: &str, namespace: Option<&str>) -> String {
    let collection = match held {
        Held::Lock => "locks",
        Held::Election => "elections",
    };
    at(collection, key, action, namespace)
}

/// `/v1/{collection}/{key}/{action}?namespace=…`; without an action, the thing itself.
pub(crate) fn at(collection: &str, key: &str, action: &str, namespace: Option<&str>) -> String {
    let mut path = String::with_capacity(32 + key.len() + action.len());
    path.push_str("/v1/");
    path.push_str(collection);
    path.push('/');
    encode(key, &mut path);
    if !action.is_empty() {
        path.push('/');
        path.push_str(action);
    }
    with_query(path, &[("namespace", namespace)])
}

/// A path with those parameters that have a value.
pub(crate) fn with_query(mut path: String, parameters: &[(&str, Option<&str>)]) -> String {
    let mut mark = '?';
    for (name, value) in parameters {
        if let Some(value) = value {
            path.push(mark);
            path.push_str(name);
            path.push('=');
            encode(value, &mut path);
            mark = '&';
        }
    }
    path
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':') {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string can't fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_path_whatever_they_contain() {
        assert_eq!(of(Held::Lock, "inventory:sku:1", "", None), "/v1/locks/inventory:sku:1");
        assert_eq!(of(Held::Election, "e", "observe", None), "/v1/elections/e/observe");
        assert_eq!(
            of(Held::Lock, "a/b ?%é", "renew", Some("x&y")),
            "/v1/locks/a%2Fb%20%3F%25%C3%A9/renew?namespace=x%26y"
        );
    }
}
