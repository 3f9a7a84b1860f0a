//! What callers of the lock service say and hear.

pub use crate::failure::Failure;
use baton_core::lock::{FencingToken, Hold, LockToken, Mode, Principal};
use baton_core::{Bytes, WallTime};
use std::sync::Arc;
use std::time::Duration;

/// An acquire, already within the limits on input.
#[derive(Clone, Debug)]
pub struct AcquireCall {
    /// Who asks.
    pub owner: Arc<str>,
    /// As whom.
    pub principal: Principal,
    /// For how long.
    pub ttl: Duration,
    /// Whether to queue.
    pub wait: Wait,
    /// Made by the engine if absent.
    pub request_id: Option<String>,
    /// Whether the owner may acquire it again.
    pub reentrant: bool,
    /// Compact JSON.
    pub metadata: Option<Bytes>,
    /// How to hold it.
    pub mode: Mode,
    /// For how long it stays closed if the lease runs out.
    pub delay: Duration,
}

/// Whether to queue for a held lock, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until granted.
    Forever,
    /// At most this long.
    AtMost(Duration),
}

/// The lock is the caller's.
#[derive(Clone, Debug)]
pub struct Granted {
    /// Proves it.
    pub token: LockToken,
    /// For the resource.
    pub fencing: FencingToken,
    /// For display.
    pub expires_at: WallTime,
    /// The lease.
    pub ttl: Duration,
    /// How many releases it takes.
    pub count: u32,
    /// How it is held.
    pub hold: Hold,
}

/// A release.
#[derive(Clone, Debug)]
pub struct ReleaseCall {
    /// As it came over the wire.
    pub token: String,
    /// As in the acquire.
    pub owner: Arc<str>,
    /// As in the acquire.
    pub principal: Principal,
    /// Its own.
    pub request_id: Option<String>,
}

/// A renewal.
#[derive(Clone, Debug)]
pub struct RenewCall {
    /// As it came over the wire.
    pub token: String,
    /// As in the acquire.
    pub owner: Arc<str>,
    /// As in the acquire.
    pub principal: Principal,
    /// From now, at least.
    pub ttl: Duration,
}

/// The lease was renewed.
#[derive(Clone, Copy, Debug)]
pub struct Renewed {
    /// For display.
    pub expires_at: WallTime,
    /// As granted.
    pub fencing: FencingToken,
}

/// A forced release.
#[derive(Clone, Debug)]
pub struct ForceCall {
    /// Only the holder with this token; everybody if absent.
    pub fencing: Option<FencingToken>,
    /// For how long the lock stays closed afterwards.
    pub delay: Duration,
    /// Who does it.
    pub by: Arc<str>,
    /// Why.
    pub reason: String,
}

/// The lock was taken from a holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forced {
    /// From whom.
    pub owner: Arc<str>,
    /// What resources should now refuse.
    pub fencing: FencingToken,
}

/// Why a call didn't do what it was asked to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockError {
    /// The rules say no. Nothing is unclear.
    Refused(Refusal),
    /// It couldn't be done.
    Failed(Failure),
}

impl From<Failure> for LockError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What the rules say no with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Someone else has it.
    Held(HeldBy),
    /// The wait limit ran out, and the queue was left.
    WaitTimeout(HeldBy),
    /// The cap on one call ran out; the place is kept for the requestId.
    StillWaiting {
        /// To call again with.
        request_id: String,
        /// Meanwhile.
        held: HeldBy,
    },
    /// Nobody more may wait.
    QueueFull(HeldBy),
    /// Nobody has it, but its lock-delay is not over.
    Delayed(HeldBy),
    /// It is in use as another kind of lock.
    ModeMismatch {
        /// How many permits it has, if it is a semaphore.
        permits: Option<u16>,
    },
    /// The request's grant was given back already.
    AlreadyReleased,
    /// The lease ran out or was forced.
    Expired,
    /// The requestId was used with other parameters.
    RequestIdReused,
    /// A reentrant lock's release needs a requestId.
    RequestIdMissing,
    /// Not an authentic token, and someone holds the lock.
    NotOwner,
    /// Not an authentic token, and nobody holds the lock.
    NotFound,
    /// A list's cursor that no list gave out.
    BadCursor,
    /// The named successor doesn't wait; nothing was changed.
    NoSuchSuccessor,
}

/// Who has a lock, as far as is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeldBy {
    /// Who; nobody between two holders.
    pub owner: Option<Arc<str>>,
    /// When its lease would end.
    pub retry_after: Option<Duration>,
    /// How many wait.
    pub waiting: u64,
}

/// A held lock.
#[derive(Clone, Debug)]
pub struct LockState {
    /// Who holds it, in the order of their grants; never empty.
    pub holders: Vec<HolderState>,
    /// How many permits there are, if it is a semaphore.
    pub permits: Option<u16>,
    /// How many wait.
    pub waiting: u64,
}

impl LockState {
    /// Who has held it for longest.
    pub fn first(&self) -> Option<&HolderState> {
        self.holders.first()
    }
}

/// Who holds a lock.
#[derive(Clone, Debug)]
pub struct HolderState {
    /// Who.
    pub owner: Arc<str>,
    /// When the lease ends.
    pub expires_at: WallTime,
    /// The grant's token.
    pub fencing: FencingToken,
    /// When it was granted.
    pub acquired_at: WallTime,
    /// When the lease was last granted or renewed.
    pub updated_at: WallTime,
    /// The lease's length.
    pub ttl: Duration,
    /// How many releases it takes.
    pub count: u32,
    /// How it is held.
    pub hold: Hold,
    /// How often it was renewed.
    pub renewals: u64,
    /// Compact JSON.
    pub metadata: Option<Bytes>,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// Held locks.
    pub locks: Vec<Summary>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// A held lock in a list.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The lock's key.
    pub key: String,
    /// Who, of several the one who has held it for longest.
    pub owner: Arc<str>,
    /// When its lease ends.
    pub expires_at: WallTime,
    /// Its grant's token.
    pub fencing: FencingToken,
    /// How it holds it.
    pub hold: Hold,
    /// How many hold it.
    pub holders: u64,
    /// How many permits there are, if it is a semaphore.
    pub permits: Option<u16>,
    /// How many wait.
    pub waiting: u64,
}

/// Someone in a queue.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    /// Who.
    pub owner: Arc<str>,
    /// How it wants to hold it.
    pub mode: Mode,
    /// Since when.
    pub since: WallTime,
    /// For how long.
    pub waited: Duration,
    /// Whether its call is still there.
    pub connected: bool,
}

/// What can happen to a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HistoryKind {
    /// Someone got it.
    Granted,
    /// Its holder gave it back.
    Released,
    /// Its lease ran out.
    Expired,
    /// An administrator took it away.
    Forced,
}

/// Something that happened to a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryEvent {
    /// What.
    pub kind: HistoryKind,
    /// The lock's key.
    pub key: String,
    /// Whose lock it was or became.
    pub owner: Arc<str>,
    /// The grant's token.
    pub fencing: FencingToken,
    /// When.
    pub at: WallTime,
    /// How often the lease had been renewed, if it ended.
    pub renewals: Option<u64>,
    /// Why it was forced.
    pub reason: Option<String>,
    /// Who forced it.
    pub by: Option<Arc<str>>,
}
