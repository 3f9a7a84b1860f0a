//! Workers that wait for runs of their queue.
//!
//! All workers of a queue on a node share a lane: what is known to be ready, from a look at every group and from the store's hints after
//! it. Each run that is known is offered to one of them at a time; whether it is still to be had is for the commit to say, since
//! other nodes offer it too. A lane lasts a while longer than its last worker, so that one that asks again and again doesn't have everything
//! looked at each time.

use super::attempts::{Claim, Claimed};
use super::calls::JobError;
use crate::engine::{Engine, Node};
use crate::failure::Failure;
use baton_core::job::RunId;
use baton_core::job::place::{ready_entry, ready_prefix};
use baton_core::{Group, WallTime};
use baton_store::Range;
use baton_store::watch::{Change, Watch};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Queues that workers of one node wait for at a time; beyond it they are told to come back.
const LANES_MAX: usize = 1_024;
/// Runs that are known of a queue. When more are ready, the earliest are known, and the rest is looked for when those are gone.
const KNOWN_MAX: usize = 1_024;
/// Records read at once, and groups.
const PAGE: usize = 64;
const GROUPS: usize = 16;
/// How often everything is looked at, should a hint have got lost.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Looking at all because of what happened is at least this much after the last time.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// How long a lane lasts without a worker.
const LINGER: Duration = Duration::from_secs(30);

/// The queues that somebody on this node waits for.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<HashMap<(String, String), Arc<Lane>>>);

/// A run that is ready: since when, and which.
type Entry = (WallTime, RunId);

/// What the workers of a queue share.
#[derive(Default)]
struct Lane {
    known: Mutex<Known>,
    /// Something may be ready.
    something: Notify,
    /// Everything has been looked at once.
    is_scanned: AtomicBool,
    /// Everything has to be looked at.
    again: Notify,
}

#[derive(Default)]
struct Known {
    ready: BTreeSet<Entry>,
    /// There was no room for all of them.
    is_partial: bool,
    waiting: usize,
    idle_since: Option<Instant>,
}

impl Lane {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while held")
    }

    fn add(&self, entry: Entry) {
        let mut known = self.known();
        known.ready.insert(entry);
        if known.ready.len() > KNOWN_MAX {
            known.ready.pop_last();
            known.is_partial = true;
        }
        drop(known);
        self.something.notify_waiters();
    }

    /// The earliest, for one worker.
    fn take(&self) -> Option<Entry> {
        let mut known = self.known();
        let first = known.ready.pop_first();
        if first.is_none() && std::mem::take(&mut known.is_partial) {
            self.again.notify_one();
        }
        first
    }
}

/// A worker's place at a lane.
struct Place {
    lane: Arc<Lane>,
    /// What it tries to take: another may, if it goes away before that is known.
    trying: Option<Entry>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(entry) = self.trying.take() {
            self.lane.add(entry);
        }
        let mut known = self.lane.known();
        known.waiting -= 1;
        known.idle_since = (known.waiting == 0).then(Instant::now);
    }
}

impl Engine {
    /// Takes a run for a worker, and waits for one if there is none. Nothing if none came.
    pub async fn claim_next(&self, claim: &Claim, wait: Duration) -> Result<Option<Claimed>, JobError> {
        let node = &self.node;
        let give_up = Instant::now() + wait.min(node.config.call_max);
        let mut place = node.place_at_lane(&claim.namespace, &claim.queue)?;
        let lane = place.lane.clone();
        loop {
            let heard = lane.something.notified();
            tokio::pin!(heard);
            heard.as_mut().enable();
            while let Some((due, run)) = lane.take() {
                place.trying = Some((due, run));
                let taken = self.clone().take_for(claim.clone(), due, run).await?;
                place.trying = None;
                if taken.is_some() {
                    return Ok(taken);
                }
            }
            // A first look is waited for, but not for longer than the store has to answer.
            let is_scanned = lane.is_scanned.load(Ordering::Relaxed);
            let until = if is_scanned { give_up } else { give_up + node.config.store_deadline };
            if Instant::now() >= until || node.is_draining() {
                return Ok(None);
            }
            tokio::select! {
                biased;
                () = heard => {}
                () = node.draining.wait() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Takes a run; if nobody waits for the answer any more, it goes back as if it had not been taken.
    async fn take_for(self, claim: Claim, due: WallTime, run: RunId) -> Result<Option<Claimed>, JobError> {
        let (say, said) = oneshot::channel();
        tokio::spawn(async move {
            let claimed = self.claim_run(&claim, due, run).await;
            if let Err(Ok(Some(claimed))) = say.send(claimed) {
                let until = Instant::now() + claim.ttl;
                self.node.give_run_back(claimed.begun.run, claimed.fencing, until).await;
            }
        });
        said.await.map_err(|_| Failure::Internal)?
    }
}

impl Node {
    fn place_at_lane(self: &Arc<Self>, namespace: &str, queue: &str) -> Result<Place, JobError> {
        let key = (namespace.to_owned(), queue.to_owned());
        let mut lanes = self.jobs.lanes.0.lock().expect("no panic while held");
        let lane = match lanes.get(&key) {
            Some(lane) => lane.clone(),
            None if lanes.len() >= LANES_MAX => return Err(Failure::Overloaded.into()),
            None => {
                let lane = Arc::new(Lane::default());
                lanes.insert(key.clone(), lane.clone());
                // The watch begins before the first look, so that nothing is missed in between.
                let watch = self.store.watch(ready_prefix(namespace, queue));
                tokio::spawn(keep(self.clone(), key, lane.clone(), watch));
                lane
            }
        };
        lane.known().waiting += 1;
        Ok(Place { lane, trying: None })
    }

    /// Ends a lane that nobody has waited at for a while; whether it did.
    fn end_lane(&self, key: &(String, String), lane: &Lane) -> bool {
        let mut lanes = self.jobs.lanes.0.lock().expect("no panic while held");
        let known = lane.known();
        let is_idle = known.waiting == 0 && known.idle_since.is_none_or(|since| since.elapsed() >= LINGER);
        if is_idle {
            lanes.remove(key);
        }
        is_idle
    }
}

/// Keeps a lane informed, until nobody waits at it or the node drains.
async fn keep(node: Arc<Node>, key: (String, String), lane: Arc<Lane>, mut watch: Watch) {
    let mut look_at = Instant::now();
    let mut hears = true;
    loop {
        if look_at <= Instant::now() {
            let is_whole = look(&node, &key, &lane).await;
            let pause = if is_whole { node.random.jittered(LOOK_EVERY) } else { LOOK_PAUSE };
            look_at = Instant::now() + pause;
            if is_whole {
                lane.is_scanned.store(true, Ordering::Relaxed);
                lane.something.notify_waiters();
            }
        }
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = lane.again.notified() => look_at = look_at.min(Instant::now() + LOOK_PAUSE),
            change = watch.next(), if hears => match change {
                None => hears = false,
                Some(Change::Lost) => look_at = look_at.min(Instant::now() + LOOK_PAUSE),
                Some(Change::Put { key, .. }) => {
                    if let Some((_, _, due, run)) = ready_entry(&key.name) {
                        lane.add((due, run));
                    }
                }
                Some(Change::Deleted { key, .. } | Change::Expired { key, .. }) => {
                    if let Some((_, _, due, run)) = ready_entry(&key.name) {
                        lane.known().ready.remove(&(due, run));
                    }
                }
            },
            () = tokio::time::sleep_until(look_at.min(Instant::now() + LINGER)) => {
                if node.end_lane(&key, &lane) {
                    return;
                }
            }
        }
    }
}

/// Looks at every group for what is ready; whether all could be asked.
async fn look(node: &Arc<Node>, (namespace, queue): &(String, String), lane: &Arc<Lane>) -> bool {
    let mut is_whole = true;
    let groups: Vec<Group> = Group::all().collect();
    for some in groups.chunks(GROUPS) {
        let mut asked = JoinSet::new();
        for group in some {
            let range = Range { group: *group, prefix: ready_prefix(namespace, queue), after: None };
            let node = node.clone();
            asked.spawn(async move { node.asked(node.store.scan(range, PAGE), node.deadline()).await });
        }
        while let Some(page) = asked.join_next().await {
            let Ok(Ok(page)) = page else {
                is_whole = false;
                continue;
            };
            for record in &page.records {
                if let Some((_, _, due, run)) = ready_entry(&record.key.name) {
                    lane.add((due, run));
                }
            }
            lane.known().is_partial |= page.more;
        }
    }
    is_whole
}
