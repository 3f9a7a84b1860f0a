//! Runs that are over leave rows: what they made is written again under this run's dots, some rows at a time.
//!
//! It is for whoever knows which runs are over, and that this replica has seen all they did (D8): a run's dots that come after
//! this are merged like any others. What rows say doesn't change, and doing it at two replicas counts nothing twice.

use super::ahead::Staged;
use super::write::{EDITS_MAX, UNIT_BYTES_MAX};
use super::{Failure, Origin, Replica};
use baton_core::crdt::renewal;
use baton_core::crdt::{Actor, Change, Dot, Row, RowKey};
use std::ops::Bound;

/// Rows that are looked at in one step, at most: nobody else can write meanwhile.
const LOOKED_AT_MAX: usize = 4096;

/// How far a renewal has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renewed {
    /// Rows that were written again.
    pub rows: usize,
    /// Where to go on; nothing if this was the end.
    pub next: Option<RowKey>,
}

impl Replica {
    /// Writes entries of `old` runs again under this one, in some rows after a name. Answers when that is durable.
    pub async fn renew(
        &self,
        old: impl Fn(Actor) -> bool,
        after: Option<&RowKey>,
    ) -> Result<Renewed, Failure> {
        let own = self.actor();
        self.rewrite(
            |row, key, mint| renewal::renew(row, key, |actor| actor != own && old(actor), mint),
            after,
        )
        .await
    }

    /// Writes what `rule` makes of some rows after a name, with dots that it is given. Answers when that is durable.
    pub(super) async fn rewrite(
        &self,
        rule: impl Fn(&Row, &RowKey, &mut dyn FnMut() -> Dot) -> Option<Change>,
        after: Option<&RowKey>,
    ) -> Result<Renewed, Failure> {
        let (renewed, durable) = {
            let mut ahead = self.shared.ahead();
            ahead.ready()?;
            let (own, number) = (ahead.actor, ahead.number);
            let (mut staged, mut bytes, mut next) = (Staged::default(), 0, None);
            let durable = self.shared.durable();
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            for (looked_at, (key, _)) in durable.rows_from(from).enumerate() {
                // What isn't durable yet counts too: the row may be another by now.
                let row = ahead.row(key);
                let mut dots = staged.dots;
                let mut mint = || {
                    dots += 1;
                    Dot { actor: own, number: number + dots }
                };
                if let Some(change) = rule(&row, key, &mut mint) {
                    staged.dots = dots;
                    bytes += key.bytes().len() + row.size();
                    staged.stage(change, row, &ahead.seen);
                }
                if staged.rows.len() >= EDITS_MAX || bytes > UNIT_BYTES_MAX / 2 || looked_at >= LOOKED_AT_MAX
                {
                    next = Some(key.clone());
                    break;
                }
            }
            let staged = ahead.can_tell(staged)?;
            ahead.number += staged.dots;
            let rows = staged.rows.len();
            (Renewed { rows, next }, ahead.enqueue(staged, None, None, Origin::Local))
        };
        durable.await.map_err(|_| Failure::Unknown)?;
        Ok(renewed)
    }
}
