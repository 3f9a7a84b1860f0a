//! Leased and approximate limits, decided in the caller's own process (M2, M4).
//!
//! A part of a key's limit is debited at the store before it is spent here, so no crash of this process admits too much. While there is
//! something in a key's pocket a check is one compare-and-swap; more is asked for beside the checks, before it runs
//! dry. A key that comes once, a limit that is neither, and whoever finds the purse empty ask the server.
//!
//! # Layout
//! - this file: the limiter
//! - `asking`: what is said to the server about a lease
//! - `key`: what keys are, and how they are recognized
//! - `table`: where a key's pocket is found without a lock
//! - `purses`: what is held for each key, and what to do next; `open`: one of them, while somebody looks at it
//! - `clock`: a time that is cheap to read, and never behind

mod asking;
mod clock;
mod key;
mod open;
mod purses;
mod table;
#[cfg(test)]
mod tests;

pub use key::LimitKey;

use crate::error::Error;
use crate::limit::{Allowed, Checked, Limit, Refused};
use asking::Asking;
use baton_api::limit::Identity;
use baton_api::limits;
use baton_core::limit::purse::Message;
use clock::Clock;
use key::{Plain, Sought};
use purses::{Next, Purses};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often idle purses are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A check that finds its purse empty waits this often for somebody's answer before it asks the server itself.
const WAITS_MAX: usize = 3;
/// How long somebody waits for more to spend. A server that can't lend can still decide, and does so by the limit's own policy.
const LEND_PATIENCE: Duration = Duration::from_millis(500);
/// Leases given back at once.
const GIVEN_BACK_AT_ONCE: usize = 32;

/// Decides a leased or approximate limit in this process. Made by [`Baton::limiter`](crate::Baton::limiter); cheap to clone, keep one for each limit.
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
    /// Of all who are checked here; nothing is the same as known.
    identity: Option<Identity>,
    purses: Purses,
    clock: Clock,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").field("limit", &self.0.limit.name()).finish_non_exhaustive()
    }
}

impl Limiter {
    pub(crate) fn new(limit: Limit) -> Self {
        Self::with(limit, None)
    }

    fn with(limit: Limit, identity: Option<Identity>) -> Self {
        let owner = format!("sdk.{}", crate::random::request_id().replace('-', ""));
        let owner: String = owner.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        Self(Arc::new(Inner { limit, identity, purses: Purses::new(owner), clock: Clock::default() }))
    }

    /// A limiter for those who are known, or for those who aren't, with leases of its own: whoever isn't known gets less slack of an
    /// approximate limit, and is decided by the definition's `anonymousMechanism`, if it has one. A process that serves both keeps two.
    ///
    /// ```no_run
    /// # fn example(baton: baton_client::Baton) {
    /// use baton_client::wire_limit::Identity;
    ///
    /// let known = baton.limiter("api");
    /// let strangers = baton.limiter("api").identity(Identity::Anonymous);
    /// # }
    /// ```
    pub fn identity(&self, identity: Identity) -> Self {
        Self::with(self.0.limit.clone(), Some(identity))
    }

    /// The limit's name.
    pub fn name(&self) -> &str {
        self.0.limit.name()
    }

    /// Decides without waiting: `Some(true)` if it was spent here, `Some(false)` if the store has just said no. `None` says that
    /// somebody has to be asked: then call [`check`](Self::check).
    ///
    /// A key is a text, or a `u64`, which the server knows by its decimal digits. Within a Tokio runtime more is asked
    /// for in the background when little is left.
    #[inline]
    pub fn check_now(&self, key: impl LimitKey, cost: u64) -> Option<bool> {
        let key = key.plain();
        if self.take(key, cost) { Some(true) } else { self.look_now(key, cost) }
    }

    /// Spends what is in the key's pocket, if that is all there is to do.
    #[inline]
    fn take(&self, key: Plain<'_>, cost: u64) -> bool {
        self.0.purses.take(key, cost, self.0.clock.not_before_ms())
    }

    /// When it isn't just a matter of spending.
    #[cold]
    fn look_now(&self, key: Plain<'_>, cost: u64) -> Option<bool> {
        let sought = &self.0.purses.seek(key);
        match self.0.purses.next(key, sought, cost, self.0.clock.now_ms(), false) {
            Next::Spent { ask } => {
                if let Some(message) = ask {
                    self.ask_beside(key, sought, message);
                }
                Some(true)
            }
            Next::Refused { .. } => Some(false),
            Next::Wait(_) => None,
            Next::Ask { say } => {
                if let Some(message) = say {
                    self.ask_beside(key, sought, message);
                }
                None
            }
            Next::Renew(message) => {
                // Nobody waits for it here: the next one finds what it brings.
                self.ask_beside(key, sought, message);
                None
            }
        }
    }

    /// Whether a key may go on, and counts it. A cost of 0 looks, at the server.
    pub async fn check(&self, key: impl LimitKey, cost: u64) -> Result<Checked, Error> {
        self.check_plain(key.plain(), cost).await
    }

    async fn check_plain(&self, key: Plain<'_>, cost: u64) -> Result<Checked, Error> {
        if let Plain::Text(text) = key {
            limits::check_text("key", text, limits::KEY_BYTES).map_err(Error::refused)?;
        }
        limits::check_number("cost", cost, limits::COST).map_err(Error::refused)?;
        let inner = &self.0;
        let sought = inner.purses.seek(key);
        if cost > 0 && self.take(key, cost) {
            return Ok(self.spent(&sought, "local"));
        }
        let mut renewed = false;
        for _ in 0..if cost == 0 { 0 } else { WAITS_MAX } {
            match inner.purses.next(key, &sought, cost, inner.clock.now_ms(), renewed) {
                Next::Spent { ask } => {
                    if let Some(message) = ask {
                        self.ask_beside(key, &sought, message);
                    }
                    return Ok(self.spent(&sought, if renewed { "renewed" } else { "local" }));
                }
                Next::Refused { retry_after_ms } => {
                    let (limit, _, reset_ms) = inner.purses.seen(&sought, inner.clock.now_ms());
                    let refused =
                        Refused::local(inner.limit.name(), &key.text(), limit, reset_ms, retry_after_ms);
                    return Ok(Checked::Refused(refused));
                }
                Next::Ask { say } => {
                    if let Some(message) = say {
                        self.ask_beside(key, &sought, message);
                    }
                    break;
                }
                Next::Wait(answered) => {
                    if tokio::time::timeout(inner.limit.call_timeout(), answered).await.is_err() {
                        break;
                    }
                    renewed = true;
                }
                Next::Renew(message) => {
                    // As a task, so that a caller that goes away doesn't leave others waiting.
                    let asking = Asking::new(inner, key.text().into_owned(), sought, message);
                    let asking = tokio::spawn(asking.ask(LEND_PATIENCE));
                    if !matches!(asking.await, Ok(true)) {
                        break;
                    }
                    renewed = true;
                }
            }
        }
        self.look_after_idle();
        let mut check = inner.limit.check(key.text()).cost(cost);
        if let Some(identity) = inner.identity {
            check = check.identity(identity);
        }
        let checked = check.await?;
        if let Checked::Refused(refused) = &checked {
            inner.purses.note_refusal(&sought, cost, refused.retry_after, inner.clock.now_ms());
        }
        Ok(checked)
    }

    fn spent(&self, sought: &Sought, source: &str) -> Checked {
        let (limit, remaining, reset_ms) = self.0.purses.seen(sought, self.0.clock.not_before_ms());
        Checked::Allowed(Allowed::plain(limit, remaining, reset_ms, source))
    }

    /// Gives everything back, also what is only on its way: that is waited for, as long as a call may take. Without it, what is left
    /// counts as spent when the leases end.
    pub async fn close(&self) {
        self.0.give_all_back().await;
    }

    fn ask_beside(&self, key: Plain<'_>, sought: &Sought, message: Message) {
        let asking = Asking::new(&self.0, key.text().into_owned(), *sought, message);
        // Without a runtime nobody can ask: whoever comes next through `check` does.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(asking.ask(LEND_PATIENCE)));
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
    /// Gives back what is idle, or all that nobody asks about right now. Whether there was anything.
    async fn give_back(self: &Arc<Self>, all: bool) -> bool {
        let leaving = self.purses.leaving(all, self.clock.now_ms()).into_iter();
        // All at once, so that each is looked after if this ends early.
        let leaving: Vec<_> =
            leaving.map(|(key, sought, message)| Asking::new(self, key, sought, message)).collect();
        let has_some = !leaving.is_empty();
        let mut under_way = JoinSet::new();
        for asking in leaving {
            if under_way.len() >= GIVEN_BACK_AT_ONCE {
                // What isn't given back ends with its lease.
                drop(under_way.join_next().await);
            }
            under_way.spawn(asking.ask(self.limit.call_timeout()));
        }
        while under_way.join_next().await.is_some() {}
        has_some
    }

    /// Gives everything back, and what is under way when it has come.
    async fn give_all_back(self: &Arc<Self>) {
        let until = Instant::now() + self.limit.call_timeout();
        loop {
            // Whoever goes on checking leases anew: that must not keep anybody here.
            let is_last = Instant::now() >= until;
            let has_some = self.give_back(true).await;
            match self.purses.next_answer() {
                _ if is_last => return,
                Some(answer) => drop(tokio::time::timeout_at(until, answer).await),
                None if !has_some => return,
                None => {}
            }
        }
    }
}
