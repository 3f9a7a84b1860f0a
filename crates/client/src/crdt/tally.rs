//! A writer's own total in a counter: exact at any node, and over failures of any.

use super::object::Object;
use crate::Error;
use baton_api::ErrorBody;
use baton_api::crdt::{CounterState, CounterTotal, CounterWrite, CrdtKind};
use std::sync::{Mutex, PoisonError};

/// A writer's own total. Made by [`Counter::tally`](super::Counter::tally).
///
/// What is added is in the total at once, and every node that is told a total has all that went before. So an add that failed isn't lost: it is
/// told with the next one, and counts once.
#[derive(Debug)]
pub struct Tally {
    object: Object,
    writer: String,
    total: Mutex<CounterTotal>,
}

impl Tally {
    pub(super) fn new(object: Object, writer: String) -> Self {
        Self { object, writer, total: Mutex::default() }
    }

    /// Goes on from a total that this writer had before.
    pub fn starting_at(self, total: CounterTotal) -> Self {
        Self { total: Mutex::new(total), ..self }
    }

    /// All that this writer added and took, told or not.
    pub fn total(&self) -> CounterTotal {
        *self.total.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds, or takes if it is below zero, and tells a node. If the error isn't a refusal, it is added all the same, and told with the next.
    pub async fn add(&self, amount: i64) -> Result<CounterState, Error> {
        if amount < 0 && self.object.kind == Some(CrdtKind::GrowCounter) {
            return Err(Error::refused(ErrorBody::invalid("add", "a grow-counter can't be taken from")));
        }
        {
            let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
            let by = amount.unsigned_abs();
            let (added, taken) = if amount < 0 { (0, by) } else { (by, 0) };
            let sums = (total.added.checked_add(added), total.taken.checked_add(taken));
            let (Some(added), Some(taken)) = sums else {
                return Err(Error::refused(ErrorBody::invalid("total", "the total would be too large")));
            };
            *total = CounterTotal { added, taken };
        }
        self.tell().await
    }

    /// Tells a node the total as it is.
    pub async fn tell(&self) -> Result<CounterState, Error> {
        let (writer, total) = (Some(self.writer.clone()), Some(self.total()));
        let write = CounterWrite { add: None, total, writer, request_id: None };
        write.check().map_err(Error::refused)?;
        self.object.write_anywhere(&write).await
    }
}
