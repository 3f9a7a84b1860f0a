//! Baton's Rust SDK.
//!
//! ```no_run
//! # async fn example() -> Result<(), baton_client::Error> {
//! use baton_client::{Baton, secs};
//!
//! let baton = Baton::connect("http://127.0.0.1:7117").await?;
//! let lock = baton.lock("inventory:sku:123").ttl(secs(30)).acquire().await?;
//! println!("give the resource {}", lock.fencing_token());
//! lock.release().await?;
//!
//! let sum = baton.lock("k").run(|held| async move { held.fencing_token().get() + 1 }).await?;
//! # drop(sum);
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//! - A held lock renews itself at a third of its TTL, and [is lost](Lease::is_lost) before the store can give it to
//!   anyone else: its deadline counts from before the request left, on a clock that counts suspend.
//! - Every call is retried under one requestId until it is answered or its time is up. A time-out is
//!   [unknown](Error::is_unknown), never "no". A limit's check is sent once, unless it [says otherwise](limit::Check::retry).
//! - Calls under way at the same time share requests; one that is alone goes out at once.
//! - Dropping a future takes the call back as far as it can be: a waiter leaves the queue, a grant that nobody
//!   takes goes back.
//!
//! # Layout
//! - `baton`: the handle, its servers, retries and failover
//! - `lock`, `acquire`, `waiting`, `guard`, `lease`: asking for a lock, getting it, holding it, losing it
//! - `bundle`: the same for several locks at once, all or none
//! - `election`: leading, observing who leads; `held`: what a lock and a leadership have in common
//! - `shared`, `permit`: the same for a lock that several hold: readers, or a semaphore's permits
//! - `locks`, `watch`: looking at locks
//! - [`once`]: the first caller does the work, all others get its result
//! - [`worker`]: taking the runs of jobs; `jobs`: defining them and looking at them; `renewal`: keeping what was taken
//! - [`fence`]: the check at the resource
//! - [`limiter`]: leased limits, decided in this process
//! - [`limit`]: whether a key may go on; `limits`: defining limits and looking at them
//! - `preview`: when a schedule would be due
//! - [`crdt`]: counters, sets, registers, maps and presence, which need no agreement
//! - `tower`: routes that only a holder serves, or that are limited; `blocking`: the same without async. Each is a feature, off by default
//! - `host`, `batch`, `lane`, `connection`: one server, the calls collected for it, their requests, one socket
//! - `clock`, `retry`, `random`, `path`, `address`, `token`, `error`: what these are made of

mod acquire;
mod address;
mod batch;
mod baton;
#[cfg(feature = "blocking")]
pub mod blocking;
mod bundle;
mod calendars;
mod clock;
mod connection;
pub mod crdt;
mod election;
mod error;
pub mod fence;
mod guard;
mod held;
mod host;
mod jobs;
mod lane;
mod lease;
pub mod limit;
pub mod limiter;
mod limits;
mod lock;
mod locks;
pub mod once;
mod path;
mod permit;
mod preview;
mod random;
mod renewal;
mod retry;
mod shared;
mod token;
#[cfg(feature = "tower")]
pub mod tower;
mod waiting;
mod watch;
pub mod worker;

pub use baton::{Baton, BatonBuilder};
pub use baton_api::{
    ErrorBody, ErrorCode, Position, bundle as wire_bundle, calendar as wire_calendar,
    cluster as wire_cluster, crdt as wire_crdt, election as wire_election, fence as wire_fence,
    job as wire_job, limit as wire_limit, limit::LimitDefinition, lock as wire, mode::LockMode,
    once as wire_once, preview as wire_preview, replication as wire_replication, status::Status,
    worker as wire_worker,
};
pub use bundle::{BundleBuilder, BundleGuard, BundleLease};
pub use calendars::Calendars;
pub use election::{ElectionBuilder, Elections, Epoch, Leader, LeaderGuard, Observer, Stamped};
pub use error::Error;
pub use guard::LockGuard;
pub use jobs::{Job, Jobs};
pub use lease::{Lease, LeaseLost, LossReason};
pub use limit::Limit;
pub use limits::Limits;
pub use lock::{HeldBy, LockBuilder, TryAcquire};
pub use locks::{Force, ListQuery, Locks};
pub use permit::{PermitGuard, PermitLease, Semaphore};
pub use shared::{SharedGuard, SharedLease, SharedLock};
pub use token::{FencingToken, LockToken};
pub use watch::{LockWatch, Watched};
pub use worker::Worker;

/// Seconds, for short: `.ttl(secs(30))`.
pub const fn secs(seconds: u64) -> std::time::Duration {
    std::time::Duration::from_secs(seconds)
}
