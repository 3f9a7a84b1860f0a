//! When calls go through: a state machine without a clock and without chance, which come as arguments.
//!
//! Closed, it counts failures in a row. Open, it lets nobody through and says when to probe next. What belongs to an
//! earlier phase is ignored: a call that hung since before an outage says nothing about the store after it.

use crate::contract::BreakerState;
use std::time::Duration;
use tokio::time::Instant;

/// So many failures in a row, and the store is taken to be gone.
pub(super) const FAILURES_MAX: u32 = 5;
/// A call given up sooner than this says more about its caller than about the store.
pub(super) const GIVEN_UP_MIN: Duration = Duration::from_millis(100);
/// The pause before the second probe; the first is made at once, since a connection that breaks takes all calls on it
/// along and is often made anew in a moment.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Who fails again within this time after it seemed well goes on with the pause it had, so that a store which answers
/// probes and fails the rest doesn't make the circuit flutter.
const RELAPSE: Duration = Duration::from_secs(10);

/// A phase between two changes; calls carry the one they began in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Phase(u64);

/// What a call says about the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It answered.
    Answered,
    /// It didn't, or not in time.
    Failed,
    /// Nothing: the call didn't get as far as that.
    Unasked,
}

/// Whether the circuit has just changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    None,
    Opened,
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Closed { failures: u32, since: Option<Instant> },
    Open { probe_at: Instant, is_probing: bool },
}

#[derive(Debug)]
pub(super) struct Circuit {
    phase: u64,
    state: State,
    /// When it was last opened or closed.
    changed_at: Instant,
    /// What the next pause between probes is at most.
    pause: Duration,
}

impl Circuit {
    pub fn new(now: Instant) -> Self {
        let state = State::Closed { failures: 0, since: None };
        Self { phase: 0, state, changed_at: now, pause: Duration::ZERO }
    }

    /// For people.
    pub fn state(&self) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { is_probing: true, .. } => BreakerState::HalfOpen,
            State::Open { is_probing: false, .. } => BreakerState::Open,
        }
    }

    /// Since when calls go through, or don't: a probe that fails isn't a change.
    pub fn changed_at(&self) -> Instant {
        self.changed_at
    }

    /// The phase for a call that may go through.
    pub fn admit(&self) -> Option<Phase> {
        matches!(self.state, State::Closed { .. }).then_some(Phase(self.phase))
    }

    /// When to probe, while it is open.
    pub fn probe_at(&self) -> Option<Instant> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { probe_at, .. } => Some(probe_at),
        }
    }

    /// A probe is on its way.
    pub fn begin_probe(&mut self) {
        if let State::Open { is_probing, .. } = &mut self.state {
            *is_probing = true;
        }
    }

    /// A call that was admitted has ended. `chance` is any number: it spreads the probes of many nodes.
    pub fn ended(&mut self, phase: Phase, verdict: Verdict, now: Instant, chance: u32) -> Change {
        let State::Closed { failures, since } = self.state else { return Change::None };
        if phase.0 != self.phase {
            return Change::None;
        }
        let failures = match verdict {
            Verdict::Answered => 0,
            Verdict::Failed => failures + 1,
            Verdict::Unasked => return Change::None,
        };
        self.state = State::Closed { failures, since };
        if failures < FAILURES_MAX {
            return Change::None;
        }
        if since.is_none_or(|since| now.saturating_duration_since(since) >= RELAPSE) {
            self.pause = Duration::ZERO;
        }
        (self.phase, self.changed_at) = (self.phase + 1, now);
        self.state = State::Open { probe_at: now + self.next_pause(chance), is_probing: false };
        Change::Opened
    }

    /// A probe has ended.
    pub fn probed(&mut self, verdict: Verdict, now: Instant, chance: u32) -> Change {
        match verdict {
            Verdict::Answered => {
                (self.phase, self.changed_at) = (self.phase + 1, now);
                self.state = State::Closed { failures: 0, since: Some(now) };
                Change::Closed
            }
            Verdict::Failed | Verdict::Unasked => {
                self.state = State::Open { probe_at: now + self.next_pause(chance), is_probing: false };
                Change::None
            }
        }
    }

    /// From three quarters to the whole of the pause that is due; the next one is twice as long.
    fn next_pause(&mut self, chance: u32) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX);
        pause - pause / 4 * (chance % 1000) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Answered, Failed, Unasked};
    use super::*;

    /// Ends calls of the present phase at `now`, and says what the last one changed.
    fn end(circuit: &mut Circuit, verdicts: &[Verdict], now: Instant) -> Change {
        verdicts.iter().fold(Change::None, |_, verdict| {
            let phase = circuit.admit().expect("closed");
            circuit.ended(phase, *verdict, now, 0)
        })
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        for (verdicts, change) in [
            (&[][..], Change::None),
            (&[Failed, Failed, Failed, Failed], Change::None),
            (&[Failed, Failed, Failed, Failed, Failed], Change::Opened),
            (&[Failed, Failed, Failed, Failed, Answered, Failed], Change::None),
            (&[Failed, Answered, Failed, Failed, Failed, Failed, Failed], Change::Opened),
            (&[Unasked, Unasked, Unasked, Unasked, Unasked, Unasked], Change::None),
            (&[Failed, Failed, Unasked, Failed, Failed, Unasked, Failed], Change::Opened),
        ] {
            let now = Instant::now();
            let mut circuit = Circuit::new(now);
            assert_eq!(end(&mut circuit, verdicts, now), change, "{verdicts:?}");
            assert_eq!(circuit.admit().is_none(), change == Change::Opened, "{verdicts:?}");
            assert_eq!(circuit.probe_at().is_some(), change == Change::Opened, "{verdicts:?}");
        }
    }

    #[test]
    fn probes_come_at_once_then_with_pauses_that_double_to_a_second_and_spread() {
        let now = Instant::now();
        for (chance, pauses) in [(0, [250, 500, 1000, 1000]), (500, [219, 438, 875, 875])] {
            let mut circuit = Circuit::new(now);
            end(&mut circuit, &[Failed; 5], now);
            assert_eq!(circuit.probe_at(), Some(now));
            for pause in pauses {
                assert_eq!(circuit.probed(Failed, now, chance), Change::None);
                let ahead = circuit.probe_at().expect("open") - now;
                assert_eq!(ahead.as_secs_f64().mul_add(1000.0, 0.5) as u64, pause, "{chance}");
            }
        }
        let mut circuit = Circuit::new(now);
        end(&mut circuit, &[Failed; 5], now);
        for chance in [0, 1, 999, u32::MAX] {
            circuit.pause = PAUSE_MAX;
            circuit.probed(Failed, now, chance);
            let ahead = circuit.probe_at().expect("open") - now;
            assert!(ahead >= PAUSE_MAX * 3 / 4 && ahead <= PAUSE_MAX, "{ahead:?}");
        }
    }

    #[test]
    fn an_answered_probe_closes_it_and_a_relapse_goes_on_with_the_pause() {
        let now = Instant::now();
        for (after, pause) in [(Duration::ZERO, 500), (RELAPSE / 2, 500), (RELAPSE, 0)] {
            let mut circuit = Circuit::new(now);
            end(&mut circuit, &[Failed; 5], now);
            circuit.probed(Failed, now, 0);
            assert_eq!(circuit.probed(Answered, now, 0), Change::Closed);
            assert_eq!(circuit.probe_at(), None);
            let then = now + after;
            assert_eq!(end(&mut circuit, &[Failed; 5], then), Change::Opened);
            assert_eq!(circuit.probe_at(), Some(then + Duration::from_millis(pause)), "{after:?}");
        }
    }

    #[test]
    fn what_began_before_a_change_says_nothing_after_it() {
        let now = Instant::now();
        let mut circuit = Circuit::new(now);
        let early = circuit.admit().expect("closed");
        end(&mut circuit, &[Failed; 5], now);
        assert_eq!(circuit.ended(early, Answered, now, 0), Change::None);
        assert!(circuit.admit().is_none(), "a late answer doesn't close it: the probe does");
        circuit.probed(Answered, now, 0);
        for _ in 0..10 {
            assert_eq!(circuit.ended(early, Failed, now, 0), Change::None);
        }
        assert_eq!(end(&mut circuit, &[Failed; 4], now), Change::None);
        circuit.ended(early, Answered, now, 0);
        assert_eq!(end(&mut circuit, &[Failed], now), Change::Opened);
    }

    #[test]
    fn it_shows_since_when_calls_are_refused_also_while_it_probes() {
        let start = Instant::now();
        let opened = start + Duration::from_secs(5);
        let mut circuit = Circuit::new(start);
        assert_eq!((circuit.state(), circuit.changed_at()), (BreakerState::Closed, start));
        end(&mut circuit, &[Failed; 5], opened);
        assert_eq!((circuit.state(), circuit.changed_at()), (BreakerState::Open, opened));
        circuit.begin_probe();
        assert_eq!((circuit.state(), circuit.changed_at()), (BreakerState::HalfOpen, opened));
        circuit.probed(Unasked, opened + Duration::from_secs(1), 0);
        assert_eq!((circuit.state(), circuit.changed_at()), (BreakerState::Open, opened));
        circuit.begin_probe();
        let closed = opened + Duration::from_secs(2);
        circuit.probed(Answered, closed, 0);
        assert_eq!((circuit.state(), circuit.changed_at()), (BreakerState::Closed, closed));
    }
}
