//! Lists, and where one goes on: a group in hex, and the key after which. Lists go through the groups in order, and through
//! the keys of each.

use crate::engine::Node;
use crate::failure::Failure;
use baton_core::name::Kind;
use baton_core::{Group, Name, Record};
use baton_store::Range;

/// Records read from the store at once.
const PAGE: usize = 256;

/// A page of a list.
pub(crate) struct Listed {
    pub records: Vec<(Name, Record)>,
    pub next_cursor: Option<String>,
}

/// Why there is none.
pub(crate) enum ListError {
    /// A cursor that no list gave out.
    BadCursor,
    Failed(Failure),
}

impl Node {
    /// Records of a kind, one for each name of a namespace that begins with `prefix`, in an order that is stable from page to
    /// page.
    pub(crate) async fn list(
        &self,
        kind: Kind,
        namespace: &str,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Listed, ListError> {
        let mut place = match cursor {
            None => Some((Group(0), None)),
            Some(cursor) => {
                let (group, after) = parse(cursor, prefix).ok_or(ListError::BadCursor)?;
                let after = after.map(|key| Name::new(namespace, key).record(kind, &[]));
                if after.as_ref().is_some_and(|after| after.group != group) {
                    return Err(ListError::BadCursor);
                }
                Some((group, after.map(|after| after.name)))
            }
        };
        let names = Name::prefix(kind, namespace, prefix);
        let mut records = Vec::new();
        while let Some((group, after)) = place.take_if(|_| records.len() < limit) {
            let range = Range { group, prefix: names.clone(), after };
            let scan = self.store.scan(range, PAGE.min(limit - records.len()));
            let page = self.asked(scan, self.deadline()).await.map_err(ListError::Failed)?;
            let last = page.records.last().map(|record| record.key.name.clone());
            let named = page.records.into_iter();
            records
                .extend(named.filter_map(|record| Some((Name::of_record(kind, &record.key.name)?, record))));
            let next_group = group.0.checked_add(1).map(|group| (Group(group), None));
            place = if page.more { last.map(|last| (group, Some(last))) } else { next_group };
        }
        let next_cursor = place.map(|(group, after)| {
            let last = after.and_then(|after| Name::of_record(kind, &after));
            text(group, last.as_ref().map(Name::key))
        });
        Ok(Listed { records, next_cursor })
    }
}

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
