//! What happens to a check that the store can't decide: as its definition says (`onFailure`), visibly, and within a stated bound.
//!
//! A node counts for itself then, with the same function as the store, on a meter in memory that has its share of the limit. What it
//! admits it owes the store, and writes there when the store is back. The meter stays for a while after that: an
//! outage that comes and goes doesn't bring a fresh share each time.
//!
//! # Layout
//! - `table`: what is known of keys, and its bounds
//! - `share`: how much a node may admit by itself
//! - `snapshot`: what remains of quotas, every minute
//! - `debts`: what is owed to the store, on disk and until it is counted there
//! - `repeats`: what was answered under a `requestId`; `turns`: the same one, sent while it is being decided

mod debts;
mod repeats;
mod share;
mod snapshot;
mod table;
mod turns;

pub(crate) use debts::{keep, keep_synced, settle_all};
pub(crate) use snapshot::keep_snapshots;

use super::calls::{Answered, CheckCall, Checked, Denial, LimitError, Source};
use super::check::Identity;
use super::definitions::Current;
use crate::engine::Node;
use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::peers::Remained;
use crate::state::{SpoolError, State};
use baton_core::limit::{Definition, Policy, meter_key, overflow_key};
use baton_core::meter::{Claim, Effect, Meter, Rule, Take, charge};
use baton_core::{Key, Name};
use debts::Admission;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use table::Table;
use tokio::time::Instant;
use turns::{Turn, Turns};

/// When to come back to a store that is gone.
const RETRY_MS: u64 = 1_000;

/// How much longer than for the store a call waits for another one of the same request.
const TURN_MARGIN: Duration = Duration::from_millis(500);

/// What a node counts for itself.
#[derive(Default)]
pub(crate) struct Fallbacks {
    table: Mutex<Table>,
    turns: Turns,
}

impl Fallbacks {
    /// With what nodes that are gone have left in a state directory; `name` is nobody else's there.
    pub fn new(state: Option<&State>, name: u64) -> Self {
        let mut table = Table::default();
        if let Some(state) = state {
            table.adopt(state, name);
        }
        Self { table: Mutex::new(table), turns: Turns::default() }
    }

    /// To decide a request that may come twice at once.
    pub async fn turn(&self, request: [u8; 16], until: Instant) -> Result<Turn<'_>, Failure> {
        // Who has it is done by when it had to be, which is about now, if both came at once. What it came to this one can't say.
        self.turns.take(request, until + TURN_MARGIN).await.ok_or(Failure::Unavailable { unknown: true })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no panic while held")
    }
}

/// Whether a failure is the store's, and so a policy's matter.
fn is_outage(failure: Failure) -> bool {
    matches!(failure, Failure::Unavailable { .. } | Failure::Full)
}

/// Whether what remained at the store is divided in an outage.
fn divides_what_remained(definition: &Definition) -> bool {
    matches!(definition.on_failure, Policy::Local | Policy::Snapshot)
}

/// What one check of several does, if all pass.
struct Step<'a> {
    limit: &'a Name,
    place: Key,
    metered: &'a str,
    granted: u64,
    meter: Meter,
    window_ms: u64,
    /// Whether it has to be on disk before anybody hears yes.
    must_be_written: bool,
}

impl Node {
    /// Remembers what remains, for policies that divide that.
    pub(super) fn note_remaining(&self, name: &Name, definition: &Definition, place: &Key, remaining: u64) {
        self.note_remained(name, definition, place, Remained { amount: remaining, ago_ms: 0 });
    }

    /// The same, of what was heard a while ago.
    pub(super) fn note_remained(&self, name: &Name, definition: &Definition, place: &Key, said: Remained) {
        if !divides_what_remained(definition) {
            return;
        }
        let now_ms = self.uptime_ms();
        let heard_ms = now_ms.saturating_sub(said.ago_ms);
        let mut table = self.fallbacks.table();
        if !table.has_room(name, place, 0, now_ms) {
            return;
        }
        let own = table.entry(name, place);
        (own.used_ms, own.window_ms) = (now_ms, definition.window_ms);
        if own.remained.is_none_or(|(_, known_ms)| known_ms <= heard_ms) {
            own.remained = Some((said.amount, heard_ms));
        }
        // The outage is long over: the next one begins with what remained.
        if !own.counts(now_ms) {
            own.meter = None;
        }
    }

    /// What remained when this node heard of it last, for another that divides it too.
    pub(super) fn remained(&self, name: &Name, definition: &Definition, place: &Key) -> Option<Remained> {
        if !divides_what_remained(definition) {
            return None;
        }
        let (amount, heard_ms) = self.fallbacks.table().get(name, place)?.remained?;
        Some(Remained { amount, ago_ms: self.uptime_ms().saturating_sub(heard_ms) })
    }

    /// What this node has answered by itself before, if this is a repetition.
    pub(super) fn repeated(&self, request: &Identity) -> Result<Option<Answered>, LimitError> {
        let digest = request.memo.as_deref().unwrap_or_default();
        self.fallbacks.table().repeats.get(&request.id, digest, self.uptime_ms())
    }

    /// Decides without the store, if that is what failed and all definitions are known.
    pub(super) fn fall_back(
        &self,
        calls: &[CheckCall],
        request: Option<Identity>,
        only_looks: bool,
        error: LimitError,
    ) -> Result<Answered, LimitError> {
        let LimitError::Failed(failure) = error else { return Err(error) };
        if !is_outage(failure) {
            return Err(error);
        }
        let mut currents = Vec::with_capacity(calls.len());
        for call in calls {
            // What isn't known can't be read now: then nothing can be said.
            currents.push(self.known_definition(&call.limit).ok_or(error.clone())?);
        }
        // Looked for, decided and remembered under one lock: one whose caller has gone may still ask the store, for what is audited.
        let mut table = self.fallbacks.table();
        if let Some(Identity { id, memo: Some(digest), .. }) = &request
            && let Some(before) = table.repeats.get(id, digest, self.uptime_ms())?
        {
            return Ok(before);
        }
        let answered = self.decide_here(&mut table, calls, &currents, only_looks);
        if let Some(Identity { id, memo: Some(digest), .. }) = request
            && answered.allowed
        {
            table.repeats.remember(id, digest, answered.clone(), self.uptime_ms());
        }
        Ok(answered)
    }

    /// Remembers what was admitted without the store under a `requestId`.
    pub(super) fn remember(&self, request: Identity, answered: &Answered) {
        if let Identity { id, memo: Some(digest), .. } = request
            && answered.allowed
        {
            let mut table = self.fallbacks.table();
            table.repeats.remember(id, digest, answered.clone(), self.uptime_ms());
        }
    }

    fn decide_here(
        &self,
        table: &mut Table,
        calls: &[CheckCall],
        currents: &[Current],
        only_looks: bool,
    ) -> Answered {
        let now_ms = self.now().0;
        let mut steps: Vec<Step> = Vec::with_capacity(calls.len());
        let (mut checks, mut refused) = (Vec::with_capacity(calls.len()), None);
        for (index, (call, current)) in calls.iter().zip(currents).enumerate() {
            let definition = &current.defined.definition;
            Metrics::count(&self.metrics.fallbacks, definition.on_failure.as_str());
            let (metered, place) = self.place_of(table, call, definition, steps.len());
            let rule = self.share_of(current, metered);
            let effect = rule.as_ref().and_then(|rule| {
                // Two that share a meter are counted on it one after the other.
                let counted = steps.iter().rev().find(|step| step.place == place);
                let own = table.get(&call.limit, &place);
                let before = match counted {
                    Some(step) => Some(step.meter.clone()),
                    None => match own.and_then(|own| own.meter.clone()) {
                        Some(meter) => Some(meter),
                        None => self.begin(definition, rule, own, now_ms)?,
                    },
                };
                let take = Take::Try(call.cost);
                charge(before, &Claim { key: place.clone(), rule: rule.clone(), take, row: None }, now_ms)
                    .ok()
            });
            let decided = effect.as_ref().zip(rule.as_ref());
            let (remaining, reset_ms) = decided
                .map_or((0, 0), |(effect, rule)| (effect.meter.remaining(rule), effect.meter.reset_ms(rule)));
            // A look is allowed if there is anything to be had.
            let is_short = match &effect {
                None => true,
                Some(_) if call.cost == 0 => remaining == 0,
                Some(effect) => effect.granted < call.cost,
            };
            let mut checked = Checked::plain(current, metered, remaining, reset_ms, Source::Fallback);
            checked.would_refuse = definition.dry_run && is_short;
            checks.push(checked);
            let refuses = is_short && !definition.dry_run && (call.cost > 0 || only_looks);
            if refuses && refused.is_none() {
                refused = Some((index, denial(decided, call.cost, definition.capacity_of(metered))));
            }
            if let Some(Effect { meter, granted, .. }) = effect {
                let must_be_written = definition.on_failure == Policy::Open;
                let (limit, window_ms) = (&call.limit, definition.window_ms);
                steps.push(Step { limit, place, metered, granted, meter, window_ms, must_be_written });
            }
        }
        if refused.is_none()
            && let Err(error) = self.admit(table, steps)
        {
            self.metrics.spool_refusals.inc();
            if !std::mem::replace(&mut table.debts.is_told, true) {
                tracing::error!(%error, "nothing is admitted that would have to be counted afterwards");
            }
            let is_open = |current: &Current| current.defined.definition.on_failure == Policy::Open;
            let open = currents.iter().position(is_open).unwrap_or_default();
            refused = Some((open, Denial { reason: "store_unavailable", retry_after_ms: Some(RETRY_MS) }));
        }
        Answered { allowed: refused.is_none(), indices: (0..checks.len()).collect(), checks, refused }
    }

    /// Whose meter is counted on: the key's own, or the one that is shared by those for whom there is no room.
    fn place_of<'a>(
        &self,
        table: &mut Table,
        call: &'a CheckCall,
        definition: &Definition,
        coming: usize,
    ) -> (&'a str, Key) {
        let metered = self.limit_keys.metered(&call.limit, definition, &call.key);
        let place = meter_key(&call.limit, metered);
        if table.has_room(&call.limit, &place, coming, self.uptime_ms()) {
            (metered, place)
        } else {
            (overflow_key(), meter_key(&call.limit, overflow_key()))
        }
    }

    /// Writes down what is admitted, and counts it.
    fn admit(&self, table: &mut Table, steps: Vec<Step<'_>>) -> Result<(), SpoolError> {
        let spent: Vec<_> = steps.iter().filter(|step| step.granted > 0).collect();
        let admissions: Vec<_> = spent
            .iter()
            .map(|step| Admission {
                limit: step.limit,
                key: step.metered,
                amount: step.granted,
                debt: table.get(step.limit, &step.place).and_then(|own| own.debt),
            })
            .collect();
        let must = spent.iter().any(|step| step.must_be_written);
        let numbers = if spent.is_empty() {
            Vec::new()
        } else {
            table.debts.admit(&admissions, must, || self.random.bytes())?
        };
        for (step, number) in spent.iter().zip(numbers) {
            table.entry(step.limit, &step.place).debt = Some(number);
        }
        let uptime_ms = self.uptime_ms();
        for Step { limit, place, meter, window_ms, .. } in steps {
            let own = table.entry(limit, &place);
            (own.meter, own.window_ms) = (Some(meter), window_ms);
            (own.used_ms, own.counted_ms) = (uptime_ms, uptime_ms);
        }
        self.show_debts(&table.debts);
        Ok(())
    }
}

/// Why this node admits no more, and when it may: by its own meter; or, if it is more than its share ever has, when the store is
/// back. Never, if it is more than the whole limit has.
fn denial(decided: Option<(&Effect, &Rule)>, cost: u64, capacity: u64) -> Denial {
    let Some((effect, rule)) = decided else {
        return Denial { reason: "store_unavailable", retry_after_ms: Some(RETRY_MS) };
    };
    let by_the_store = (cost <= capacity).then_some(RETRY_MS);
    let retry_after_ms = effect.meter.retry_ms(rule, cost.max(1)).or(by_the_store);
    Denial { reason: "local_budget_exhausted", retry_after_ms }
}
