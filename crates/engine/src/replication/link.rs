//! What is known of one other replica.

use super::{Lane, NoAnswer, Shared, inherit};
use baton_core::crdt::sync::{Answer, Ask, MESSAGE_BYTES_MAX, Reply, Request};
use baton_core::crdt::{Actor, Context, Delta};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How far another replica is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// Where it is.
    pub address: Arc<str>,
    /// Its run; nothing if it never answered.
    pub actor: Option<Actor>,
    /// Whether that is this replica itself, as a name that stands for all of them may say. Nothing is told to it.
    pub is_self: bool,
    /// Whether it answered last time.
    pub is_reachable: bool,
    /// Changes that this replica has seen and the other, as far as is known, hasn't.
    pub behind: u64,
    /// For how long it has not had all that this one has; nothing if it has.
    pub lag: Option<Duration>,
    /// Changes that wait to be told.
    pub waiting: u64,
    /// Changes that were not told as they happened, because it was away or too slow: a repair brings them.
    pub dropped: u64,
    /// Questions about what was missed that were answered to the end.
    pub rounds: u64,
    /// Those that were not.
    pub failures: u64,
    /// How long ago the last one was answered to the end.
    pub last_round: Option<Duration>,
}

pub(super) struct Link {
    pub address: Arc<str>,
    state: Mutex<State>,
    /// Whether it is worth telling it anything.
    pub up: watch::Sender<bool>,
}

#[derive(Default)]
pub(super) struct State {
    pub actor: Option<Actor>,
    pub is_self: bool,
    pub waiting: u64,
    pub dropped: u64,
    pub rounds: u64,
    pub failures: u64,
    pub last_round: Option<Instant>,
    /// When the last rounds began after which this replica had all that the other had then, the newest last.
    caught_up: VecDeque<Instant>,
    /// All that it is known to have seen.
    seen: Context,
    /// Of which run that is known.
    seen_by: Option<Actor>,
    /// When it was last known to have seen all that this replica has; at first, when this one began to look.
    level: Option<Instant>,
}

impl Link {
    pub fn new(address: Arc<str>) -> Self {
        let state = State { level: Some(Instant::now()), ..State::default() };
        Self { address, state: Mutex::new(state), up: watch::Sender::new(true) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    pub fn status(&self, own: &Context) -> PeerStatus {
        let mut state = self.state();
        let behind = if state.is_self { 0 } else { state.seen.lacks(own) };
        if behind == 0 {
            state.level = Some(Instant::now());
        }
        let lag = state.level.filter(|_| behind > 0).map(|level| level.elapsed());
        PeerStatus {
            address: self.address.clone(),
            actor: state.actor,
            is_self: state.is_self,
            is_reachable: *self.up.borrow() && state.actor.is_some(),
            behind,
            lag,
            waiting: state.waiting,
            dropped: state.dropped,
            rounds: state.rounds,
            failures: state.failures,
            last_round: state.last_round.map(|at| at.elapsed()),
        }
    }

    /// It has taken a delta in.
    pub fn took(&self, delta: &Delta, own: &Context) {
        self.state().learn(&delta.context(), own);
    }

    /// It has seen this much.
    pub fn has_seen(&self, theirs: &Context, own: &Context) {
        self.state().learn(theirs, own);
    }

    /// Whether it has seen as much.
    pub fn has(&self, context: &Context) -> bool {
        let state = self.state();
        state.seen_by == state.actor && state.seen.covers(context)
    }

    /// A round that began then brought all that it had.
    pub fn caught_up(&self, began: Instant) {
        let mut state = self.state();
        state.caught_up.push_back(began);
        if state.caught_up.len() > inherit::ROUNDS {
            state.caught_up.pop_front();
        }
    }

    /// Whether enough rounds that began after a moment brought all that it had.
    pub fn was_asked_since(&self, moment: Instant) -> bool {
        let state = self.state();
        state.caught_up.len() == inherit::ROUNDS && state.caught_up.iter().all(|began| *began >= moment)
    }

    /// Asks it something, and reads the answer.
    pub async fn ask(
        &self,
        shared: &Shared,
        lane: Lane,
        to: Option<Actor>,
        ask: Ask,
    ) -> Result<Reply, NoAnswer> {
        let from = shared.replica.actor();
        let request = Request { from, number: shared.number(), to, ask }.encode();
        shared.options.metrics.sent_bytes.inc_by(request.len() as u64);
        let answer = shared.wire.exchange(&self.address, lane, &request);
        let answer = timeout(shared.options.answer_within, answer).await;
        let answer = answer.map_err(|_| NoAnswer("it doesn't answer in time".into()))??;
        shared.options.metrics.received_bytes.inc_by(answer.len() as u64);
        if answer.len() > MESSAGE_BYTES_MAX {
            return Err(NoAnswer("its answer is too large".into()));
        }
        let reply = Reply::decode(&answer).map_err(|_| NoAnswer("its answer can't be read".into()))?;
        if reply.answer == Answer::OtherRun {
            return Err(NoAnswer("it has started anew meanwhile".into()));
        }
        let mut state = self.state();
        state.actor = Some(reply.from);
        state.is_self = reply.from == from;
        Ok(reply)
    }
}

impl State {
    /// It has seen this, and what it was known to have seen; unless that was another run, which may have had more.
    fn learn(&mut self, theirs: &Context, own: &Context) {
        if self.seen_by != self.actor {
            (self.seen, self.seen_by) = (Context::default(), self.actor);
        }
        self.seen.join(theirs);
        if self.seen.covers(own) {
            self.level = Some(Instant::now());
        }
    }
}
