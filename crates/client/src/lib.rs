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
//!   [unknown](Error::is_unknown), never "no".
//! - Calls under way at the same time share requests; one that is alone goes out at once.
//! - Dropping a future takes the call back as far as it can be: a waiter leaves the queue, a grant that nobody
//!   takes goes back.
//!
//! # Layout
//! - `baton`: the handle, its servers, retries and failover
//! - `lock`, `acquire`, `guard`, `lease`: asking for a lock, getting it, holding it, losing it
//! - `locks`, `watch`: looking at locks
//! - `host`, `batch`, `lane`, `connection`: one server, the calls collected for it, their requests, one socket
//! - `clock`, `retry`, `random`, `path`, `address`, `token`, `error`: what these are made of

mod acquire;
mod address;
mod batch;
mod baton;
mod clock;
mod connection;
mod error;
mod guard;
mod host;
mod lane;
mod lease;
mod lock;
mod locks;
mod path;
mod random;
mod retry;
mod token;
mod watch;

pub use baton::{Baton, BatonBuilder};
pub use baton_api::{ErrorBody, ErrorCode, lock as wire, status::Status};
pub use error::Error;
pub use guard::LockGuard;
pub use lease::{Lease, LeaseLost, LossReason};
pub use lock::{HeldBy, LockBuilder, TryAcquire};
pub use locks::{ListQuery, Locks};
pub use token::{FencingToken, LockToken};
pub use watch::{LockWatch, Watched};

/// Seconds, for short: `.ttl(secs(30))`.
pub const fn secs(seconds: u64) -> std::time::Duration {
    std::time::Duration::from_secs(seconds)
}
