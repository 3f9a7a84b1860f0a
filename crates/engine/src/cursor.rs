//! Where a list goes on: a group in hex, and the key after which. Lists go through the groups in order, and through the
//! keys of each.

use baton_core::Group;

pub(crate) fn text(group: Group, after: Option<&str>) -> String {
    format!("{:02x}{}", group.0, after.unwrap_or_default())
}

/// What a list gave out, if it looks like that, for a list of keys that begin with `prefix`.
pub(crate) fn parse<'a>(text: &'a str, prefix: &str) -> Option<(Group, Option<&'a str>)> {
    let group = u8::from_str_radix(text.get(..2)?, 16).ok()?;
    match &text[2..] {
        "" => Some((Group(group), None)),
        key => key.starts_with(prefix).then_some((Group(group), Some(key))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_what_is_none_is_refused() {
        for (group, after) in [(0, None), (255, Some("ключ")), (7, Some("a"))] {
            assert_eq!(parse(&text(Group(group), after), ""), Some((Group(group), after)));
        }
        for bad in ["", "0", "zz", "é", "00b"] {
            assert_eq!(parse(bad, "a"), None, "{bad}");
        }
    }
}
