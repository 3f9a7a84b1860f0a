//! What is counted about jobs: what an alert on a dead schedule needs (J17), and how late things are (J12).

use crate::metrics::OutcomeLabel;
use baton_core::WallTime;
use baton_core::job::{Looked, Outcome, Progress, Reason};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// From where nobody notices to where something is wrong.
const SECONDS: [f64; 12] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 300.0];

/// What is counted about jobs.
pub struct JobMetrics {
    /// Attempts begun by this node.
    pub attempts: Counter,
    /// Runs that ended, by outcome.
    pub ended: Family<OutcomeLabel, Counter>,
    /// Times that didn't run, by reason.
    pub skipped: Family<OutcomeLabel, Counter>,
    /// Jobs that had no success within the time they say.
    pub overdue: Counter,
    /// From when a run was due to when its attempt was recorded.
    pub lag_seconds: Histogram,
    /// From when it was due to when it was handed to whatever makes it.
    pub dispatch_seconds: Histogram,
    /// From when an attempt was known to be recorded to when its request was on its way, or its command had been started.
    pub send_seconds: Histogram,
}

impl Default for JobMetrics {
    fn default() -> Self {
        Self {
            attempts: Counter::default(),
            ended: Family::default(),
            skipped: Family::default(),
            overdue: Counter::default(),
            lag_seconds: Histogram::new(SECONDS),
            dispatch_seconds: Histogram::new(SECONDS),
            send_seconds: Histogram::new(SECONDS),
        }
    }
}

impl JobMetrics {
    pub(crate) fn register(&self, jobs: &mut Registry) {
        // There from the start, so that the first of them shows as an increase.
        for reason in Reason::ALL {
            drop(self.skipped.get_or_create(&OutcomeLabel { outcome: reason.as_str() }));
        }
        for outcome in Outcome::ALL {
            drop(self.ended.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }));
        }
        jobs.register("attempts", "Attempts begun by this node", self.attempts.clone());
        jobs.register("runs", "Runs that ended, by outcome", self.ended.clone());
        jobs.register("skipped", "Times of schedules that did not run, by reason", self.skipped.clone());
        jobs.register("overdue", "Jobs that had no success within the expected time", self.overdue.clone());
        let help = "From when a run was due to when its first attempt was recorded";
        jobs.register_with_unit("lag", help, Unit::Seconds, self.lag_seconds.clone());
        let help = "From when a run was due to when an attempt was handed to its target";
        jobs.register_with_unit("dispatch_lag", help, Unit::Seconds, self.dispatch_seconds.clone());
        let help = "From when an attempt was recorded to when its request was sent or its command started";
        jobs.register_with_unit("send_lag", help, Unit::Seconds, self.send_seconds.clone());
    }

    /// A look was committed.
    pub(super) fn looked(&self, looked: &Looked, now: WallTime) {
        for (reason, count) in &looked.skipped {
            self.skipped.get_or_create(&OutcomeLabel { outcome: reason.as_str() }).inc_by(*count);
        }
        for outcome in &looked.ended {
            self.ended.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }).inc();
        }
        if looked.overdue {
            self.overdue.inc();
        }
        if let Some(begun) = &looked.begun {
            self.attempts.inc();
            if begun.attempt == 1 {
                let late = Duration::from_millis(now.0.saturating_sub(begun.due.0));
                self.lag_seconds.observe(late.as_secs_f64());
            }
        }
    }

    /// An attempt said how it ended.
    pub(super) fn ended(&self, progress: Progress) {
        if let Progress::Ended(end) = progress {
            self.ended.get_or_create(&OutcomeLabel { outcome: end.outcome.as_str() }).inc();
        }
    }
}
