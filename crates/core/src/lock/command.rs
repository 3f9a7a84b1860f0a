//! What can be asked of a lock, and what is answered.

use super::grant::{Digest, Flags, Terms};
use super::mode::Hold;
use super::name::{GrantId, LockName, Principal};
use super::state::State;
use super::token::LockToken;
use super::{acquire, election, force, queue, release, withdraw};
use crate::commit::COMMIT_OPERATIONS_MAX;
use crate::record::{Bytes, Revision, WallTime};
use crate::view::{Pause, Stamp, View};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// Forgotten waiters that one command drops at most: two deletes each, beside the roster's check and Put.
pub const FORGOTTEN_MAX: usize = (COMMIT_OPERATIONS_MAX - 2) / 2;

/// A node, made anew at every start and never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u64);

impl NodeId {
    /// No node: the waiter's call has ended, its place is kept for a while.
    pub const NONE: Self = Self(0);
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// Take the lock, or queue for it.
    Acquire(Acquire),
    /// Give it back, or count one down.
    Release(Release),
    /// Change what is said of the holder.
    Proclaim(Proclaim),
    /// Take it from its holder.
    Force(Force),
    /// The parked call ended: leave the queue.
    Leave(Attachment),
    /// The parked call ended, but will be made again: keep the place.
    Detach(Attachment),
    /// A grant couldn't be delivered: take it back, if nobody else was given it.
    Undo {
        /// Which grant.
        id: GrantId,
        /// As it was made.
        fencing: Revision,
    },
    /// A request's bundle has no use for it any more: take it back, and keep out what may still come of it.
    Withdraw(Withdraw),
    /// Time passed: see whether a holder is gone and who comes next.
    Settle,
    /// Drop waiters whose place has been kept long enough.
    Prune,
}

/// An acquire.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The request's, and so the grant's.
    pub id: GrantId,
    /// What for.
    pub terms: Terms,
    /// Of the terms.
    pub digest: Digest,
    /// The call that would be parked; without one it doesn't wait.
    pub attachment: Option<u64>,
    /// Where it would stand in the queue: behind lower ranks. See [`election::rank`]; 0 for those who have none.
    pub rank: u16,
}

/// A release with an authentic token.
#[derive(Clone, Debug)]
pub struct Release {
    /// Authentic: the caller has checked.
    pub token: LockToken,
    /// As in the token's seal.
    pub owner: Arc<str>,
    /// As in the token's seal.
    pub principal: Principal,
    /// The release's own, if it has a requestId.
    pub id: Option<GrantId>,
    /// The owner who is to have it next, and has to be waiting for that.
    pub successor: Option<Arc<str>>,
}

/// A new value of the holder's, with an authentic token.
#[derive(Clone, Debug)]
pub struct Proclaim {
    /// The grant's.
    pub id: GrantId,
    /// As it was made.
    pub fencing: Revision,
    /// Takes the place of its metadata; compact JSON.
    pub value: Option<Bytes>,
}

/// A forced release.
#[derive(Clone, Debug)]
pub struct Force {
    /// Only this grant; whoever holds it if absent.
    pub target: Option<GrantId>,
    /// Only the grant with this token.
    pub fencing: Option<Revision>,
    /// For how long its place stays closed afterwards.
    pub delay: Duration,
    /// Who does it.
    pub by: Arc<str>,
    /// Why.
    pub reason: String,
}

/// A request that is to have no effect, whatever it had.
#[derive(Clone, Debug)]
pub struct Withdraw {
    /// The request's, and so the grant's.
    pub id: GrantId,
    /// Of its terms.
    pub digest: Digest,
    /// Who made it.
    pub owner: Arc<str>,
    /// Whether the same request may be made again.
    pub again: bool,
}

/// A waiter's parked call.
#[derive(Clone, Copy, Debug)]
pub struct Attachment {
    /// The waiter.
    pub id: GrantId,
    /// The call.
    pub number: u64,
}

/// What the world around a decision looks like.
pub struct Context<'a> {
    /// Which node decides.
    pub node: NodeId,
    /// For display.
    pub now: WallTime,
    /// How long effects are remembered.
    pub memory: Duration,
    /// How many may wait.
    pub queue_max: u64,
    /// Where a waiter's call is, that is parked at a node under an attachment's number.
    pub liveness: &'a dyn Fn(GrantId, NodeId, u64) -> Liveness,
    /// Whether other nodes decide too: then rosters show who comes next, and where.
    pub is_shared: bool,
    /// Waiters whose place has been kept long enough: any commit may drop them. More than [`FORGOTTEN_MAX`] are of no use.
    pub forgotten: &'a [GrantId],
}

/// Where a waiter's call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// Parked on the node that decides: can be handed the lock in this commit.
    Here,
    /// Parked on another node, which takes the lock itself when it is its turn.
    Elsewhere,
    /// Nowhere: keeps its place for a while, and blocks nobody.
    Orphan,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The lock is the caller's.
    Granted(Granted),
    /// It is in the queue.
    Parked,
    /// Someone else has it, or is about to.
    Held(Held),
    /// Nobody more may wait.
    QueueFull(Held),
    /// Nobody has it, but a lease ran out, and its lock-delay is not over (L14).
    Delayed(Held),
    /// It is in use as another kind of lock, or with another number of permits (L17).
    ModeMismatch {
        /// How many permits it has, if it is a semaphore.
        permits: Option<u16>,
    },
    /// Given back, now or earlier.
    Released,
    /// The holder's value is the new one.
    Proclaimed,
    /// The named successor doesn't wait: nothing was changed.
    NoSuchSuccessor,
    /// The request's grant was given back already.
    AlreadyReleased,
    /// The lease ran out or was forced.
    Expired,
    /// The requestId was used with other parameters.
    RequestIdReused,
    /// Nobody holds it.
    NotFound,
    /// It was taken from this grant's holder.
    Forced {
        /// Which.
        id: GrantId,
        /// Whose.
        owner: Arc<str>,
        /// Its token.
        fencing: Stamp,
        /// The tokens of those who hold it still.
        others: Vec<Revision>,
    },
    /// The parked call, or the undelivered grant, is no more.
    Left,
    /// Who was forgotten, or as many of them as one commit takes, is no more.
    Pruned,
    /// What a look at the lock showed.
    Settled {
        /// When to look again: the first lease or lock-delay ends then if not renewed.
        look_in: Option<Duration>,
        /// Whether somebody who waits at another node could take it.
        is_free: bool,
    },
}

/// A grant, in an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Which.
    pub id: GrantId,
    /// What its release has to know.
    pub flags: Flags,
    /// Of the request that it was first granted to.
    pub digest: Digest,
    /// The grant's creation: the fencing token.
    pub fencing: Stamp,
    /// Whose.
    pub owner: Arc<str>,
    /// Whose, as far as authentication goes.
    pub principal: Principal,
    /// How long the lease lasts, at least, from this commit on.
    pub ttl: Duration,
    /// How many releases it takes.
    pub count: u32,
    /// How it is held.
    pub hold: Hold,
    /// Whether this answer made the grant, so that it may be undone if it can't be delivered.
    pub is_new: bool,
}

/// A lock that can't be had now, in an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Who has it, of several the one whose lease ends first; nobody between two holders.
    pub owner: Option<Arc<str>>,
    /// When its lease would end, or the lock-delay ends.
    pub retry_after: Option<Duration>,
    /// How many wait.
    pub waiting: u64,
}

/// What a commit does besides answering: waiters are woken by it, histories and metrics are kept from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A grant was made.
    Granted {
        /// The grant.
        grant: Granted,
        /// Since when it was in the queue, if it was.
        queued_since: Option<WallTime>,
    },
    /// A grant ended.
    Ended {
        /// Which.
        id: GrantId,
        /// How.
        how: End,
        /// Whose.
        owner: Arc<str>,
        /// Its token.
        fencing: Stamp,
        /// For display; 0 after a blind release, whose commit witnesses the grant.
        granted_at: WallTime,
    },
}

/// How a grant ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Given back.
    Released,
    /// Taken back because it couldn't be delivered.
    Undelivered,
    /// The lease ran out.
    Expired,
    /// Taken away.
    Forced,
}

/// A decision: true once the view's draft is committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    /// The answer.
    pub reply: Reply,
    /// What else happens.
    pub effects: Vec<Effect>,
    /// Whether more could be done at once that doesn't fit in the same commit: settle the lock right after it.
    pub more: bool,
}

/// What to do, given what the view shows. On [`Pause`] the view's draft must be rolled back.
pub fn decide(
    lock: &LockName,
    command: &Command,
    view: &mut View,
    context: &Context<'_>,
) -> Result<Decided, Pause> {
    match command {
        Command::Acquire(acquire) => acquire::decide(lock, acquire, view, context),
        Command::Release(release) => release::decide(lock, release, view, context),
        Command::Proclaim(proclaim) => election::proclaim(State::open(lock, view, context)?, proclaim),
        Command::Force(force) => force::decide(State::open(lock, view, context)?, force),
        Command::Leave(attachment) => queue::leave(State::open(lock, view, context)?, *attachment),
        Command::Detach(attachment) => queue::detach(State::open(lock, view, context)?, *attachment),
        Command::Undo { id, fencing } => release::undo(State::open(lock, view, context)?, *id, *fencing),
        Command::Withdraw(withdraw) => withdraw::decide(State::open(lock, view, context)?, withdraw),
        Command::Settle => queue::settle(State::open(lock, view, context)?),
        Command::Prune => queue::prune(State::open(lock, view, context)?),
    }
}
