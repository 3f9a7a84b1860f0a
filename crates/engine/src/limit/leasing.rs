//! Leased and approximate limits at a node (M2, M4): spent out of what was debited at the store before, without asking.
//!
//! A key that is used more than once gets a purse; two, if those who aren't known have a mechanism of their own and it is used as both.
//! While there is enough in it a check is a lock on a shard of a map. What to do
//! otherwise is the core's to say (`baton_core::limit::holder`); here is who asks, and who waits. A node that drains asks for
//! nothing more: what it were given then would be burned with it.

use super::calls::{CheckCall, LimitError};
use super::check::hex;
use super::definitions::Current;
use crate::engine::Node;
use crate::metrics::Metrics;
use baton_core::limit::holder::{Holder, Known, Seen, Step, WAITS_MAX, Waits, taken, terms};
use baton_core::limit::purse::{Message, Purse, Terms};
use baton_core::limit::till::Till;
use baton_core::limit::{Definition, Identity, Mechanism, meter_key};
use baton_core::meter::{Claim, RowClaim, RowKind, Take};
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
/// All purses of a node.
pub(crate) struct Purses {
    shards: Vec<Mutex<HashMap<PurseKey, Held>>>,
    hasher: RandomState,
}

impl Default for Purses {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

/// Whose purse it is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PurseKey {
    pub meter: Key,
    /// Of a definition that is the same for all, that of most.
    pub identity: Identity,
}

impl PurseKey {
    /// That of a check, by its definition.
    pub fn of(meter: Key, definition: &Definition, identity: Identity) -> Self {
        let identity = if definition.anonymous.is_some() { identity } else { Identity::default() };
        Self { meter, identity }
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
    store: Shown,
    used_ms: u64,
    known: Known,
}

impl Held {
    fn holder(&mut self) -> Holder<'_> {
        Holder { till: &self.till, purse: &mut self.purse, known: &mut self.known, terms: &self.terms }
    }
}

#[derive(Clone, Copy, Default)]
struct Shown {
    remaining: u64,
    reset_at_ms: u64,
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
    Ask {
        /// Because little is left of the limit.
        is_low: bool,
    },
}

const ASK: Local = Local::Ask { is_low: false };

enum Next {
    Done(Local),
    /// Somebody has asked already. It hears of everything that is told from now on.
    Wait(OwnedNotified),
    Renew(Message),
}

impl Purses {
    fn shard(&self, key: &PurseKey) -> MutexGuard<'_, HashMap<PurseKey, Held>> {
        let shard = self.hasher.hash_one(&key.meter.name) as usize % SHARDS;
        self.shards[shard].lock().expect("no panic while held")
    }

    /// What is to be said now, to give back what is idle or all there is. Forgets empty purses that nobody came back to.
    pub(super) fn leaving(
        &self,
        which: Leaving,
        now_ms: u64,
        is_anothers: impl Fn(&Key) -> bool,
    ) -> (Vec<(PurseKey, Message)>, Vec<Lapsed>) {
        let (mut leaving, mut lapsed) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            let mut shard = shard.lock().expect("no panic while held");
            shard.retain(|_, held| {
                let used_ms = held.used_ms;
                let is_kept = !held.holder().is_over(used_ms, now_ms);
                let amount = if is_kept { 0 } else { held.purse.lapse(&held.till, now_ms) };
                if amount > 0 {
                    let (limit, key, id) = (held.limit.clone(), held.key.clone(), held.id.clone());
                    lapsed.push(Lapsed { limit, key, id, amount });
                }
                is_kept
            });
            for (place, held) in shard.iter_mut() {
                let must_go = which == Leaving::All || (held.is_owned && is_anothers(&place.meter));
                leaving.extend(held.holder().look(must_go, now_ms).map(|message| (place.clone(), message)));
            }
        }
        (leaving, lapsed)
    }

    /// What an older definition of a limit than this version has given, to be given back.
    pub(super) fn outdated(&self, limit: &Name, version: Revision, now_ms: u64) -> Vec<(PurseKey, Message)> {
        let mut leaving = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().expect("no panic while held");
            let given = shard.iter_mut().filter(|(_, held)| held.version < version && held.limit == *limit);
            for (place, held) in given {
                leaving.extend(held.holder().look(true, now_ms).map(|message| (place.clone(), message)));
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

impl Node {
    /// Spends from the key's purse, if it has one or should get one.
    pub(super) async fn spend(
        self: &Arc<Self>,
        call: &CheckCall,
        current: &Current,
        metered: &str,
        until: Instant,
    ) -> Local {
        let Some(terms) = terms(&current.defined.definition, metered, call.identity) else { return ASK };
        let meter = meter_key(&call.limit, metered);
        let place = PurseKey::of(meter, &current.defined.definition, call.identity);
        for had in 0..=WAITS_MAX {
            match self.next_step(call, current, metered, &place, terms, had) {
                Next::Done(local) => return local,
                Next::Wait(answered) => {
                    if tokio::time::timeout_at(until, answered).await.is_err() {
                        return ASK;
                    }
                }
                Next::Renew(message) => {
                    // By itself, so that a caller that goes away doesn't leave others waiting.
                    let renewal = tokio::spawn(self.clone().renew(place.clone(), message));
                    if renewal.await.is_err() {
                        return ASK;
                    }
                }
            }
        }
        ASK
    }

    fn next_step(
        self: &Arc<Self>,
        call: &CheckCall,
        current: &Current,
        metered: &str,
        place: &PurseKey,
        terms: Terms,
        had: usize,
    ) -> Next {
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
                    store: Shown::default(),
                    used_ms: now_ms,
                    known: Known::default(),
                };
                shard.insert(place.clone(), held);
            }
            return Next::Done(ASK);
        };
        held.used_ms = now_ms;
        let reset_ms = held.store.reset_at_ms.saturating_sub(now_ms);
        let most = if may_ask { WAITS_MAX } else { 0 };
        if held.version != current.defined.version && !held.purse.is_asking() {
            if had >= most {
                return Next::Done(ASK);
            }
            // What was given by another definition goes back, for as much by this one.
            (held.version, held.terms, held.known) = (current.defined.version, terms, Known::default());
            held.is_owned = current.defined.definition.mechanism == Mechanism::Owned;
            return Next::Renew(held.holder().leave(true, now_ms));
        }
        // Who is known may have more than who isn't: whoever asks decides for what it asks for.
        held.terms.size_max = terms.size_max;
        let step = held.holder().check(call.cost, now_ms, Waits { had, most });
        if let Some(message) = step.beside() {
            tokio::spawn(self.clone().renew(place.clone(), message));
        }
        match step {
            Step::Spent { sequence, .. } => {
                let remaining = held.store.remaining + held.purse.balance(&held.till, now_ms);
                let ticket = Ticket { purse: held.number, sequence };
                Next::Done(Local::Spent { remaining, reset_ms, renewed: had > 0, ticket })
            }
            Step::Refused { retry_at_ms } => {
                let retry_after_ms = retry_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms).max(1));
                Next::Done(Local::Refused { retry_after_ms, reset_ms })
            }
            Step::Wait => Next::Wait(held.answered.clone().notified_owned()),
            Step::Renew(message) => Next::Renew(message),
            Step::Ask { is_low, .. } => Next::Done(Local::Ask { is_low }),
        }
    }

    /// What a key's meter showed when the store decided a check, and whether it said no: for a moment that stands for all.
    pub(super) fn note_seen(&self, place: &PurseKey, seen: Seen, refused: Option<(u64, Option<u64>)>) {
        let now_ms = self.uptime_ms();
        if let Some(held) = self.purses.shard(place).get_mut(place) {
            let mut holder = held.holder();
            holder.note_left(seen.left);
            if let Some((cost, retry_ms)) = refused {
                holder.note_refusal(cost, retry_ms, seen.stands_ms, now_ms);
            }
        }
    }

    /// Puts back what was spent for a check that didn't pass.
    pub(super) fn unspend(&self, place: &PurseKey, cost: u64, ticket: Ticket) {
        let now_ms = self.uptime_ms();
        if let Some(held) = self.purses.shard(place).get_mut(place)
            && held.number == ticket.purse
        {
            held.purse.unspend(&held.till, cost, ticket.sequence, now_ms);
        }
    }

    /// Says to the store what became of a lease, and hears what it has now.
    pub(super) async fn renew(self: Arc<Self>, place: PurseKey, message: Message) {
        let Some((limit, key, id, answered)) = self
            .purses
            .shard(&place)
            .get(&place)
            .map(|held| (held.limit.clone(), held.key.clone(), held.id.clone(), held.answered.clone()))
        else {
            return;
        };
        let made = |currents: &[Current]| {
            let current = currents[0].clone().of(place.identity);
            let is_leased = terms(&current.defined.definition, &key, place.identity).is_some();
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
            let take = if is_leased { taken(&message, &rule) } else { Take::Nothing };
            Ok::<_, LimitError>(Charge {
                claims: vec![Claim { key: place.meter.clone(), rule, take, row: Some(row) }],
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
                    let seen = meter.map(|meter| Seen::of(meter, rule)).unwrap_or_default();
                    if let (Some(meter), Some(current)) = (meter, currents.first()) {
                        let definition = &current.defined.definition;
                        self.note_remaining(&limit, definition, &place.meter, seen.remaining);
                        let reset_at_ms = now_ms + meter.reset_ms(rule);
                        held.store = Shown { remaining: seen.remaining, reset_at_ms };
                        self.log_lease_message(&limit, &key, &charge.claims[0], meter);
                    }
                    held.holder().heard(message.sequence, amount, seen, now_ms);
                    self.metrics.lease_size.observe(amount as f64);
                    if amount > message.kept { "granted" } else { "nothing" }
                }
                Err(_) => {
                    held.holder().unheard(message.sequence, now_ms);
                    "store_failure"
                }
            }
        };
        Metrics::count(&self.metrics.lease_renewals, label);
        answered.notify_waiters();
    }
}
