//! What callers of the lock service say and hear.

use baton_core::lock::{FencingToken, LockToken, Principal};
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

/// The lock was taken from its holder.
#[derive(Clone, Debug)]
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

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The store didn't answer, or said that it can't. If `unknown`, the call may have taken effect.
    Unavailable {
        /// Whether it may have taken effect.
        unknown: bool,
    },
    /// The store has no room.
    Full,
    /// Too many calls for this lock at once, or too much change under it.
    Overloaded,
    /// A record can't be read, or a bug.
    Internal,
}

/// A held lock.
#[derive(Clone, Debug)]
pub struct LockState {
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
    /// How many wait.
    pub waiting: u64,
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
    /// Who.
    pub owner: Arc<str>,
    /// When the lease ends.
    pub expires_at: WallTime,
    /// The grant's token.
    pub fencing: FencingToken,
    /// How many wait.
    pub waiting: u64,
}

/// Someone in a queue.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    /// Who.
    pub owner: Arc<str>,
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
