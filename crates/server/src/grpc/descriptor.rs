//! Which limit a descriptor means, and which key of it.
//!
//! The domain and the entries' keys name the limit, the entries' values are the key: an operator chooses the former, and a client of the proxy
//! perhaps the latter. So a name that can't be one is a mistake to be told of, but every value has a key. A client whose value were refused
//! would pass wherever a proxy lets pass what isn't decided.
//!
//! One entry is about neither: [`IDENTITY`] says whether the client is known.

use super::wire::{Entry, RateLimitDescriptor, RateLimitRequest};
use crate::http::answer::Problem;
use baton_api::limits;
use baton_core::Name;
use baton_core::limit::{Identity, call_id};

/// The entry that says whether the client is known.
const IDENTITY: &str = "baton_identity";
const AUTHENTICATED: &[u8] = b"authenticated";
/// Between the parts of a name, and of a key.
const SEPARATOR: char = '/';
/// The key of a value that is empty: no other value's, since theirs have two digits behind a `%`.
const EMPTY: &str = "%";
/// What stands before the digest of a value that is too long for a key. No escape looks like it.
const DIGEST: &str = "%#";
const DIGEST_BYTES: usize = DIGEST.len() + 32;

/// The limit of a descriptor: `domain/key1/key2`.
pub(super) fn limit(
    namespace: &str,
    domain: &str,
    index: usize,
    descriptor: &RateLimitDescriptor,
) -> Result<Name, Problem> {
    let field = format!("descriptors[{index}].entries");
    let mut name = String::new();
    escape(&mut name, domain.as_bytes(), true);
    if domain.is_empty() {
        return Err(Problem::invalid("domain", "a domain is needed: it begins the limit's name"));
    }
    let mut entries = naming(&descriptor.entries).peekable();
    if entries.peek().is_none() || descriptor.entries.iter().any(|entry| entry.key.is_empty()) {
        return Err(Problem::invalid(field, "there must be entries, each with a key: they name the limit"));
    }
    for entry in entries {
        name.push(SEPARATOR);
        escape(&mut name, entry.key.as_bytes(), true);
    }
    limits::check_name(&field, &name)?;
    Ok(Name::new(namespace, &name))
}

/// Whose meter it is: the values, joined so that no two lists of as many values are the same key.
pub(super) fn key(entries: &[Entry]) -> String {
    let mut key = String::new();
    let mut entries = naming(entries).peekable();
    while let Some(entry) = entries.next() {
        let is_last = entries.peek().is_none();
        // How many there are is known from the limit, so the last one needs no end.
        escape(&mut key, &entry.value, !is_last);
        if !is_last {
            key.push(SEPARATOR);
        }
    }
    if key.is_empty() {
        return EMPTY.into();
    }
    if key.len() > *limits::KEY_BYTES.end() {
        let digest = call_id(&[b"descriptor", key.as_bytes()]);
        key.truncate(key.floor_char_boundary(limits::KEY_BYTES.end() - DIGEST_BYTES));
        key.push_str(DIGEST);
        key.extend(digest.iter().map(|byte| format!("{byte:02x}")));
    }
    key
}

/// The entries that name a limit, and a key of it.
fn naming(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.key != IDENTITY)
}

/// Whether the client is known. Whatever else is said than that it is, it isn't: no value is refused.
pub(super) fn identity(entries: &[Entry]) -> Identity {
    match entries.iter().find(|entry| entry.key == IDENTITY) {
        Some(entry) if entry.value != AUTHENTICATED => Identity::Anonymous,
        Some(_) | None => Identity::Authenticated,
    }
}

/// How much a descriptor counts: what it says itself, or the request for all of them, or 1. 0 looks.
pub(super) fn cost(
    request: &RateLimitRequest,
    index: usize,
    descriptor: &RateLimitDescriptor,
) -> Result<u64, Problem> {
    if descriptor.is_negative_hits {
        let message = "what was counted is given back with its receipt only: POST /v1/limits/{name}/refund";
        return Err(Problem::invalid(format!("descriptors[{index}].is_negative_hits"), message));
    }
    let (field, cost) = match descriptor.hits_addend {
        Some(cost) => (format!("descriptors[{index}].hits_addend"), cost),
        None => ("hits_addend".into(), u64::from(request.hits_addend.max(1))),
    };
    limits::check_number(&field, cost, limits::COST)?;
    Ok(cost)
}

/// What can't stand in a name, and what would be mistaken for something else, as in a URL.
fn escape(text: &mut String, bytes: &[u8], with_separator: bool) {
    let hex = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            text.push_str(&format!("%{byte:02X}"));
        }
    };
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char == '%' || char.is_control() || (with_separator && char == SEPARATOR) {
                hex(text, char.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(char);
            }
        }
        hex(text, chunk.invalid());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn entries(pairs: &[(&str, &[u8])]) -> Vec<Entry> {
        pairs.iter().map(|(key, value)| Entry { key: (*key).into(), value: value.to_vec() }).collect()
    }

    fn described(pairs: &[(&str, &[u8])]) -> RateLimitDescriptor {
        RateLimitDescriptor { entries: entries(pairs), ..RateLimitDescriptor::default() }
    }

    fn keyed(values: &[&[u8]]) -> String {
        key(&values.iter().map(|value| Entry { key: "k".into(), value: value.to_vec() }).collect::<Vec<_>>())
    }

    #[test]
    fn the_domain_and_the_keys_name_the_limit_whatever_the_values() {
        let named = |domain: &str, pairs: &[(&str, &[u8])]| {
            limit("default", domain, 0, &described(pairs)).unwrap().key().to_owned()
        };
        assert_eq!(named("edge", &[("remote_address", b"10.0.0.1")]), "edge/remote_address");
        assert_eq!(named("edge", &[("tenant", b"a"), ("path", b"/x")]), "edge/tenant/path");
        assert_ne!(named("a/b", &[("c", b"")]), named("a", &[("b", b""), ("c", b"")]));
    }

    #[test]
    fn whether_a_client_is_known_is_in_neither_name_nor_key_and_no_value_of_it_is_refused() {
        for (value, wanted) in [
            (&b"authenticated"[..], Identity::Authenticated),
            (b"anonymous", Identity::Anonymous),
            (b"", Identity::Anonymous),
            (b"\xff", Identity::Anonymous),
        ] {
            let said = described(&[("baton_identity", value), ("ip", b"10.0.0.1")]);
            assert_eq!(identity(&said.entries), wanted, "{value:?}");
            assert_eq!(limit("default", "edge", 0, &said).unwrap().key(), "edge/ip");
            assert_eq!(key(&said.entries), "10.0.0.1");
        }
        assert_eq!(identity(&entries(&[("identity", b"anonymous")])), Identity::Authenticated);
        let alone = limit("default", "edge", 0, &described(&[("baton_identity", b"anonymous")]));
        assert!(alone.is_err(), "it names nothing");
    }

    #[test]
    fn what_cannot_name_a_limit_is_said_to_be_the_caller_s_fault() {
        let long = "k".repeat(600);
        for (domain, pairs, field) in [
            ("", &[("k", &b"v"[..])][..], "domain"),
            ("d", &[], "descriptors[2].entries"),
            ("d", &[("", b"v")], "descriptors[2].entries"),
            ("d", &[(long.as_str(), b"v")], "descriptors[2].entries"),
        ] {
            let problem = limit("default", domain, 2, &described(pairs)).unwrap_err();
            assert_eq!(problem.0.field.as_deref(), Some(field), "{domain} {pairs:?}");
        }
    }

    #[test]
    fn a_single_value_is_the_key_as_it_is_and_several_do_not_run_together() {
        assert_eq!(keyed(&[b"10.0.0.1"]), "10.0.0.1");
        assert_eq!(keyed(&[b"/v1/orders"]), "/v1/orders");
        assert_eq!(keyed(&[b"acme", b"/v1/orders"]), "acme//v1/orders");
        assert_ne!(keyed(&[b"a/b", b"c"]), keyed(&[b"a", b"b/c"]));
        assert_ne!(keyed(&[b"a%2Fb", b"c"]), keyed(&[b"a/b", b"c"]));
        assert_eq!(keyed(&["é".as_bytes()]), "é");
    }

    /// The values again, of a key that isn't too long.
    fn values(key: &str, count: usize) -> Vec<Vec<u8>> {
        let value = |text: &str| {
            let mut parts = text.split('%');
            let mut value = parts.next().unwrap_or_default().as_bytes().to_vec();
            for part in parts.filter(|part| !part.is_empty()) {
                value.push(u8::from_str_radix(&part[..2], 16).unwrap());
                value.extend_from_slice(&part.as_bytes()[2..]);
            }
            value
        };
        key.splitn(count, SEPARATOR).map(value).collect()
    }

    proptest! {
        #[test]
        fn a_key_says_which_values_it_is_made_of(
            list in prop::collection::vec(prop::collection::vec(select(&b"a/%25F\xff\xc3\xa9\0"[..]), 0..6), 1..4)
        ) {
            let key = keyed(&list.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(values(&key, list.len()), list, "{}", key);
        }
    }

    #[test]
    fn every_value_has_a_key_of_its_own_that_a_key_can_be() {
        let long = vec![b'x'; 60_000];
        let longer = [long.clone(), b"y".to_vec()].concat();
        let many = "é".repeat(5_000).into_bytes();
        let values: [&[u8]; 9] = [b"", b"%", b"%00", b"\0", b"\xff\xfe", b"%FF%FE", &long, &longer, &many];
        let keys: Vec<_> = values.iter().map(|value| keyed(&[value])).collect();
        for (index, key) in keys.iter().enumerate() {
            limits::check_text("key", key, limits::KEY_BYTES).unwrap();
            assert!(!keys[..index].contains(key), "{key}");
        }
    }

    #[test]
    fn what_a_descriptor_counts_goes_before_what_the_request_does() {
        let request = RateLimitRequest { hits_addend: 7, ..RateLimitRequest::default() };
        let with = |hits_addend| RateLimitDescriptor { hits_addend, ..RateLimitDescriptor::default() };
        for (request, descriptor, wanted) in [
            (&RateLimitRequest::default(), with(None), 1),
            (&request, with(None), 7),
            (&request, with(Some(3)), 3),
            (&request, with(Some(0)), 0),
        ] {
            assert_eq!(cost(request, 0, &descriptor).unwrap(), wanted);
        }
        let back = RateLimitDescriptor { is_negative_hits: true, ..with(Some(1)) };
        let most = RateLimitRequest { hits_addend: u32::MAX, ..RateLimitRequest::default() };
        for (request, descriptor, field) in [
            (&request, back, "descriptors[1].is_negative_hits"),
            (&request, with(Some(1_000_000_001)), "descriptors[1].hits_addend"),
            (&most, with(None), "hits_addend"),
        ] {
            let problem = cost(request, 1, &descriptor).unwrap_err();
            assert_eq!(problem.0.field.as_deref(), Some(field));
        }
    }
}
