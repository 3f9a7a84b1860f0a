//! Counters.

use super::object::{Object, object_options, seen_option};
use super::tally::Tally;
use crate::{Baton, Error};
use baton_api::crdt::{Amount, CounterState, CounterWrite, CrdtKind, RemovedResponse};
use hyper::Method;
use std::sync::Arc;

/// A counter. Made by [`Baton::counter`].
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// let written = baton.counter("page:7:views").add(1).await?;
/// println!("{} views, as far as this node knows", written.value);
/// // Elsewhere, later: a read that has seen that write.
/// let views = baton.counter("page:7:views").after(written.context).value().await?;
/// # drop(views);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Counter {
    pub(super) object: Object,
}

impl Counter {
    pub(crate) fn new(baton: Baton, name: Arc<str>) -> Self {
        let object = Object { kind: Some(CrdtKind::Counter), ..Object::new(baton, "counters", name) };
        Self { object }
    }

    object_options!();
    seen_option!();

    /// The counter of this name that can only be added to: another one.
    pub fn grow_only(mut self) -> Self {
        self.object.kind = Some(CrdtKind::GrowCounter);
        self
    }

    /// Adds, or takes if it is below zero. What it counts then at the node that did it, and the `context` of the write.
    pub async fn add(&self, amount: i64) -> Result<CounterState, Error> {
        let (writer, request_id) = self.object.signed();
        let write = CounterWrite { add: Some(Amount(amount)), total: None, writer, request_id };
        write.check().map_err(Error::refused)?;
        self.object.write(Method::POST, "", &write).await
    }

    /// What it counts, as far as the node has seen.
    pub async fn value(&self) -> Result<i128, Error> {
        self.read().await.map(|state| state.value)
    }

    /// The same, with what was seen.
    pub async fn read(&self) -> Result<CounterState, Error> {
        self.object.read(&[]).await
    }

    /// Removes what was seen of it.
    pub async fn remove(&self) -> Result<RemovedResponse, Error> {
        self.object.remove().await
    }

    /// A writer's own total in this counter, which counts once at whatever nodes it is told. The name must be nobody else's, also not an
    /// earlier process's whose total isn't [known](Tally::starting_at). A counter has room for 1024 of them.
    pub fn tally(self, writer: impl Into<String>) -> Tally {
        Tally::new(self.object, writer.into())
    }
}
