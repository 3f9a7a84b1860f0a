//! What there is: the names of objects and of maps, in order, without going through the elements of sets.

use super::Replica;
use super::durable::Durable;
use baton_core::crdt::{Kind, Object, Row, RowKey};

/// Rows looked at for one page: a page ends there, also if it isn't full, so that nobody waits for a long look.
const LOOKS_MAX: usize = 10_000;

/// Some of the names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// In order. A map's name comes with the kind of its first row.
    pub items: Vec<(String, Kind)>,
    /// Where to go on: for the next call. Nothing if these were the last.
    pub next: Option<Vec<u8>>,
}

impl Replica {
    /// Objects of these kinds whose names begin with `prefix`, from a place that an earlier page gave.
    pub fn names(
        &self,
        namespace: &str,
        kinds: &[Kind],
        prefix: &str,
        from: Option<&[u8]>,
        limit: usize,
    ) -> Names {
        let first = Object::plain(namespace, prefix).row(Kind::Counter);
        let first = first.bytes();
        // Without the zero that ends the name, and the kind.
        let wanted = &first[..first.len() - 2];
        let visit = |key: &RowKey| (kinds.contains(&key.kind()), own(key));
        list(&self.shared.durable(), wanted, from, limit, visit)
    }

    /// Maps whose names begin with `prefix`, likewise.
    pub fn maps(&self, namespace: &str, prefix: &str, from: Option<&[u8]>, limit: usize) -> Names {
        let wanted = Object::map_prefix(namespace, prefix);
        let wanted = &wanted[..wanted.len() - 1];
        let visit = |key: &RowKey| {
            let parts = key.parts();
            (true, Object::map_prefix(parts.namespace, parts.name))
        };
        list(&self.shared.durable(), wanted, from, limit, visit)
    }

    /// The first row whose name isn't before these bytes.
    pub fn first_row_from(&self, from: &[u8]) -> Option<(RowKey, Row)> {
        self.shared.durable().first_from(from).map(|(key, row)| (key.clone(), row.clone()))
    }
}

/// What all rows of the same object and kind begin with.
fn own(key: &RowKey) -> Vec<u8> {
    let bytes = key.bytes();
    bytes[..bytes.len() - key.parts().element.len()].to_vec()
}

/// `visit` says whether a row is wanted, and what all rows that belong to it begin with.
fn list(
    durable: &Durable,
    prefix: &[u8],
    from: Option<&[u8]>,
    limit: usize,
    visit: impl Fn(&RowKey) -> (bool, Vec<u8>),
) -> Names {
    let mut names = Names::default();
    // A place from outside counts only if it is further on.
    let mut at = from.filter(|from| *from > prefix).unwrap_or(prefix).to_vec();
    for _ in 0..LOOKS_MAX {
        let Some((key, _)) = durable.first_from(&at) else { return names };
        if !key.bytes().starts_with(prefix) {
            return names;
        }
        if names.items.len() == limit {
            break;
        }
        let (is_wanted, family) = visit(key);
        if is_wanted {
            let parts = key.parts();
            names.items.push((parts.name.into(), parts.kind));
        }
        at = after_all(family);
    }
    names.next = Some(at);
    names
}

/// The first bytes after everything that begins with these.
pub(crate) fn after_all(mut bytes: Vec<u8>) -> Vec<u8> {
    // A family ends with a kind, a letter, or with a zero.
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    bytes
}
