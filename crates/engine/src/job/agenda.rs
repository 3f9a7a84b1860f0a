//! When something is due, for each group: all that a node remembers of jobs that aren't. A guess, from hints and from the last
//! look: too early costs a look, and too late is put right by the next one.

use baton_core::{Group, WallTime};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const NEVER: u64 = u64::MAX;
/// Runs that are made up for, a second and node.
const CATCH_UPS_PER_SECOND: f64 = 100.0;

pub(crate) struct Agenda {
    earliest: [AtomicU64; 256],
    /// Something is due earlier than was known.
    pub changed: Notify,
    catch_ups: Mutex<Bucket>,
}

struct Bucket {
    left: f64,
    since: Option<Instant>,
}

impl Default for Agenda {
    fn default() -> Self {
        let catch_ups = Mutex::new(Bucket { left: CATCH_UPS_PER_SECOND, since: None });
        Self { earliest: [const { AtomicU64::new(NEVER) }; 256], changed: Notify::new(), catch_ups }
    }
}

impl Agenda {
    fn of(&self, group: Group) -> &AtomicU64 {
        &self.earliest[usize::from(group.0)]
    }

    /// Something is due in a group then.
    pub fn note(&self, group: Group, at: WallTime) {
        if self.of(group).fetch_min(at.0, Ordering::AcqRel) > at.0 {
            self.changed.notify_one();
        }
    }

    /// When something is due, as far as is known.
    pub fn earliest(&self, group: Group) -> Option<WallTime> {
        let at = self.of(group).load(Ordering::Acquire);
        (at != NEVER).then_some(WallTime(at))
    }

    /// Before a look: what is noted from here on is news.
    pub fn begin(&self, group: Group) {
        self.of(group).store(NEVER, Ordering::Release);
    }

    /// Whether one more may be made up for now.
    pub fn may_catch_up(&self) -> bool {
        let mut bucket = self.catch_ups.lock().expect("no panic while held");
        let now = Instant::now();
        let since = bucket.since.replace(now).map_or(Duration::ZERO, |since| now - since);
        let left = bucket.left + since.as_secs_f64() * CATCH_UPS_PER_SECOND;
        bucket.left = left.min(CATCH_UPS_PER_SECOND);
        bucket.left >= 1.0
    }

    /// One was.
    pub fn caught_up(&self) {
        self.catch_ups.lock().expect("no panic while held").left -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_counts_until_somebody_looks() {
        let agenda = Agenda::default();
        assert_eq!(agenda.earliest(Group(3)), None);
        for at in [50, 40, 60] {
            agenda.note(Group(3), WallTime(at));
        }
        assert_eq!(agenda.earliest(Group(3)), Some(WallTime(40)));
        agenda.begin(Group(3));
        assert_eq!(agenda.earliest(Group(3)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_made_up_for_has_a_rate() {
        let agenda = Agenda::default();
        let mut count = 0;
        for _ in 0..300 {
            while agenda.may_catch_up() {
                agenda.caught_up();
                count += 1;
            }
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!(
            (395..=405).contains(&count),
            "{count} in three seconds, and one second's worth to begin with"
        );
    }
}
