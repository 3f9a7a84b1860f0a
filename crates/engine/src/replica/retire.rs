//! Runs that are over for good, because an operator says so (D8).
//!
//! What a retired run made in sets and registers is written again under this one, and a mark that is never removed tells all
//! replicas. What it counted stays in its slots: if it was not over, or its directory is started again, that would count twice. What was seen of it stays in the context, so nothing of it can come back. If it was not over after all, or had something that nobody
//! had heard of, that is merged like anything else: nothing is refused, so nothing has to be sent again under another name.

use super::{Failure, Replica};
use baton_core::crdt::{Actor, Edit, Object};

/// A run of some replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its name.
    pub actor: Actor,
    /// The number of its last change that was heard of.
    pub changes: u64,
    /// Whether it was retired.
    pub is_retired: bool,
}

/// The marks: elements of a set that no caller can name.
fn marks() -> Object {
    Object::plain("\u{1}", "retired")
}

impl Replica {
    /// Every run that was ever heard of, in the order of their names.
    pub fn runs(&self) -> Vec<Run> {
        let context = self.context();
        let run = |actor: Actor| Run {
            actor,
            changes: context.highest(actor),
            is_retired: self.contains(&marks(), &actor.0).value,
        };
        context.actors().map(run).collect()
    }

    /// Retires a run, which must not be this one; how many rows had to be written again. Done again, it goes on where it was.
    pub async fn retire(&self, actor: Actor) -> Result<usize, Failure> {
        if !self.contains(&marks(), &actor.0).value {
            self.write(&[Edit::insert(&marks(), &actor.0)], None).await?;
        }
        let (mut rows, mut after) = (0, None);
        loop {
            let renewed = self.renew(|of| of == actor, after.as_ref()).await?;
            rows += renewed.rows;
            after = renewed.next;
            if after.is_none() {
                return Ok(rows);
            }
        }
    }
}
