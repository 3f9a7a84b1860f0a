//! One node's way to the store. What is sent travels by itself: giving up on an answer doesn't call it back.

use super::faults::{Fate, Faults, Plan};
use super::history::What;
use super::{Simulated, state};
use crate::dice::Dice;
use baton_core::{Bytes, Commit, Key, Outcome};
use baton_store::watch::{Change, Hub, Watch};
use baton_store::{Guarantees, Page, Range, Reading, Reason, Store, StoreError, StoreFuture, Usage};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;

/// A node's handle on the simulated store.
pub struct Node {
    store: Simulated,
    way: Arc<Way>,
}

/// What is between a node and the store.
pub(super) struct Way {
    pub number: u32,
    hub: Hub,
    expirations: Hub,
    condition: Mutex<Condition>,
}

struct Condition {
    faults: Faults,
    dice: Dice,
    is_dead: bool,
    /// Hints got lost, and the watchers don't know yet.
    owes_lost: bool,
    owes_lost_expirations: bool,
}

impl Way {
    pub fn new(number: u32, faults: Faults, dice: Dice) -> Self {
        let condition =
            Condition { faults, dice, is_dead: false, owes_lost: false, owes_lost_expirations: false };
        let condition = Mutex::new(condition);
        Self { number, hub: Hub::default(), expirations: Hub::default(), condition }
    }

    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().expect("no panic while held")
    }

    fn is_dead(&self) -> bool {
        self.condition().is_dead
    }

    pub fn hint(&self, changes: &[Change]) {
        if self.hub.is_watched() {
            self.publish(&self.hub, changes, |condition| &mut condition.owes_lost);
        }
    }

    pub fn hint_expired(&self, changes: &[Change]) {
        self.publish(&self.expirations, changes, |condition| &mut condition.owes_lost_expirations);
    }

    fn publish(&self, hub: &Hub, changes: &[Change], owes_lost: impl Fn(&mut Condition) -> &mut bool) {
        let mut condition = self.condition();
        if condition.is_dead {
            return;
        }
        let chance = condition.faults.hints_lost;
        if !changes.is_empty() && condition.dice.chance(chance) {
            *owes_lost(&mut condition) = true;
            return;
        }
        if std::mem::take(owes_lost(&mut condition)) {
            hub.publish(std::iter::once(Change::Lost));
        }
        hub.publish(changes.iter().cloned());
    }
}

impl Node {
    pub(super) fn new(store: Simulated, way: Arc<Way>) -> Self {
        Self { store, way }
    }

    /// Which node it is, as in the history.
    pub fn number(&self) -> u32 {
        self.way.number
    }

    /// Other faults from now on; what is under way keeps its fate.
    pub fn set_faults(&self, faults: Faults) {
        self.way.condition().faults = faults;
    }

    /// Cuts it off for good: nothing is answered any more. What is under way may arrive, late.
    pub fn kill(&self) {
        self.way.condition().is_dead = true;
        self.store.note(self.way.number, 0, What::Died);
    }

    /// A call's number and fate; none if it hangs for ever.
    fn plan(&self) -> Option<(u64, Plan)> {
        let mut condition = self.way.condition();
        if condition.is_dead {
            return None;
        }
        let Condition { faults, dice, .. } = &mut *condition;
        let plan = Plan::draw(faults, dice);
        drop(condition);
        self.store.count_call().map(|call| (call, plan))
    }

    /// What the node hears, unless it is dead by then.
    async fn hear<T>(&self, answer: oneshot::Receiver<T>) -> T {
        match answer.await {
            Ok(answer) if !self.way.is_dead() => answer,
            _ => pending().await,
        }
    }

    /// A call that changes nothing: it may be slow, and it may fail.
    async fn look<T>(&self, look: impl FnOnce(&Simulated) -> T) -> Result<T, StoreError> {
        let Some((_, plan)) = self.plan() else { return pending().await };
        let there = plan.arrives.unwrap_or(plan.answered).min(plan.answered);
        pass(there).await;
        let seen = look(&self.store);
        pass(plan.answered - there).await;
        if self.way.is_dead() {
            return pending().await;
        }
        match plan.fate {
            _ if self.way.condition().faults.spares_reads => Ok(seen),
            Fate::Told => Ok(seen),
            Fate::Refused => Err(refused()),
            Fate::Unknown => Err(unknown()),
        }
    }
}

/// One commit on its way, whoever still waits for it.
async fn travel(
    store: Simulated,
    way: Arc<Way>,
    call: u64,
    commit: Commit,
    plan: Plan,
    answer: oneshot::Sender<Result<Outcome, StoreError>>,
) {
    let mut answer = Some(answer);
    let mut tell = |outcome: Option<Outcome>| {
        let told = match (plan.fate, outcome) {
            (Fate::Told, Some(outcome)) => Ok(outcome),
            (Fate::Refused, _) => Err(refused()),
            _ => Err(unknown()),
        };
        if matches!(told, Err(StoreError::Unknown { .. })) {
            store.note(way.number, call, What::ToldUnknown);
        }
        // Nobody may be waiting any more.
        answer.take().map(|answer| answer.send(told).is_ok());
    };
    match plan.arrives {
        None => {
            pass(plan.answered).await;
            store.note(way.number, call, What::NeverArrived { commit });
            tell(None);
        }
        Some(arrives) if arrives <= plan.answered => {
            let outcome = arrive(&store, &way, call, commit, arrives, plan.after_death).await;
            pass(plan.answered - arrives).await;
            if outcome.is_some() {
                tell(outcome);
            }
        }
        Some(arrives) => {
            pass(plan.answered).await;
            tell(None);
            arrive(&store, &way, call, commit, arrives - plan.answered, plan.after_death).await;
        }
    }
}

/// Applies a commit when it arrives. If its node has died meanwhile, that is later, or never.
async fn arrive(
    store: &Simulated,
    way: &Way,
    call: u64,
    commit: Commit,
    after: Duration,
    after_death: Option<Duration>,
) -> Option<Outcome> {
    pass(after).await;
    if way.is_dead() {
        match after_death {
            None => {
                store.note(way.number, call, What::NeverArrived { commit });
                return None;
            }
            Some(later) => pass(later).await,
        }
    }
    Some(store.apply(way.number, call, &commit))
}

async fn pass(time: Duration) {
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}

fn refused() -> StoreError {
    StoreError::NotApplied { reason: Reason::Unavailable, detail: "simulated".into() }
}

fn unknown() -> StoreError {
    StoreError::Unknown { detail: "simulated".into() }
}

impl Store for Node {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(async move {
            state::validate(&commit)?;
            let Some((call, plan)) = self.plan() else { return pending().await };
            let (answer, answered) = oneshot::channel();
            tokio::spawn(travel(self.store.clone(), self.way.clone(), call, commit, plan, answer));
            self.hear(answered).await
        })
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(self.look(move |store| {
            let now = store.now();
            store.lock().state.read(&keys, now, store.wall(now))
        }))
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(self.look(move |store| {
            let now = store.now();
            store.lock().state.scan(&range, limit, now, store.wall(now))
        }))
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.way.hub.subscribe(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.way.expirations.subscribe(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            store: "simulated",
            shared: self.store.shared.has_many_nodes,
            answers_always: false,
            charge_spans_groups: false,
            ttl_min: Duration::from_millis(1),
            ttl_granularity: Duration::from_millis(1),
            on_crash: "there is nothing to crash",
            on_failover: "there is no replica",
            on_partition: "there is one store, and who can't reach it hears so",
            on_clock_step: "there is one clock",
            warnings: Vec::new(),
        }
    }

    fn usage(&self) -> Usage {
        let records = self.store.lock().state.count();
        Usage { records, used_bytes: 0, budget_bytes: 1 }
    }
}
