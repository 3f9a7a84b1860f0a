//! Leased limits at a node (M2): spent out of what was debited at the store before, without asking.
//!
//! A key that is used more than once gets a purse. While there is enough in it a check is a lock on a shard of a map. More is asked
//! for beside the checks, before it runs dry; when it did, one check asks and the others wait for its answer. Whoever gets
//! nothing from a purse is decided by the store. A node that drains asks for nothing more: what it were given then would be
//! burned with it.

use super::calls::{CheckCall, LimitError};
use super::check::hex;
use super::definitions::Current;
use crate::engine::Node;
use crate::metrics::Metrics;
use baton_core::limit::purse::{Message, Purse, Spent, Terms};
use baton_core::limit::till::Till;
use baton_core::limit::{Definition, Mechanism, meter_key};
use baton_core::meter::{Algorithm, Claim, RowClaim, RowKind, Take};
use baton_core::{Key, Name, Revision};
use baton_store::Charge;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

const SHARDS: usize = 64;
/// Keys with a purse, over all shards. Beyond it those that come new are decided by the store.
const PURSES_MAX: usize = 100_000;
/// How long a lease lives if nothing is said.
const TTL_MS: u64 = 10_000;
/// A part of a limit this small isn't worth a lease.
const CHUNK_MIN: u64 = 4;
/// How long a refusal by the store is taken to stand.
const REFUSED_MS_MAX: u64 = 100;
/// A check that finds its purse empty waits this often for somebody's answer before it asks the store itself.
const WAITS_MAX: usize = 3;

/// All purses of a node.
pub(crate) struct Purses {
    shards: Vec<Mutex<HashMap<Key, Held>>>,
    hasher: RandomState,
}

impl Default for Purses {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

/// Of which purse something was spent, and after which of its messages.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    purse: u64,
    sequence: u64,
}

struct Held {
    till: Till,
    purse: Purse,
    /// No other purse has had it, also not of the same key.
    number: u64,
    limit: Name,
    /// Whose meter it is.
    key: String,
    /// The row's.
    id: String,
    terms: Terms,
    /// Whether only the key's owner spends from it.
    is_owned: bool,
    version: Revision,
    /// Told when an answer came, or none.
    answered: Arc<Notify>,
    /// What the store said last: what remained there, and in how many milliseconds from when it is fresh again.
    store: Seen,
    used_ms: u64,
    /// Until when the store's last no stands, and when it said to come back.
    refused: Option<Refused>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    remaining: u64,
    reset_at_ms: u64,
}

#[derive(Clone, Copy)]
struct Refused {
    cost: u64,
    until_ms: u64,
    retry_at_ms: Option<u64>,
}

/// What a purse said to a check.
pub(super) enum Local {
    /// It was spent here.
    Spent {
        /// What is left, here and at the store.
        remaining: u64,
        /// In how many milliseconds all is available again.
        reset_ms: u64,
        /// Whether somebody had to ask for it first.
        renewed: bool,
        /// To put it back with.
        ticket: Ticket,
    },
    /// The store has just said no.
    Refused {
        /// When to come back.
        retry_after_ms: Option<u64>,
        /// As above.
        reset_ms: u64,
    },
    /// The store must be asked.
    Ask,
}

enum Step {
    Done(Local),
    /// Somebody has asked already. It hears of everything that is told from now on.
    Wait(OwnedNotified),
    Renew(Message),
}

impl Purses {
    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Held>> {
        let shard = self.hasher.hash_one(&key.name) as usize % SHARDS;
        self.shards[shard].lock().expect("no panic while held")
    }

    /// What is to be said now, to give back what is idle or all there is. Forgets empty purses that nobody came back to.
    pub(super) fn leaving(
        &self,
        which: Leaving,
        now_ms: u64,
        is_anothers: impl Fn(&Key) -> bool,
    ) -> (Vec<(Key, Message)>, Vec<Lapsed>) {
        let (mut leaving, mut lapsed) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            let mut shard = shard.lock().expect("no panic while held");
            let kept_ms = |held: &Held| held.used_ms + 2 * held.terms.ttl_ms;
            shard.retain(|_, held| {
                let is_kept =
                    held.purse.is_asking() || now_ms < held.purse.closes_ms() || now_ms < kept_ms(held);
                let amount = if is_kept { 0 } else { held.purse.lapse(&held.till, now_ms) };
                if amount > 0 {
                    let (limit, key, id) = (held.limit.clone(), held.key.clone(), held.id.clone());
                    lapsed.push(Lapsed { limit, key, id, amount });
                }
                is_kept
            });
            for (place, held) in shard.iter_mut() {
                if held.purse.balance(&held.till, now_ms) == 0 || held.purse.is_asking() {
                    continue;
                }
                let goes = which == Leaving::All || (held.is_owned && is_anothers(place));
                if goes || held.purse.is_idle(&held.till, now_ms) {
                    leaving
                        .push((place.clone(), held.purse.give_back(&held.till, false, now_ms, &held.terms)));
                } else if held.purse.is_due(now_ms) {
                    leaving.push((place.clone(), held.purse.trim(&held.till, now_ms, &held.terms)));
                }
            }
        }
        (leaving, lapsed)
    }

    /// What an older definition of a limit than this version has given, to be given back.
    pub(super) fn outdated(&self, limit: &Name, version: Revision, now_ms: u64) -> Vec<(Key, Message)> {
        let mut leaving = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().expect("no panic while held");
            let given = shard.iter_mut().filter(|(_, held)| held.version < version && held.limit == *limit);
            for (place, held) in given {
                if held.purse.balance(&held.till, now_ms) > 0 && !held.purse.is_asking() {
                    leaving
                        .push((place.clone(), held.purse.give_back(&held.till, false, now_ms, &held.terms)));
                }
            }
        }
        leaving
    }

    /// Resolves when somebody hears an answer that is waited for now; nothing if nobody waits for any.
    pub(super) fn next_answer(&self) -> Option<OwnedNotified> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock().expect("no panic while held");
            let asking = shard.values().find(|held| held.purse.is_asking());
            asking.map(|held| held.answered.clone().notified_owned())
        })
    }
}

/// Of a lease that was over before it was given back.
pub(super) struct Lapsed {
    pub limit: Name,
    pub key: String,
    pub id: String,
    pub amount: u64,
}

/// What of all purses is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// What nobody spends.
    Idle,
    /// All that isn't being asked for right now.
    All,
}

/// How a definition's leases behave; nothing if it has none.
pub(super) fn terms(definition: &Definition, key: &str) -> Option<Terms> {
    let is_leased = definition.mechanism != Mechanism::Central
        && definition.algorithm != Algorithm::InFlight
        && !definition.dry_run
        && !definition.audit
        && definition.limit_of(key) / 20 >= CHUNK_MIN;
    let ttl_ms = definition.lease_ttl_ms.unwrap_or(TTL_MS).min(definition.window_ms.max(100));
    let size = match definition.mechanism {
        // Nobody else wants any, and what dies with an owner is to be one chunk: no lease grows beyond it by being renewed.
        Mechanism::Owned => {
            let chunk = definition.limit_of(key) / 20;
            Some(definition.lease_size.map_or(chunk, |size| size.min(chunk)))
        }
        _ => definition.lease_size,
    };
    is_leased.then_some(Terms { ttl_ms, size })
}

impl Node {
    /// Spends from the key's purse, if it has one or should get one.
    pub(super) async fn spend(
        self: &Arc<Self>,
        call: &CheckCall,
        current: &Current,
        metered: &str,
        until: Instant,
    ) -> Local {
        let Some(terms) = terms(&current.defined.definition, metered) else { return Local::Ask };
        let place = meter_key(&call.limit, metered);
        let mut renewed = false;
        for _ in 0..WAITS_MAX {
            match self.step(call, current, metered, &place, terms, renewed) {
                Step::Done(local) => return local,
                Step::Wait(answered) => {
                    if tokio::time::timeout_at(until, answered).await.is_err() {
                        return Local::Ask;
                    }
                    renewed = true;
                }
                Step::Renew(message) => {
                    // By itself, so that a caller that goes away doesn't leave others waiting.
                    let renewal = tokio::spawn(self.clone().renew(place.clone(), message));
                    if renewal.await.is_err() {
                        return Local::Ask;
                    }
                    renewed = true;
                }
            }
        }
        Local::Ask
    }

    fn step(
        self: &Arc<Self>,
        call: &CheckCall,
        current: &Current,
        metered: &str,
        place: &Key,
        terms: Terms,
        renewed: bool,
    ) -> Step {
        let now_ms = self.uptime_ms();
        let mut shard = self.purses.shard(place);
        // Looked at while the shard is held: who gives everything back after the signal finds whatever was asked for before it.
        let may_ask = !self.is_draining();
        let Some(held) = shard.get_mut(place) else {
            // A key that comes once needs no purse.
            if may_ask && shard.len() < PURSES_MAX / SHARDS {
                let held = Held {
                    till: Till::default(),
                    purse: Purse::default(),
                    number: self.attachment(),
                    limit: call.limit.clone(),
                    key: metered.into(),
                    id: format!("{:016x}.{}", self.id.0, hex(&self.random.bytes::<8>())),
                    terms,
                    is_owned: current.defined.definition.mechanism == Mechanism::Owned,
                    version: current.defined.version,
                    answered: Arc::default(),
                    store: Seen::default(),
                    used_ms: now_ms,
                    refused: None,
                };
                shard.insert(place.clone(), held);
            }
            return Step::Done(Local::Ask);
        };
        held.used_ms = now_ms;
        let reset_ms = held.store.reset_at_ms.saturating_sub(now_ms);
        if held.version != current.defined.version && !held.purse.is_asking() {
            if !may_ask {
                return Step::Done(Local::Ask);
            }
            // What was given by another definition goes back, for as much by this one.
            (held.version, held.terms, held.refused) = (current.defined.version, terms, None);
            held.is_owned = current.defined.definition.mechanism == Mechanism::Owned;
            return Step::Renew(held.purse.give_back(&held.till, true, now_ms, &terms));
        }
        match held.purse.spend(&held.till, call.cost, now_ms) {
            Spent::Yes { ask, sequence } => {
                if ask && may_ask {
                    let message = held.purse.ask(&held.till, 0, now_ms, &held.terms);
                    tokio::spawn(self.clone().renew(place.clone(), message));
                }
                let remaining = held.store.remaining + held.purse.balance(&held.till, now_ms);
                let ticket = Ticket { purse: held.number, sequence };
                Step::Done(Local::Spent { remaining, reset_ms, renewed, ticket })
            }
            Spent::No => {
                match held.refused.filter(|refused| now_ms < refused.until_ms && refused.cost <= call.cost) {
                    Some(refused) => {
                        let retry_after_ms =
                            refused.retry_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms).max(1));
                        Step::Done(Local::Refused { retry_after_ms, reset_ms })
                    }
                    None if renewed || !may_ask => Step::Done(Local::Ask),
                    None if held.purse.is_asking() => Step::Wait(held.answered.clone().notified_owned()),
                    None => Step::Renew(held.purse.ask(&held.till, call.cost, now_ms, &held.terms)),
                }
            }
        }
    }

    /// The store said no to a check of this key: for a moment that stands for all.
    pub(super) fn note_refusal(&self, place: &Key, cost: u64, retry_ms: Option<u64>) {
        let now_ms = self.uptime_ms();
        if let Some(held) = self.purses.shard(place).get_mut(place) {
            let stands_ms = retry_ms.unwrap_or(REFUSED_MS_MAX).min(REFUSED_MS_MAX);
            let (until_ms, retry_at_ms) = (now_ms + stands_ms, retry_ms.map(|retry_ms| now_ms + retry_ms));
            held.refused = Some(Refused { cost, until_ms, retry_at_ms });
        }
    }

    /// Puts back what was spent for a check that didn't pass.
    pub(super) fn unspend(&self, place: &Key, cost: u64, ticket: Ticket) {
        let now_ms = self.uptime_ms();
        if let Some(held) = self.purses.shard(place).get_mut(place)
            && held.number == ticket.purse
        {
            held.purse.unspend(&held.till, cost, ticket.sequence, now_ms);
        }
    }

    /// Says to the store what became of a lease, and hears what it has now.
    pub(super) async fn renew(self: Arc<Self>, place: Key, message: Message) {
        let Some((limit, key, id, answered)) = self
            .purses
            .shard(&place)
            .get(&place)
            .map(|held| (held.limit.clone(), held.key.clone(), held.id.clone(), held.answered.clone()))
        else {
            return;
        };
        let made = |currents: &[Current]| {
            let current = &currents[0];
            let is_leased = terms(&current.defined.definition, &key).is_some();
            let row = RowClaim {
                id: id.clone(),
                owner: format!("{:016x}", self.id.0),
                kind: RowKind::Lease,
                ttl_ms: message.ttl_ms,
                sequence: message.sequence,
                spent: message.spent,
                kept: message.kept,
            };
            let rule = current.defined.rule(&key, current.edges);
            let want = message.want.min(rule.algorithm.amount_max(rule.window_ms));
            let take = if want == 0 || !is_leased { Take::Nothing } else { Take::Share(want) };
            Ok::<_, LimitError>(Charge {
                claims: vec![Claim { key: place.clone(), rule, take, row: Some(row) }],
                memo: None,
            })
        };
        if message.lapsed > 0 {
            self.log_lapse(&limit, &key, &id, message.lapsed);
        }
        let outcome = self.charge_by(&[&limit], self.deadline(), made).await;
        let now_ms = self.uptime_ms();
        let label = {
            let mut shard = self.purses.shard(&place);
            let Some(held) = shard.get_mut(&place) else { return };
            match &outcome {
                Ok((currents, charge, charged)) => {
                    let meter = charged.meters.first().map(|found| &found.meter);
                    let amount = meter.and_then(|meter| meter.row(&id)).map_or(0, |row| row.amount);
                    let rule = &charge.claims[0].rule;
                    if let (Some(meter), Some(current)) = (meter, currents.first()) {
                        let definition = &current.defined.definition;
                        self.note_remaining(&limit, definition, &place, meter.remaining(rule));
                        let reset_at_ms = now_ms + meter.reset_ms(rule);
                        held.store = Seen { remaining: meter.remaining(rule), reset_at_ms };
                        self.log_lease_message(&limit, &key, &charge.claims[0], meter);
                    }
                    held.purse.heard(&held.till, message.sequence, amount, &held.terms);
                    self.metrics.lease_size.observe(amount as f64);
                    if amount > message.kept { "granted" } else { "nothing" }
                }
                Err(_) => {
                    held.purse.unheard(&held.till, message.sequence, now_ms, &held.terms);
                    "store_failure"
                }
            }
        };
        Metrics::count(&self.metrics.lease_renewals, label);
        answered.notify_waiters();
    }
}
