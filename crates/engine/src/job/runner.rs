//! How a node runs what is its own to run: requests and commands.
//!
//! An attempt is recorded before it is handed over, with a lease that lasts as long as it may take, and a while. What there is no room
//! for waits in memory for a moment, in a queue with a bound; what waits too long goes back to the store, as if it had
//! not begun; and beyond the queue nothing is begun at all.

use super::calls::JobError;
use super::room::Room;
use crate::asleep::Moment;
use crate::engine::{Engine, Node};
use baton_core::Name;
use baton_core::WallTime;
use baton_core::job::place::lease_key;
use baton_core::job::{AttemptEnd, Begun, Definition, GRACE, RunId};
use baton_core::lock::FencingToken;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Attempts that a node makes or has waiting; beyond it runs stay in the store.
const BEGUN_MAX: usize = 16 * 1_024;
/// An attempt that wasn't made this long after it was begun goes back.
const BEGIN_WITHIN: Duration = Duration::from_secs(5);
/// What is under way when the node stops has this long to end.
const END_WITHIN: Duration = Duration::from_secs(5);
/// So many that aren't sent yet hold up nothing: a target that can't be reached has some all the time.
const FEW_UNSENT: usize = 64;
/// How long what ended waits to be said for the sake of more than that.
const SENT_WITHIN: Duration = Duration::from_millis(200);
/// Between tries to say how an attempt ended.
const SAY_AGAIN: Duration = Duration::from_millis(200);

/// How often it is looked whether what is under way was called off elsewhere; what takes less than that is never looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Leases read at once.
const PAGE: usize = 60;

/// An attempt of a run, to be made now and once.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its job.
    pub job: Name,
    /// Its run: the same for all attempts.
    pub run: RunId,
    /// From 1.
    pub attempt: u32,
    /// Higher than that of every earlier attempt.
    pub fencing: FencingToken,
    /// When the run was to begin.
    pub due: WallTime,
    /// What the job says.
    pub definition: Arc<Definition>,
    /// It has to be over then: nothing may be sent after it, since the run may then be somebody else's, or said to be lost.
    pub until: Instant,
    /// How long its lease lasts.
    lease: Duration,
    /// When its commit was sent.
    sent: Moment,
    sending: Arc<Sending>,
}

impl Attempt {
    /// Whether nothing may be sent or started any more. To be asked right before: timers are late if the process was stopped, and stand still
    /// while the machine sleeps.
    pub fn is_over(&self) -> bool {
        Instant::now() + self.sent.slept_since() >= self.until
    }

    /// Its request is on its way, or its command was started: whoever makes it says so (J12).
    pub fn is_sent(&self) {
        if self.sending.end() {
            self.sending.seconds.observe(self.sending.recorded.elapsed().as_secs_f64());
        }
    }
}

/// An attempt on its way from its record to its target.
#[derive(Debug)]
struct Sending {
    recorded: Instant,
    seconds: Histogram,
    unsent: Arc<Unsent>,
    is_over: AtomicBool,
}

impl Sending {
    /// It is on its way, or won't be; whether that is new.
    fn end(&self) -> bool {
        let is_first = !self.is_over.swap(true, Ordering::Relaxed);
        if is_first && self.unsent.count.fetch_sub(1, Ordering::AcqRel) == FEW_UNSENT + 1 {
            self.unsent.few.notify_waiters();
        }
        is_first
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.end();
    }
}

/// Attempts that are recorded, and not on their way yet.
#[derive(Default, Debug)]
struct Unsent {
    count: AtomicUsize,
    /// They have become few.
    few: Notify,
}

/// What came of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ran {
    /// It has ended.
    Ended(AttemptEnd),
    /// The target has taken it, and will say itself how it ended.
    Taken,
}

/// An attempt under way.
pub type Running<'a> = Pin<Box<dyn Future<Output = Ran> + Send + 'a>>;

/// Makes attempts: sends requests, starts commands. Dropped before its end, it stops.
pub trait Runner: Send + Sync + 'static {
    /// Makes one. It is dropped at `attempt.until`.
    fn run<'a>(&'a self, attempt: &'a Attempt) -> Running<'a>;

    /// Where an attempt goes to. What goes elsewhere isn't held up if nothing comes back from there.
    fn destination(&self, _: &Attempt) -> Option<String> {
        None
    }

    /// Where attempts are made, if that is elsewhere than where the engine is.
    fn runtime(&self) -> Option<&Handle> {
        None
    }
}

/// What a node runs.
pub(crate) struct Dispatch {
    runner: OnceLock<Arc<dyn Runner>>,
    /// Where the engine is.
    home: OnceLock<Handle>,
    begun: AtomicUsize,
    room: Room,
    /// To be told when their run is called off; as many as are begun.
    under_way: Mutex<BTreeMap<RunId, UnderWay>>,
    idle: Notify,
    unsent: Arc<Unsent>,
}

#[derive(Clone)]
struct UnderWay {
    told: Arc<Notify>,
    fencing: FencingToken,
    since: Instant,
}

impl Default for Dispatch {
    fn default() -> Self {
        Self {
            runner: OnceLock::new(),
            home: OnceLock::new(),
            begun: AtomicUsize::new(0),
            room: Room::default(),
            under_way: Mutex::default(),
            idle: Notify::new(),
            unsent: Arc::default(),
        }
    }
}

impl Dispatch {
    /// Whether one more may be begun.
    pub fn has_room(&self) -> bool {
        self.begun.load(Ordering::Relaxed) < BEGUN_MAX
    }

    /// Goes on where the engine is: decisions and commits aren't for the threads on which attempts are made.
    pub fn spawn_at_home(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.home.get() {
            Some(home) => drop(home.spawn(task)),
            None => drop(tokio::spawn(task)),
        }
    }

    /// Goes on where attempts are made.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.runner.get().and_then(|runner| runner.runtime()) {
            Some(runtime) => drop(runtime.spawn(task)),
            None => drop(tokio::spawn(task)),
        }
    }

    /// A run was called off: if it is here it stops.
    pub fn call_off(&self, run: RunId) {
        let under_way = self.under_way.lock().expect("no panic while held");
        if let Some(found) = under_way.get(&run) {
            found.told.notify_one();
        }
    }

    fn enter(&self, run: RunId, fencing: FencingToken) -> Arc<Notify> {
        let told = Arc::new(Notify::new());
        self.begun.fetch_add(1, Ordering::Relaxed);
        let entered = UnderWay { told: told.clone(), fencing, since: Instant::now() };
        self.under_way.lock().expect("no panic while held").insert(run, entered);
        told
    }

    fn sending(&self, seconds: Histogram) -> Arc<Sending> {
        self.unsent.count.fetch_add(1, Ordering::AcqRel);
        let (unsent, is_over) = (self.unsent.clone(), AtomicBool::new(false));
        Arc::new(Sending { recorded: Instant::now(), seconds, unsent, is_over })
    }

    /// Waits until most of what is recorded is on its way, but not for long: what is due comes before what is done (J12).
    pub async fn most_are_sent(&self) {
        let few = self.unsent.few.notified();
        if self.unsent.count.load(Ordering::Acquire) > FEW_UNSENT {
            drop(tokio::time::timeout(SENT_WITHIN, few).await);
        }
    }

    /// What has been under way for a while, in the order of groups.
    fn lasting(&self) -> Vec<(RunId, UnderWay)> {
        let under_way = self.under_way.lock().expect("no panic while held");
        let lasts = |one: &UnderWay| one.since.elapsed() >= LOOK_EVERY;
        under_way.iter().filter(|(_, one)| lasts(one)).map(|(run, one)| (*run, one.clone())).collect()
    }

    fn leave(&self, run: RunId, told: &Arc<Notify>) {
        let mut under_way = self.under_way.lock().expect("no panic while held");
        // A later attempt of the same run may be here already.
        if under_way.get(&run).is_some_and(|other| Arc::ptr_eq(&other.told, told)) {
            under_way.remove(&run);
        }
        drop(under_way);
        if self.begun.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.idle.notify_waiters();
        }
    }

    /// Before the node stops: what is under way has a moment to end. What doesn't is noticed when its lease runs out.
    pub async fn settled(&self) {
        let until = Instant::now() + END_WITHIN;
        loop {
            let idle = self.idle.notified();
            if self.begun.load(Ordering::Relaxed) == 0 || timeout_at(until, idle).await.is_err() {
                return;
            }
        }
    }
}

impl Engine {
    /// From now on this is how attempts are made; the first one said counts. Must be called within the engine's Tokio runtime.
    pub fn set_runner(&self, runner: Arc<dyn Runner>) {
        let dispatch = &self.node.jobs.dispatch;
        drop(dispatch.home.set(Handle::current()));
        drop(dispatch.runner.set(runner));
    }
}

/// Stops what was called off at another node, or gave way to the job's next time: its lease is gone. A lease that can't be looked at is
/// taken to be there.
pub(crate) async fn keep(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(node.random.jittered(LOOK_EVERY)) => {}
        }
        let lasting = node.jobs.dispatch.lasting();
        for some in lasting.chunk_by(|(one, _), (other, _)| one.uid.group() == other.uid.group()) {
            for some in some.chunks(PAGE) {
                let keys = some.iter().map(|(run, _)| lease_key(*run)).collect();
                let Ok(reading) = node.read(keys, node.deadline()).await else { continue };
                for ((_, one), lease) in some.iter().zip(reading.records) {
                    if lease.is_none_or(|lease| FencingToken::from(lease.created) != one.fencing) {
                        one.told.notify_one();
                    }
                }
            }
        }
    }
}

impl Node {
    /// Makes an attempt that was begun by a commit which was sent at `sent`.
    pub(super) fn dispatch(self: &Arc<Self>, job: &Name, begun: Begun, fencing: FencingToken, sent: &Moment) {
        let attempt = Attempt {
            job: job.clone(),
            run: begun.run,
            attempt: begun.attempt,
            fencing,
            due: begun.due,
            definition: Arc::new(begun.definition),
            until: sent.at + begun.lease.saturating_sub(GRACE),
            lease: begun.lease,
            sent: sent.clone(),
            sending: self.jobs.dispatch.sending(self.metrics.jobs.send_seconds.clone()),
        };
        let node = self.clone();
        let told = node.jobs.dispatch.enter(attempt.run, fencing);
        self.jobs.dispatch.spawn(async move {
            let made = node.make(&attempt, &told).await;
            attempt.sending.end();
            if let Some(ran) = made {
                node.say(&attempt, ran).await;
            }
            node.jobs.dispatch.leave(attempt.run, &told);
        });
    }

    /// Makes an attempt, when there is room. Nothing if it was called off, or given back.
    async fn make(&self, attempt: &Attempt, told: &Notify) -> Option<Ran> {
        let dispatch = &self.jobs.dispatch;
        let begin_by = (Instant::now() + BEGIN_WITHIN).min(attempt.until);
        let destination = dispatch.runner.get().and_then(|runner| runner.destination(attempt));
        let Ok(Ok(_place)) = timeout_at(begin_by, dispatch.room.enter(destination)).await else {
            self.give_run_back(attempt.run, attempt.fencing, attempt.until).await;
            return None;
        };
        let late = self.now().0.saturating_sub(attempt.due.0);
        self.metrics.jobs.dispatch_seconds.observe(Duration::from_millis(late).as_secs_f64());
        let Some(runner) = dispatch.runner.get() else {
            return Some(Ran::Ended(AttemptEnd::failed("this node runs no jobs")));
        };
        if attempt.is_over() {
            // It slept so long that the attempt isn't its own any more.
            return None;
        }
        tokio::select! {
            biased;
            () = told.notified() => None,
            ran = timeout_at(attempt.until, runner.run(attempt)) => Some(ran.unwrap_or_else(|_| {
                let reason = Some(baton_core::job::Reason::Timeout);
                Ran::Ended(AttemptEnd { reason, ..AttemptEnd::failed("it took longer than its timeout") })
            })),
        }
    }

    /// Says how an attempt ended, for as long as its lease lasts.
    async fn say(self: &Arc<Self>, attempt: &Attempt, ran: Ran) {
        let Ran::Ended(end) = ran else {
            let left = attempt.lease.saturating_sub(attempt.sent.elapsed());
            return self.say_taken(attempt.run, attempt.fencing, left.max(Duration::from_millis(1))).await;
        };
        if self.say_in_company(attempt, &end).await {
            return;
        }
        let until = attempt.sent.at + attempt.lease;
        loop {
            match self.finish_run(attempt.run, attempt.fencing, &end, self.deadline()).await {
                Err(JobError::Failed(_)) if Instant::now() + SAY_AGAIN < until => {
                    tokio::time::sleep(SAY_AGAIN).await;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_waits_for_what_is_not_sent_yet_but_not_for_long() {
        let dispatch = Dispatch::default();
        let sending = || dispatch.sending(Histogram::new([1.0]));
        let waits = async || {
            let began = Instant::now();
            dispatch.most_are_sent().await;
            began.elapsed()
        };
        let _few: Vec<_> = (0..FEW_UNSENT).map(|_| sending()).collect();
        assert_eq!(waits().await, Duration::ZERO, "a few are always on their way");
        let (one, other) = (sending(), sending());
        assert_eq!(waits().await, SENT_WITHIN);
        assert!(one.end() && !one.end(), "it is sent once");
        drop(one);
        assert_eq!(waits().await, SENT_WITHIN, "the other isn't");
        let moment = Duration::from_millis(10);
        let dropped = async {
            tokio::time::sleep(moment).await;
            drop(other);
        };
        assert_eq!(tokio::join!(waits(), dropped).0, moment, "what is never sent counts no more");
    }
}
