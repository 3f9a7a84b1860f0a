//! Leased and approximate limits at a node (M2, M4): spent out of what was debited at the store before, without asking.
//!
//! A key that is used more than once gets a purse; two, if those who aren't known have a mechanism of their own and it is used as both.
//! While there is enough in it a check is a lock on a shard of a map. What to do
//! otherwise is the core's to say (`baton_core::limit::holder`); here is who asks, and who waits. A node that drains asks for
//! nothing more: what it were given then would be burned with it.

use super::calls::{CheckCall, LimitError};
use super::definitions::Current;
use super::held::{Whose, class};
use super::purses::Sought;
use crate::engine::Node;
use crate::metrics::Metrics;
use baton_core::limit::holder::{Seen, Step, WAITS_MAX, Waits, taken, terms};
use baton_core::limit::purse::{Message, Terms};
use baton_core::limit::till::Taken;
use baton_core::limit::{Mechanism, meter_key};
use baton_core::meter::{Claim, RowClaim, RowKind, Take};
use baton_store::Charge;
use std::sync::Arc;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

/// Of which purse something was spent that is left open, and after which of its messages.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    purse: u32,
    sequence: u64,
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
        /// To decide it with, if it is of several.
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
    Renew(Whose, Message),
}

impl Node {
    /// Spends from the key's purse, if it has one or should get one. Of one check of several that is left open until all are decided.
    pub(super) async fn spend(
        self: &Arc<Self>,
        call: &CheckCall,
        current: &Current,
        metered: &str,
        is_alone: bool,
        until: Instant,
    ) -> Local {
        let Some(terms) = terms(&current.defined.definition, metered, call.identity) else { return ASK };
        let sought = self.purse_of(call, current, metered);
        for had in 0..=WAITS_MAX {
            match self.next_step(call, current, (&sought, is_alone), terms, had) {
                Next::Done(local) => return local,
                Next::Wait(answered) => {
                    if tokio::time::timeout_at(until, answered).await.is_err() {
                        return ASK;
                    }
                }
                Next::Renew(whose, message) => {
                    // By itself, so that a caller that goes away doesn't leave others waiting.
                    if tokio::spawn(self.clone().renew(whose, message)).await.is_err() {
                        return ASK;
                    }
                }
            }
        }
        ASK
    }

    /// Spends what is there, if nobody has to look at the purse first. What is left, and in how many milliseconds all of it is available
    /// again.
    pub(super) fn spend_now(
        self: &Arc<Self>,
        call: &CheckCall,
        current: &Current,
        now_ms: u64,
    ) -> Option<(u64, u64)> {
        let sought = self.purse_of(call, current, &call.key);
        let mut shard = self.purses.shard(&sought);
        let held = shard.find(&sought)?;
        let is_approximate = current.defined.definition.mechanism == Mechanism::Approximate;
        let is_another = is_approximate && held.given.identity != call.identity;
        if held.given.defined.version != current.defined.version || is_another {
            return None;
        }
        let taken = held.till.take(call.cost, now_ms);
        if !matches!(taken, Taken::Yes | Taken::Last) {
            return None;
        }
        held.use_at(now_ms);
        if taken == Taken::Last && !self.is_draining() {
            let terms = held.terms();
            if let Some(message) = held.with(&terms, |holder| holder.replenish(now_ms)) {
                tokio::spawn(self.clone().renew(held.whose(), message));
            }
        }
        Some((held.left(now_ms), held.reset_ms(now_ms)))
    }

    fn next_step(
        self: &Arc<Self>,
        call: &CheckCall,
        current: &Current,
        (sought, is_alone): (&Sought<'_>, bool),
        terms: Terms,
        had: usize,
    ) -> Next {
        let now_ms = self.uptime_ms();
        let given = || self.purses.given(&call.limit, &current.defined, call.identity);
        let mut shard = self.purses.shard(sought);
        // Looked at while the shard is held: who gives everything back after the signal finds whatever was asked for before it.
        let may_ask = !self.is_draining();
        let Some(held) = shard.find(sought) else {
            // A key that comes once needs no lease.
            if may_ask && !shard.is_full() {
                self.purses.insert(&mut shard, sought, given(), now_ms);
            }
            return Next::Done(ASK);
        };
        held.use_at(now_ms);
        let reset_ms = held.reset_ms(now_ms);
        let most = if may_ask { WAITS_MAX } else { 0 };
        let is_outdated = held.given.defined.version != current.defined.version;
        if is_outdated && !held.purse.is_asking() {
            if had >= most {
                return Next::Done(ASK);
            }
            // What was given by another definition goes back, for as much by this one.
            held.follow(given());
            let message = held.with(&terms, |holder| holder.leave(true, now_ms));
            return Next::Renew(held.whose(), message);
        }
        // Who is known may have more than who isn't: whoever asks decides for what it asks for.
        let is_another = held.given.identity != call.identity;
        let terms = if is_outdated { Terms { size_max: terms.size_max, ..held.terms() } } else { terms };
        if is_another && !is_outdated && current.defined.definition.mechanism == Mechanism::Approximate {
            held.given = given();
        }
        let waits = Waits { had, most };
        let step = held.with(&terms, |holder| match is_alone {
            true => holder.check(call.cost, now_ms, waits),
            false => holder.check_of_several(call.cost, now_ms, waits),
        });
        if let Some(message) = step.beside() {
            tokio::spawn(self.clone().renew(held.whose(), message));
        }
        match step {
            Step::Spent { sequence, .. } => {
                let remaining = held.left(now_ms);
                let ticket = Ticket { purse: held.number, sequence };
                Next::Done(Local::Spent { remaining, reset_ms, renewed: had > 0, ticket })
            }
            Step::Refused { retry_at_ms } => {
                let retry_after_ms = retry_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms).max(1));
                Next::Done(Local::Refused { retry_after_ms, reset_ms })
            }
            Step::Wait => Next::Wait(held.next_answer()),
            Step::Renew(message) => Next::Renew(held.whose(), message),
            Step::Ask { is_low, .. } => Next::Done(Local::Ask { is_low }),
        }
    }

    /// What a key's meter showed when the store decided a check, and whether it said no: for a moment that stands for all.
    pub(super) fn note_seen(&self, sought: &Sought<'_>, seen: Seen, refused: Option<(u64, Option<u64>)>) {
        let now_ms = self.uptime_ms();
        if let Some(held) = self.purses.shard(sought).find(sought) {
            let terms = held.terms();
            held.with(&terms, |holder| {
                holder.note_left(seen.left);
                if let Some((cost, retry_ms)) = refused {
                    holder.note_refusal(cost, retry_ms, seen.stands_ms, now_ms);
                }
            });
        }
    }

    /// What was spent for one check of several is spent for good, or put back.
    pub(super) fn decided(&self, sought: &Sought<'_>, cost: u64, ticket: Ticket, is_spent: bool) {
        let now_ms = self.uptime_ms();
        if let Some(held) = self.purses.shard(sought).find(sought)
            && held.number == ticket.purse
        {
            held.purse.decided(&held.till, cost, ticket.sequence, is_spent, now_ms);
        }
    }

    /// Whose purse a check is about.
    pub(super) fn purse_of<'a>(
        &self,
        call: &'a CheckCall,
        current: &Current,
        metered: &'a str,
    ) -> Sought<'a> {
        let class = class(&current.defined.definition, call.identity);
        self.purses.sought(&call.limit, metered, class)
    }

    pub(super) fn has_purse(&self, sought: &Sought<'_>) -> bool {
        self.purses.shard(sought).find(sought).is_some()
    }

    /// What the row of a purse is called at the store: this node's name is of this run.
    pub(super) fn row_id(&self, number: u32) -> String {
        format!("{:016x}.{number:08x}", self.id.0)
    }

    /// Says to the store what became of a lease, and hears what it has now.
    pub(super) async fn renew(self: Arc<Self>, Whose { limit, key, class }: Whose, message: Message) {
        let sought = self.purses.sought(&limit, &key, class);
        let Some(number) = self.purses.shard(&sought).find(&sought).map(|held| held.number) else { return };
        let (id, place) = (self.row_id(number), meter_key(&limit, &key));
        let made = |currents: &[Current]| {
            let current = currents[0].clone().of(class);
            // It is still used: checks don't say so while there is something to spend.
            self.limit_keys.metered(&limit, &current.defined.definition, &key);
            let is_leased = terms(&current.defined.definition, &key, class).is_some();
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
                claims: vec![Claim { key: place.clone(), rule, take, row: Some(row) }],
                memo: None,
            })
        };
        if message.lapsed > 0 {
            self.log_lapse(&limit, &key, &id, message.lapsed);
        }
        let outcome = self.charge_by(&[&limit], self.deadline(), made).await;
        let now_ms = self.uptime_ms();
        let (label, answered) = {
            let mut shard = self.purses.shard(&sought);
            let Some(held) = shard.find(&sought) else { return };
            let terms = held.terms();
            let label = match &outcome {
                Ok((currents, charge, charged)) => {
                    let meter = charged.meters.first().map(|found| &found.meter);
                    let amount = meter.and_then(|meter| meter.row(&id)).map_or(0, |row| row.amount);
                    let rule = &charge.claims[0].rule;
                    let seen = meter.map(|meter| Seen::of(meter, rule)).unwrap_or_default();
                    if let (Some(meter), Some(current)) = (meter, currents.first()) {
                        let definition = &current.defined.definition;
                        self.note_remaining(&limit, definition, &place, seen.remaining);
                        held.hear(seen.remaining, meter.reset_ms(rule), now_ms);
                        self.log_lease_message(&limit, &key, &charge.claims[0], meter);
                    }
                    held.with(&terms, |holder| holder.heard(message.sequence, amount, seen, now_ms));
                    self.metrics.lease_size.observe(amount as f64);
                    if amount > message.kept { "granted" } else { "nothing" }
                }
                Err(_) => {
                    held.with(&terms, |holder| holder.unheard(message.sequence, now_ms));
                    "store_failure"
                }
            };
            (label, held.who_waits())
        };
        Metrics::count(&self.metrics.lease_renewals, label);
        if let Some(answered) = answered {
            answered.notify_waiters();
        }
    }
}
