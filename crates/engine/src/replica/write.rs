//! Local writes: decided on what is ahead of the disk, answered when they are on it.

use super::ahead::{Ahead, Staged};
use super::memo::lane;
use super::{Failure, Origin, Replica};
use baton_core::crdt::row::ENTRY_SIZE;
use baton_core::crdt::{Actor, Context, Edit, ROW_ENTRIES_MAX, RequestId};
use tokio::sync::oneshot;

/// Edits in one write: with what else a commit has to say they fit in one.
pub const EDITS_MAX: usize = 40;
/// Bytes of names and rows in one write, for the same reason.
pub(super) const UNIT_BYTES_MAX: usize = 256 * 1024;

// What is taken in, from whomever, can be read again.
const _: () = assert!(UNIT_BYTES_MAX / ENTRY_SIZE <= ROW_ENTRIES_MAX);

/// What makes a write count once, however often it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Whose: requests of different writers are different.
    pub writer: &'a str,
    /// What the writer calls it.
    pub id: &'a str,
}

/// A write that is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    pub(super) actor: Actor,
    /// The dots it made, from one to the other; 0 if it changed nothing.
    pub(super) dots: (u64, u64),
    /// Whether it had been done before, and was only answered again.
    pub replayed: bool,
}

impl Written {
    /// What was seen by whoever has seen this write. Empty if it changed nothing.
    pub fn context(&self) -> Context {
        let (first, last) = self.dots;
        Context::span(self.actor, first.max(1), last)
    }
}

impl Replica {
    /// Does all edits, or none. A removal sees what was there before the write.
    pub async fn write(&self, edits: &[Edit], request: Option<Request<'_>>) -> Result<Written, Failure> {
        if edits.len() > EDITS_MAX {
            return Err(Failure::TooLarge);
        }
        let (written, durable) = self.enqueue(edits, request)?;
        durable.await.map_err(|_| Failure::Unknown)?;
        Ok(written)
    }

    fn enqueue(
        &self,
        edits: &[Edit],
        request: Option<Request<'_>>,
    ) -> Result<(Written, oneshot::Receiver<()>), Failure> {
        let asked =
            request.map(|of| (RequestId::of(of.writer, of.id), lane(of.writer), RequestId::digest(edits)));
        let mut ahead = self.shared.ahead();
        ahead.ready()?;
        if let Some((id, _, digest)) = asked
            && let Some(memo) = ahead.memos.get(id)
        {
            if memo.digest != digest {
                return Err(Failure::RequestReused);
            }
            return Ok((memo.answer(), ahead.barrier()));
        }
        let staged = self.stage(&mut ahead, edits)?;
        let (first, last) = (ahead.number + 1, ahead.number + staged.dots);
        let dots = if staged.dots == 0 { (0, 0) } else { (first, last) };
        let actor = ahead.actor;
        ahead.number = last;
        let memo = asked.map(|(id, lane, digest)| ahead.memos.remember(id, lane, digest, actor, dots));
        let durable = ahead.enqueue(staged, None, memo, Origin::Local);
        Ok((Written { actor, dots, replayed: false }, durable))
    }

    fn stage(&self, ahead: &mut Ahead, edits: &[Edit]) -> Result<Staged, Failure> {
        let now_ms = self.shared.now_ms();
        let mut staged = Staged::default();
        let mut bytes = 0;
        for edit in edits {
            let row = match staged.row(&edit.key) {
                Some(row) => row.clone(),
                None => ahead.row(&edit.key),
            };
            let dot = staged.dot(ahead);
            let change =
                edit.change(&row, dot, &ahead.seen, &mut ahead.clock, now_ms).map_err(Failure::Refused)?;
            let Some(change) = change else { continue };
            staged.dots += 1;
            let after = staged.stage(change, row.clone(), &ahead.seen);
            ahead.has_room(&edit.key, &row, after)?;
            bytes += edit.key.bytes().len() + after.size();
        }
        if bytes > UNIT_BYTES_MAX {
            return Err(Failure::TooLarge);
        }
        ahead.can_tell(staged)
    }
}

impl Ahead {
    /// Refuses for now what ends too much that came by a comparison which isn't over: others couldn't read what is told of it.
    pub(super) fn can_tell(&self, staged: Staged) -> Result<Staged, Failure> {
        if self.seen.can_tell(staged.delta.changes.iter()) { Ok(staged) } else { Err(Failure::Partial) }
    }

    /// Answered when all that is in line now is durable.
    pub(super) fn barrier(&mut self) -> oneshot::Receiver<()> {
        self.enqueue(Staged::default(), None, None, Origin::Local)
    }
}
