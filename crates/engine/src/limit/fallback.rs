//! What happens to a check that the store can't decide: as its definition says (`onFailure`), visibly, and within a stated bound.
//!
//! A node counts for itself then, with the same function as the store, on a meter in memory that has its share of the limit. What it
//! admits it owes the store, and writes there when the store is back. The meter stays for a while after that: an
//! outage that comes and goes doesn't bring a fresh share each time.

use super::calls::{Answered, CheckCall, Checked, Denial, LimitError, Source};
use super::definitions::Current;
use crate::engine::Node;
use crate::failure::Failure;
use crate::metrics::Metrics;
use baton_core::limit::{Definition, Policy, call_id, memo_key, meter_key};
use baton_core::meter::{Algorithm, Claim, Memo, Meter, Rule, Take, charge};
use baton_core::{Key, Name};
use baton_store::Charge;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Keys counted here at once. Beyond it nobody is admitted who isn't known.
const KEYS_MAX: usize = 100_000;
/// When to come back to a store that is gone.
const RETRY_MS: u64 = 1_000;
/// How often what is owed is offered to the store.
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// Debts settled at once.
const SETTLED_AT_ONCE: usize = 32;
/// How long the store remembers a debt that was settled.
const MEMORY_MS: u64 = 600_000;
/// A meter of one's own is kept this much longer than two windows.
const KEPT_MS: u64 = 60_000;

/// What a node counts for itself.
#[derive(Default)]
pub(crate) struct Fallbacks(Mutex<HashMap<Key, Own>>);

#[derive(Default)]
struct Own {
    /// Since the last outage began.
    meter: Option<Meter>,
    /// What remained when the store was last heard of.
    remained: Option<u64>,
    owed: Option<Owed>,
    /// When the meter was last counted on.
    counted_ms: u64,
    used_ms: u64,
    window_ms: u64,
}

impl Own {
    /// Until when it matters, if it was last used then.
    fn kept_ms(&self, used_ms: u64) -> u64 {
        used_ms.saturating_add(2 * self.window_ms).saturating_add(KEPT_MS)
    }
}

/// What was admitted here, and the store doesn't know of.
struct Owed {
    limit: Name,
    key: String,
    amount: u64,
    /// Under which it is settled, and how much of it: the same until the store has answered.
    offered: Option<([u8; 16], u64)>,
}

impl Fallbacks {
    fn own(&self) -> MutexGuard<'_, HashMap<Key, Own>> {
        self.0.lock().expect("no panic while held")
    }
}

/// Whether a failure is the store's, and so a policy's matter.
fn is_outage(failure: Failure) -> bool {
    matches!(failure, Failure::Unavailable { .. } | Failure::Full)
}

impl Node {
    /// Remembers what remains, for policies that divide that.
    pub(super) fn note_remaining(&self, definition: &Definition, place: &Key, remaining: u64) {
        if !matches!(definition.on_failure, Policy::Local | Policy::Snapshot) {
            return;
        }
        let mut all = self.fallbacks.own();
        if all.len() >= KEYS_MAX && !all.contains_key(place) {
            return;
        }
        let (own, now_ms) = (all.entry(place.clone()).or_default(), self.uptime_ms());
        (own.remained, own.used_ms, own.window_ms) = (Some(remaining), now_ms, definition.window_ms);
        // The outage is long over: the next one begins with what remained.
        if now_ms >= own.kept_ms(own.counted_ms) {
            own.meter = None;
        }
    }

    /// Decides without the store, if that is what failed and all definitions are known.
    pub(super) async fn fall_back(
        self: &Arc<Self>,
        calls: &[CheckCall],
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
        Ok(self.decide_here(calls, &currents))
    }

    fn decide_here(&self, calls: &[CheckCall], currents: &[Current]) -> Answered {
        let (now_ms, uptime_ms) = (self.now().0, self.uptime_ms());
        let mut all = self.fallbacks.own();
        let (mut checks, mut changed, mut refused) = (Vec::new(), Vec::new(), None);
        for (index, (call, current)) in calls.iter().zip(currents).enumerate() {
            let definition = &current.defined.definition;
            Metrics::count(&self.metrics.fallbacks, definition.on_failure.as_str());
            let place = meter_key(&call.limit, &call.key);
            let own = all.get(&place);
            let is_known = own.is_some() || all.len() + changed.len() < KEYS_MAX;
            let rule = self.share_of(current, &call.key).filter(|_| is_known);
            let effect = rule.as_ref().and_then(|rule| {
                let before = own.and_then(|own| own.meter.clone());
                let before =
                    before.or_else(|| self.begin(definition, rule, own.and_then(|own| own.remained), now_ms));
                let claim =
                    Claim { key: place.clone(), rule: rule.clone(), take: Take::Try(call.cost), row: None };
                charge(before, &claim, now_ms).ok()
            });
            let (remaining, reset_ms) = match (&effect, &rule) {
                (Some(effect), Some(rule)) => (effect.meter.remaining(rule), effect.meter.reset_ms(rule)),
                _ => (0, 0),
            };
            checks.push(Checked::plain(current, &call.key, remaining, reset_ms, Source::Fallback));
            let granted = effect.as_ref().map_or(0, |effect| effect.granted);
            let is_refused = granted < call.cost || effect.is_none();
            if is_refused && !definition.dry_run && refused.is_none() {
                let retry = effect.as_ref().zip(rule.as_ref());
                let denial = match retry {
                    None => Denial { reason: "store_unavailable", retry_after_ms: Some(RETRY_MS) },
                    Some((effect, rule)) => Denial {
                        reason: "local_budget_exhausted",
                        retry_after_ms: effect.meter.retry_ms(rule, call.cost),
                    },
                };
                refused = Some((index, denial));
            }
            if let Some(effect) = effect {
                changed.push((place, call, definition.window_ms, granted, effect.meter));
            }
        }
        if refused.is_none() {
            for (place, call, window_ms, granted, meter) in changed {
                let own = all.entry(place).or_default();
                (own.meter, own.window_ms) = (Some(meter), window_ms);
                (own.used_ms, own.counted_ms) = (uptime_ms, uptime_ms);
                if granted > 0 {
                    let owed = own.owed.get_or_insert_with(|| Owed {
                        limit: call.limit.clone(),
                        key: call.key.clone(),
                        amount: 0,
                        offered: None,
                    });
                    owed.amount = owed.amount.saturating_add(granted);
                }
            }
        }
        Answered { allowed: refused.is_none(), indices: (0..checks.len()).collect(), checks, refused }
    }

    /// By what this node counts for itself; nothing if it may admit nothing.
    fn share_of(&self, current: &Current, key: &str) -> Option<Rule> {
        let definition = &current.defined.definition;
        let rule = current.defined.rule(key, current.edges);
        let (amount, limit) = match definition.on_failure {
            Policy::Closed => return None,
            Policy::Open => definition.local_cap.map_or((rule.capacity, rule.limit), |cap| (cap, cap)),
            Policy::ClosedLocal | Policy::Local | Policy::Snapshot => {
                (self.part(definition, rule.capacity), self.part(definition, rule.limit).max(1))
            }
        };
        let counts = amount > 0 && rule.algorithm != Algorithm::InFlight;
        counts.then_some(Rule { limit, capacity: amount, ..rule })
    }

    /// This node's part of an amount: the parts of all nodes add up to it.
    fn part(&self, definition: &Definition, amount: u64) -> u64 {
        let (rank, count) = if self.is_shared { self.members.rank(self.id) } else { (0, 1) };
        let nodes = (count as u64).max(definition.expected_nodes.unwrap_or(1));
        amount / nodes + u64::from((rank as u64) < amount % nodes)
    }

    /// The meter at the begin of an outage: what was used by then stays used.
    fn begin(
        &self,
        definition: &Definition,
        rule: &Rule,
        remained: Option<u64>,
        now_ms: u64,
    ) -> Option<Meter> {
        if !matches!(definition.on_failure, Policy::Local | Policy::Snapshot) {
            return None;
        }
        let left = self.part(definition, remained?);
        let used = rule.capacity.saturating_sub(left);
        let place = Key::new(baton_core::Group(0), []);
        let claim = Claim { key: place, rule: rule.clone(), take: Take::Forced(used), row: None };
        charge(None, &claim, now_ms).ok().map(|effect| effect.meter)
    }

    /// Offers the store what is owed to it, some of it at a time, until it has all or is gone; forgets what is settled and old.
    async fn settle_debts(self: &Arc<Self>) {
        while self.settle_some_debts().await {}
    }

    /// Whether some were settled.
    async fn settle_some_debts(self: &Arc<Self>) -> bool {
        let now_ms = self.uptime_ms();
        let mut offers = Vec::new();
        {
            let mut all = self.fallbacks.own();
            all.retain(|_, own| own.owed.is_some() || now_ms < own.kept_ms(own.used_ms));
            for (place, own) in all.iter_mut() {
                if let Some(owed) = &mut own.owed
                    && offers.len() < SETTLED_AT_ONCE
                {
                    let (id, amount) =
                        *owed.offered.get_or_insert_with(|| (self.random.bytes(), owed.amount));
                    offers.push((place.clone(), owed.limit.clone(), owed.key.clone(), id, amount));
                }
            }
        }
        let mut has_settled = false;
        for (place, limit, key, id, amount) in offers {
            match self.settle_debt(&limit, &key, id, amount).await {
                // Of a limit that is gone nobody counts anything.
                Ok(()) | Err(LimitError::NotFound { .. }) => has_settled = true,
                // The store isn't back: the same is offered later.
                Err(LimitError::Failed(failure)) if is_outage(failure) => return false,
                // This one can't be settled now; those behind it can.
                Err(_) => continue,
            }
            let mut all = self.fallbacks.own();
            let Some(own) = all.get_mut(&place) else { continue };
            // Somebody else may have settled it, and there may be a newer one.
            let is_settled = own.owed.as_mut().is_some_and(|owed| {
                let is_this = owed.offered == Some((id, amount));
                if is_this {
                    owed.amount = owed.amount.saturating_sub(amount);
                    owed.offered = None;
                }
                is_this
            });
            own.owed.take_if(|owed| owed.amount == 0);
            self.metrics.overage.inc_by(if is_settled { amount } else { 0 });
        }
        has_settled
    }

    async fn settle_debt(
        self: &Arc<Self>,
        limit: &Name,
        key: &str,
        id: [u8; 16],
        amount: u64,
    ) -> Result<(), LimitError> {
        let made = |currents: &[Current]| {
            let current = &currents[0];
            let metered = self.limit_keys.metered(limit, &current.defined.definition, key);
            let place = meter_key(limit, metered);
            let rule = current.defined.rule(metered, current.edges);
            let take = Take::Forced(amount.min(rule.algorithm.amount_max(rule.window_ms)));
            let id = call_id(&[b"limit debt".as_slice(), &id]);
            let memo = Memo { key: memo_key(&place, &id), digest: super::check::hex(&id), ttl_ms: MEMORY_MS };
            Ok(Charge { claims: vec![Claim { key: place, rule, take, row: None }], memo: Some(memo) })
        };
        self.charge_by(&[limit], self.deadline(), made).await.map(drop)
    }
}

/// Settles debts until the node drains, and once more then.
pub(crate) async fn keep(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(SETTLE_EVERY) => {}
        }
        node.settle_debts().await;
    }
}

/// Before stopping.
pub(crate) async fn settle_all(node: &Arc<Node>) {
    node.settle_debts().await;
}
