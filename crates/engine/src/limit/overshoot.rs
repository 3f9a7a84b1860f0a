//! How much more than it may a meter has, as this node sees it: measured against the bound while running.
//!
//! What a meter counts and what is outstanding of it stay within its capacity, by every decision of the store. Beyond it are only what a
//! node admitted without the store and wrote there afterwards, and what was within a limit before that was lowered. Both are seen when
//! the meter is next charged, by whichever node does. What is admitted beyond the limit and never told (a failover that loses
//! counts, a lease reclaimed optimistically and spent all the same, a node that died owing) nobody sees here; nor what an algorithm lets
//! pass around the edges of its windows. A time that is booked counts from when it is booked. Of counts that spread it is what nodes admitted
//! before they heard of each other, exactly, seen by each when it hears of it.

use super::calls::Overshoot;
use crate::engine::Node;
use baton_core::meter::{Charged, Verdict};
use baton_core::{Name, WallTime};
use baton_store::Charge;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Limits of which the largest is known. Beyond it those that come new are only in the histogram.
const LIMITS_MAX: usize = 10_000;
/// How recent is recent: the largest of this period and the one before.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// The largest overshoots a node has seen.
#[derive(Default)]
pub(crate) struct Overshoots(Mutex<HashMap<Name, Largest>>);

struct Largest {
    since: Instant,
    present: Overshoot,
    past: Overshoot,
}

impl Overshoots {
    fn note(&self, name: &Name, amount: u64, at: WallTime) {
        let mut all = self.0.lock().expect("no panic while held");
        let now = Instant::now();
        if all.len() >= LIMITS_MAX && !all.contains_key(name) {
            all.retain(|_, largest| now.saturating_duration_since(largest.since) <= 2 * PERIOD);
            if all.len() >= LIMITS_MAX {
                return;
            }
        }
        let none = Overshoot::default();
        let largest =
            all.entry(name.clone()).or_insert_with(|| Largest { since: now, present: none, past: none });
        largest.turn(now);
        if amount > largest.present.amount {
            largest.present = Overshoot { amount, at: Some(at) };
        }
    }

    /// The largest of the last one to two hours.
    pub(super) fn largest(&self, name: &Name) -> Overshoot {
        let mut all = self.0.lock().expect("no panic while held");
        let Some(largest) = all.get_mut(name) else { return Overshoot::default() };
        largest.turn(Instant::now());
        if largest.past.amount > largest.present.amount { largest.past } else { largest.present }
    }
}

impl Largest {
    fn turn(&mut self, now: Instant) {
        let periods = now.saturating_duration_since(self.since).as_secs() / PERIOD.as_secs();
        if periods > 0 {
            self.past = if periods == 1 { self.present } else { Overshoot::default() };
            (self.present, self.since) = (Overshoot::default(), now);
        }
    }
}

impl Node {
    /// A count was seen to be this much beyond its limit, or not at all.
    pub(super) fn note_overshoot_of(&self, name: &Name, amount: u64, limit: u64, at: WallTime) {
        self.metrics.overshoot.observe(amount as f64 / limit as f64);
        if amount > 0 {
            self.overshoots.note(name, amount, at);
        }
    }

    /// Looks at meters that were charged: how much they have beyond what they may.
    pub(super) fn note_overshoot(&self, names: &[&Name], charge: &Charge, charged: &Charged) {
        // What is told again was looked at when it happened, and an older definition knows no capacity.
        if charged.repeated || matches!(charged.verdict, Verdict::Outdated { .. }) {
            return;
        }
        for ((name, claim), found) in names.iter().zip(&charge.claims).zip(&charged.meters) {
            let (rule, meter) = (&claim.rule, &found.meter);
            let has = meter.used().saturating_add(meter.outstanding());
            let amount = has.saturating_sub(rule.capacity);
            self.note_overshoot_of(name, amount, rule.limit, charged.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_largest_is_remembered_for_an_hour_or_two() {
        let (overshoots, name) = (Overshoots::default(), Name::new("n", "l"));
        let amount = || overshoots.largest(&name).amount;
        assert_eq!(amount(), 0);
        for seen in [3, 7, 5] {
            overshoots.note(&name, seen, WallTime(seen));
        }
        assert_eq!(overshoots.largest(&name), Overshoot { amount: 7, at: Some(WallTime(7)) });
        tokio::time::advance(PERIOD).await;
        overshoots.note(&name, 2, WallTime(9));
        assert_eq!(amount(), 7);
        tokio::time::advance(PERIOD).await;
        assert_eq!(amount(), 2);
        overshoots.note(&name, 4, WallTime(11));
        tokio::time::advance(2 * PERIOD).await;
        assert_eq!(amount(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_an_end_to_the_limits_that_are_remembered() {
        let overshoots = Overshoots::default();
        for number in 0..LIMITS_MAX + 5 {
            overshoots.note(&Name::new("n", &number.to_string()), 1, WallTime(1));
        }
        assert_eq!(overshoots.0.lock().unwrap().len(), LIMITS_MAX);
        tokio::time::advance(3 * PERIOD).await;
        let late = Name::new("n", "late");
        overshoots.note(&late, 1, WallTime(1));
        assert_eq!(overshoots.largest(&late).amount, 1, "those that nobody saw lately make room");
    }
}
