//! Local reads: from memory, of what is durable, with what was seen by them.

use super::durable::Durable;
use super::{Replica, Shared};
use baton_core::Bytes;
use baton_core::crdt::sync::Rows as _;
use baton_core::crdt::{Context, Dot, Kind, Object, Row, RowKey, counter, register};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// What was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading<T> {
    /// It.
    pub value: T,
    /// All that this replica had seen, as far as it tells of it, and what was read: for a removal of just that, and for a later read that must
    /// not have seen less.
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
        self.shared.read(|look| look.row(&object.row(kind)).map_or(0, counter::value))
    }

    /// Looks at a row, without a copy.
    pub fn with_row<T>(&self, key: &RowKey, look: impl FnOnce(Option<&Row>) -> T) -> T {
        look(self.shared.durable().row(key))
    }

    /// Whether an element is in a set.
    pub fn contains(&self, object: &Object, element: &[u8]) -> Reading<bool> {
        self.shared.read(|look| look.row(&object.element(Kind::Set, element)).is_some())
    }

    /// Which of these rows are there, in order.
    pub fn are_there(&self, keys: &BTreeSet<RowKey>) -> Reading<Vec<bool>> {
        self.shared.read(|look| keys.iter().map(|key| look.row(key).is_some()).collect())
    }

    /// The elements of a set, in the order of their bytes, after one of them.
    pub fn elements(&self, object: &Object, after: Option<&[u8]>, limit: usize) -> Reading<Part<Bytes>> {
        let set = object.row(Kind::Set);
        let after = after.map(|element| object.element(Kind::Set, element));
        self.shared.read(|look| {
            let element = |key: &RowKey, _: &Row| key.parts().element.into();
            look.part(set.bytes(), &set, after.as_ref(), limit, element)
        })
    }

    /// What the last write set a register to.
    pub fn register(&self, object: &Object) -> Reading<Option<Bytes>> {
        let key = object.row(Kind::Register);
        self.shared.read(|look| register::latest(look.row(&key)?).map(|(_, value)| value.clone()))
    }

    /// All values that a multi-value register was concurrently set to, the last one first.
    pub fn values(&self, object: &Object) -> Reading<Vec<Bytes>> {
        let key = object.row(Kind::MultiValue);
        self.shared.read(|look| {
            let row = look.row(&key);
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
        self.shared
            .read(|look| look.part(&prefix, &first, after, limit, |key, row| (key.clone(), row.clone())))
    }
}

/// What is durable, for one read.
struct Look<'a> {
    durable: &'a Durable,
    /// Dots of what was read that nothing but their rows tells of.
    implied: Vec<Dot>,
}

impl<'a> Look<'a> {
    fn row(&mut self, key: &RowKey) -> Option<&'a Row> {
        let row = self.durable.row(key)?;
        self.has_read(row);
        Some(row)
    }

    fn has_read(&mut self, row: &Row) {
        if !self.durable.implied().is_empty() {
            self.implied.extend(row.dots().filter(|dot| self.durable.implied().contains(*dot)));
        }
    }

    fn part<T>(
        &mut self,
        prefix: &[u8],
        first: &RowKey,
        after: Option<&RowKey>,
        limit: usize,
        item: impl Fn(&RowKey, &Row) -> T,
    ) -> Part<T> {
        let from = after.map_or(Bound::Included(first), Bound::Excluded);
        let mut rows = self.durable.rows_from(from).take_while(|(key, _)| key.bytes().starts_with(prefix));
        let read = |(key, row)| {
            self.has_read(row);
            item(key, row)
        };
        let items = rows.by_ref().take(limit).map(read).collect();
        Part { items, more: rows.next().is_some() }
    }

    fn context(self) -> Arc<Context> {
        let mut context = self.durable.context().clone();
        if !self.implied.is_empty() {
            let seen = Arc::make_mut(&mut context);
            self.implied.into_iter().for_each(|dot| seen.insert(dot));
        }
        context
    }
}

impl Shared {
    fn read<T>(&self, read: impl FnOnce(&mut Look<'_>) -> T) -> Reading<T> {
        let durable = self.durable();
        let mut look = Look { durable: &durable, implied: Vec::new() };
        let value = read(&mut look);
        Reading { value, context: look.context() }
    }
}
