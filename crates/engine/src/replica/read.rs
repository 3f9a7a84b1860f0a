//! Local reads: from memory, of what is durable, with what was seen by them.

use super::durable::Durable;
use super::{Replica, Shared};
use baton_core::Bytes;
use baton_core::crdt::{Context, Kind, Object, Row, RowKey, counter, register};
use std::ops::Bound;
use std::sync::Arc;

/// What was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading<T> {
    /// It.
    pub value: T,
    /// All that this replica had seen: for a removal of just that, and for a later read that must not have seen less.
    pub context: Arc<Context>,
}

/// Some of many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part<T> {
    /// In order.
    pub items: Vec<T>,
    /// Whether there are more after the last of them.
    pub more: bool,
}

impl Replica {
    /// What a counter counts: 0 if it was never written.
    pub fn counter(&self, object: &Object, kind: Kind) -> Reading<i128> {
        self.shared.read(|durable| durable.row(&object.row(kind)).map_or(0, counter::value))
    }

    /// Looks at a row, without a copy.
    pub fn with_row<T>(&self, key: &RowKey, look: impl FnOnce(Option<&Row>) -> T) -> T {
        look(self.shared.durable().row(key))
    }

    /// Whether an element is in a set.
    pub fn contains(&self, object: &Object, element: &[u8]) -> Reading<bool> {
        self.shared.read(|durable| durable.row(&object.element(Kind::Set, element)).is_some())
    }

    /// The elements of a set, in the order of their bytes, after one of them.
    pub fn elements(&self, object: &Object, after: Option<&[u8]>, limit: usize) -> Reading<Part<Bytes>> {
        let set = object.row(Kind::Set);
        let after = after.map(|element| object.element(Kind::Set, element));
        self.shared.read(|durable| {
            let element = |key: &RowKey, _: &Row| key.parts().element.into();
            part(durable, set.bytes(), &set, after.as_ref(), limit, element)
        })
    }

    /// What the last write set a register to.
    pub fn register(&self, object: &Object) -> Reading<Option<Bytes>> {
        let key = object.row(Kind::Register);
        self.shared.read(|durable| register::latest(durable.row(&key)?).map(|(_, value)| value.clone()))
    }

    /// All values that a multi-value register was concurrently set to, the last one first.
    pub fn values(&self, object: &Object) -> Reading<Vec<Bytes>> {
        let key = object.row(Kind::MultiValue);
        self.shared.read(|durable| {
            let row = durable.row(&key);
            row.map_or_else(Vec::new, |row| {
                register::values(row).into_iter().map(|(_, value)| value.clone()).collect()
            })
        })
    }

    /// The rows of a map, in the order of fields, after one of them. What a row says is for `baton_core::crdt` to tell; a set in a map
    /// has a row for each element.
    pub fn map(
        &self,
        namespace: &str,
        name: &str,
        after: Option<&RowKey>,
        limit: usize,
    ) -> Reading<Part<(RowKey, Row)>> {
        let prefix = Object::map_prefix(namespace, name);
        // The first name that a row of the map could have.
        let first = Object::field(namespace, name, "").row(Kind::Counter);
        self.shared.read(|durable| {
            part(durable, &prefix, &first, after, limit, |key, row| (key.clone(), row.clone()))
        })
    }
}

fn part<T>(
    durable: &Durable,
    prefix: &[u8],
    first: &RowKey,
    after: Option<&RowKey>,
    limit: usize,
    item: impl Fn(&RowKey, &Row) -> T,
) -> Part<T> {
    let from = after.map_or(Bound::Included(first), Bound::Excluded);
    let mut rows = durable.rows_from(from).take_while(|(key, _)| key.bytes().starts_with(prefix));
    let items = rows.by_ref().take(limit).map(|(key, row)| item(key, row)).collect();
    Part { items, more: rows.next().is_some() }
}

impl Shared {
    fn read<T>(&self, look: impl FnOnce(&Durable) -> T) -> Reading<T> {
        let durable = self.durable();
        Reading { value: look(&durable), context: durable.context.clone() }
    }
}
