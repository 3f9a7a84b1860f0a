//! Leased limits, decided in the caller's own process (M2).
//!
//! A part of a key's limit is debited at the store before it is spent here, so no crash of this process admits too much. While there is
//! something in a key's purse a check is a lock on a shard of a map; more is asked for beside the checks, before it runs
//! dry. A key that comes once, a limit that isn't leased, and whoever finds the purse empty ask the server.
//!
//! # Layout
//! - this file: the limiter
//! - `purses`: what is held for each key, and what to do next

mod purses;

use crate::clock::Moment;
use crate::error::Error;
use crate::limit::{Allowed, Checked, Limit, Refused};
use baton_api::limit::{LeaseRequest, LeaseResponse};
use baton_api::limits;
use baton_core::limit::purse::Message;
use purses::{Next, Purses};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often idle purses are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A check that finds its purse empty waits this often for somebody's answer before it asks the server itself.
const WAITS_MAX: usize = 3;
/// How long somebody waits for more to spend. A server that can't lend can still decide, and does so by the limit's own policy.
const LEND_PATIENCE: Duration = Duration::from_millis(500);
/// Leases given back at once.
const GIVEN_BACK_AT_ONCE: usize = 32;

/// Decides a leased limit in this process. Made by [`Baton::limiter`](crate::Baton::limiter); cheap to clone, keep one for each limit.
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// let limiter = baton.limiter("api");
/// if limiter.check("acme", 1).await?.is_allowed() {
///     // go on
/// }
/// limiter.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    limit: Limit,
    /// What this process is called in lists of leases.
    owner: String,
    purses: Purses,
    began: Moment,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").field("limit", &self.0.limit.name()).finish_non_exhaustive()
    }
}

impl Limiter {
    pub(crate) fn new(limit: Limit) -> Self {
        let owner = format!("sdk.{}", crate::random::request_id().replace('-', ""));
        let owner: String = owner.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        Self(Arc::new(Inner { limit, owner, purses: Purses::default(), began: Moment::now() }))
    }

    /// The limit's name.
    pub fn name(&self) -> &str {
        self.0.limit.name()
    }

    /// Decides without waiting: `Some(true)` if it was spent here, `Some(false)` if the store has just said no. `None` says that
    /// somebody has to be asked: then call [`check`](Self::check).
    ///
    /// Within a Tokio runtime more is asked for in the background when little is left.
    pub fn check_now(&self, key: &str, cost: u64) -> Option<bool> {
        match self.0.purses.next(key, cost, self.0.now_ms(), false) {
            Next::Spent { ask } => {
                if let Some(message) = ask {
                    self.ask_beside(key, message);
                }
                Some(true)
            }
            Next::Refused { .. } => Some(false),
            Next::Ask | Next::Wait(_) => None,
            Next::Renew(message) => {
                // Nobody waits for it here: the next one finds what it brings.
                self.ask_beside(key, message);
                None
            }
        }
    }

    /// Whether a key may go on, and counts it. A cost of 0 looks, at the server.
    pub async fn check(&self, key: &str, cost: u64) -> Result<Checked, Error> {
        limits::check_text("key", key, limits::KEY_BYTES).map_err(Error::refused)?;
        limits::check_number("cost", cost, limits::COST).map_err(Error::refused)?;
        let mut renewed = false;
        for _ in 0..if cost == 0 { 0 } else { WAITS_MAX } {
            match self.0.purses.next(key, cost, self.0.now_ms(), renewed) {
                Next::Spent { ask } => {
                    if let Some(message) = ask {
                        self.ask_beside(key, message);
                    }
                    let (limit, remaining, reset_ms) = self.0.purses.seen(key, self.0.now_ms());
                    let source = if renewed { "renewed" } else { "local" };
                    return Ok(Checked::Allowed(Allowed::plain(limit, remaining, reset_ms, source)));
                }
                Next::Refused { retry_after_ms } => {
                    let (limit, _, reset_ms) = self.0.purses.seen(key, self.0.now_ms());
                    let name = self.0.limit.name();
                    return Ok(Checked::Refused(Refused::local(name, key, limit, reset_ms, retry_after_ms)));
                }
                Next::Ask => break,
                Next::Wait(answered) => {
                    if tokio::time::timeout(self.0.limit.call_timeout(), answered).await.is_err() {
                        break;
                    }
                    renewed = true;
                }
                Next::Renew(message) => {
                    // As a task, so that a caller that goes away doesn't leave others waiting.
                    let asking = tokio::spawn(self.0.clone().ask(key.to_owned(), message, LEND_PATIENCE));
                    if !matches!(asking.await, Ok(true)) {
                        break;
                    }
                    renewed = true;
                }
            }
        }
        self.look_after_idle();
        let checked = self.0.limit.check(key).cost(cost).await?;
        if let Checked::Refused(refused) = &checked {
            self.0.purses.note_refusal(key, cost, refused.retry_after, self.0.now_ms());
        }
        Ok(checked)
    }

    /// Gives everything back. Without it, what is left counts as spent when the leases end.
    pub async fn close(&self) {
        self.0.give_back(true).await;
    }

    fn ask_beside(&self, key: &str, message: Message) {
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(self.0.clone().ask(key.to_owned(), message, LEND_PATIENCE))),
            // Without a runtime nobody can ask: whoever comes next through `check` does.
            Err(_) => self.0.purses.unheard(key, &message, self.0.now_ms()),
        }
    }

    /// Starts what gives idle leases back, once, as long as this limiter lives.
    fn look_after_idle(&self) {
        if self.0.purses.is_first_look() {
            tokio::spawn(look(Arc::downgrade(&self.0)));
        }
    }
}

async fn look(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.give_back(false).await;
    }
}

impl Inner {
    fn now_ms(&self) -> u64 {
        // From 1 on: 0 is when nothing has happened yet.
        Moment::now().since(self.began).as_millis() as u64 + 1
    }

    /// Says to the server what became of a lease, and hears what it has now: what was given by a definition that has changed since goes
    /// back at once. Whether there was an answer.
    async fn ask(self: Arc<Self>, key: String, message: Message, patience: Duration) -> bool {
        let is_heard = self.say(&key, message, patience).await;
        if let Some(message) = self.purses.outdated(&key, self.now_ms()) {
            self.say(&key, message, patience).await;
        }
        is_heard
    }

    async fn say(&self, key: &str, message: Message, patience: Duration) -> bool {
        let (lease_id, version) = self.purses.lease_of(key, &self.owner);
        let request = LeaseRequest {
            key: key.to_owned(),
            node_id: self.owner.clone(),
            lease_id,
            sequence: message.sequence,
            want: message.want,
            spent: message.spent,
            kept: Some(message.kept),
            version,
            ttl_millis: version.map(|_| message.ttl_ms),
        };
        let answer: Result<LeaseResponse, Error> = self.limit.lease(&request, patience).await;
        let now_ms = self.now_ms();
        match answer {
            Ok(lent) => self.purses.heard(key, &message, &lent, now_ms),
            Err(_) => {
                self.purses.unheard(key, &message, now_ms);
                false
            }
        }
    }

    async fn give_back(self: &Arc<Self>, all: bool) {
        let mut leaving = self.purses.leaving(all, self.now_ms()).into_iter();
        loop {
            let tasks: Vec<_> = leaving
                .by_ref()
                .take(GIVEN_BACK_AT_ONCE)
                .map(|(key, message)| tokio::spawn(self.clone().ask(key, message, self.limit.call_timeout())))
                .collect();
            if tasks.is_empty() {
                return;
            }
            for task in tasks {
                // What isn't given back ends with its lease.
                drop(task.await);
            }
        }
    }
}
