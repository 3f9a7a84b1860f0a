//! Maps.

use super::object::{Object, object_options, seen_option};
use crate::{Baton, Error};
use baton_api::crdt::{Amount, CrdtKind, MapField, MapPage, MapWrite, MapWritten};
use hyper::Method;
use serde::Serialize;
use std::sync::Arc;

/// Rows on a page, when all are read.
const PAGE: u64 = 1000;

/// A map of counters, sets and registers. Made by [`Baton::map`]. What is to change is gathered, and written in one step.
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// baton.map("page:7").add("views", 1).insert("tags", ["new"]).put("theme", &"dark").write().await?;
/// let page = baton.map("page:7").read().await?;
/// println!("{:?} views", page.counters.get("views"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Map {
    object: Object,
    write: MapWrite,
    /// A value that isn't JSON.
    wrong: Option<String>,
}

impl Map {
    pub(crate) fn new(baton: Baton, name: Arc<str>) -> Self {
        Self { object: Object::new(baton, "maps", name), write: MapWrite::default(), wrong: None }
    }

    object_options!();
    seen_option!();

    /// Adds to a field that is a counter.
    pub fn add(mut self, field: impl Into<String>, amount: i64) -> Self {
        self.write.counters.insert(field.into(), Amount(amount));
        self
    }

    /// Adds to a field that is a grow-only counter.
    pub fn grow(mut self, field: impl Into<String>, amount: i64) -> Self {
        self.write.grow_counters.insert(field.into(), Amount(amount));
        self
    }

    /// Puts elements into a field that is a set.
    pub fn insert<E: Into<String>>(
        mut self,
        field: impl Into<String>,
        elements: impl IntoIterator<Item = E>,
    ) -> Self {
        let set = self.write.sets.entry(field.into()).or_default();
        set.add.extend(elements.into_iter().map(Into::into));
        self
    }

    /// Takes elements out of a field that is a set, as far as they were [seen](Self::seen).
    pub fn take_out<E: Into<String>>(
        mut self,
        field: impl Into<String>,
        elements: impl IntoIterator<Item = E>,
    ) -> Self {
        let set = self.write.sets.entry(field.into()).or_default();
        set.remove.extend(elements.into_iter().map(Into::into));
        self
    }

    /// Sets a field that is a register.
    pub fn put(mut self, field: impl Into<String>, value: &impl Serialize) -> Self {
        match serde_json::value::to_raw_value(value) {
            Ok(value) => drop(self.write.registers.insert(field.into(), value)),
            Err(error) => self.wrong = Some(error.to_string()),
        }
        self
    }

    /// Sets a field that keeps what was written concurrently.
    pub fn put_beside(mut self, field: impl Into<String>, value: &impl Serialize) -> Self {
        match serde_json::value::to_raw_value(value) {
            Ok(value) => drop(self.write.multi_values.insert(field.into(), value)),
            Err(error) => self.wrong = Some(error.to_string()),
        }
        self
    }

    /// Removes a field, as far as it was [seen](Self::seen). A set is emptied by taking out its elements.
    pub fn remove(mut self, field: impl Into<String>, kind: CrdtKind) -> Self {
        self.write.remove.push(MapField { field: field.into(), kind });
        self
    }

    /// Does all of it, or nothing. The answer has the `context` of the write.
    pub async fn write(&self) -> Result<MapWritten, Error> {
        if let Some(error) = &self.wrong {
            let message = format!("a value isn't JSON: {error}");
            return Err(Error::refused(baton_api::ErrorBody::invalid("registers", message)));
        }
        let (writer, request_id) = self.object.signed();
        let write = MapWrite { context: self.object.seen.clone(), writer, request_id, ..self.write.clone() };
        write.check().map_err(Error::refused)?;
        self.object.write(Method::POST, "", &write).await
    }

    /// Some of its fields, from the first or from a `next_cursor` on, and what was seen.
    pub async fn page(&self, limit: u64, cursor: Option<&str>) -> Result<MapPage, Error> {
        let limit = limit.to_string();
        self.object.read(&[("limit", Some(&limit)), ("cursor", cursor)]).await
    }

    /// All its fields, page after page; the `context` is the first page's, which all of them have seen.
    pub async fn read(&self) -> Result<MapPage, Error> {
        let mut all = self.page(PAGE, None).await?;
        while let Some(cursor) = all.next_cursor.take() {
            let page = self.page(PAGE, Some(&cursor)).await?;
            all.counters.extend(page.counters);
            all.grow_counters.extend(page.grow_counters);
            all.registers.extend(page.registers);
            all.multi_values.extend(page.multi_values);
            for (field, elements) in page.sets {
                all.sets.entry(field).or_default().extend(elements);
            }
            all.next_cursor = page.next_cursor;
        }
        Ok(all)
    }
}
