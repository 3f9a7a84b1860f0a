//! When something is due, for each group: all that a node remembers of jobs that aren't. A guess, from hints and from the last
//! look: too early costs a look, and too late is put right by the next one. And what was decided ahead of its time, and only waits for it.

use baton_core::{Group, WallTime};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const NEVER: u64 = u64::MAX;
/// Jobs that may be decided ahead of their time; beyond it they are decided when it has come.
const PREPARED_MAX: usize = 16 * 1_024;
/// Runs that are made up for, a second, by all nodes together: each has its share.
const CATCH_UPS_PER_SECOND: f64 = 100.0;

pub(crate) struct Agenda {
    earliest: [AtomicU64; 256],
    /// The last time that was looked at before it came: no time is twice.
    ahead_of: [AtomicU64; 256],
    /// Something is due earlier than was known.
    pub changed: Notify,
    catch_ups: Mutex<Bucket>,
    prepared: Mutex<BTreeMap<u8, Prepared>>,
}

/// What was decided of a group ahead of its time: all of one moment.
struct Prepared {
    at: WallTime,
    jobs: usize,
    /// Somebody looked meanwhile, and left these out.
    is_passed_over: bool,
}

struct Bucket {
    left: f64,
    since: Option<Instant>,
}

impl Default for Agenda {
    fn default() -> Self {
        let catch_ups = Mutex::new(Bucket { left: CATCH_UPS_PER_SECOND, since: None });
        let earliest = [const { AtomicU64::new(NEVER) }; 256];
        let ahead_of = [const { AtomicU64::new(NEVER) }; 256];
        Self { earliest, ahead_of, changed: Notify::new(), catch_ups, prepared: Mutex::default() }
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

    /// When to look because of a time: a moment before it, and if that was done, when it has come.
    pub fn look_at(&self, group: Group, at: WallTime, ahead: Duration) -> WallTime {
        let is_done = self.ahead_of[usize::from(group.0)].load(Ordering::Acquire) == at.0;
        if is_done { at } else { WallTime(at.0.saturating_sub(ahead.as_millis() as u64)) }
    }

    /// A time was looked at before it came.
    pub fn looked_ahead(&self, group: Group, at: WallTime) {
        self.ahead_of[usize::from(group.0)].store(at.0, Ordering::Release);
    }

    /// So many jobs of a group are about to be decided ahead of this time; whether they may.
    pub fn prepare(&self, group: Group, at: WallTime, jobs: usize) -> bool {
        let mut prepared = self.prepared.lock().expect("no panic while held");
        let all: usize = prepared.values().map(|prepared| prepared.jobs).sum();
        let may = all + jobs <= PREPARED_MAX && !prepared.contains_key(&group.0);
        if may {
            prepared.insert(group.0, Prepared { at, jobs, is_passed_over: false });
        }
        may
    }

    /// The time ahead of which a group's jobs were decided, if they still wait for it. Whoever asks leaves them out.
    pub fn pass_over_prepared(&self, group: Group) -> Option<WallTime> {
        let mut prepared = self.prepared.lock().expect("no panic while held");
        prepared.get_mut(&group.0).map(|prepared| {
            prepared.is_passed_over = true;
            prepared.at
        })
    }

    /// They wait no more; whether somebody left them out meanwhile, and perhaps others of that time with them.
    pub fn end_prepared(&self, group: Group) -> bool {
        let mut prepared = self.prepared.lock().expect("no panic while held");
        prepared.remove(&group.0).is_some_and(|prepared| prepared.is_passed_over)
    }

    /// Whether one more may be made up for now, by a node that has this part of all groups.
    pub fn may_catch_up(&self, part: f64) -> bool {
        let rate = CATCH_UPS_PER_SECOND * part;
        let mut bucket = self.catch_ups.lock().expect("no panic while held");
        let now = Instant::now();
        let since = bucket.since.replace(now).map_or(Duration::ZERO, |since| now - since);
        let left = bucket.left + since.as_secs_f64() * rate;
        bucket.left = left.min(rate.max(1.0));
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

    #[test]
    fn only_so_much_is_decided_ahead_and_a_group_s_once_at_a_time() {
        let agenda = Agenda::default();
        assert!(agenda.prepare(Group(1), WallTime(50), PREPARED_MAX - 1));
        assert!(!agenda.prepare(Group(1), WallTime(60), 1), "another time of that group waits");
        assert!(!agenda.prepare(Group(2), WallTime(50), 2), "no more than may be");
        assert!(agenda.prepare(Group(2), WallTime(50), 1));
        assert_eq!(agenda.pass_over_prepared(Group(1)), Some(WallTime(50)));
        assert!(agenda.end_prepared(Group(1)), "somebody has to look again");
        assert!(!agenda.end_prepared(Group(2)));
        assert_eq!(agenda.pass_over_prepared(Group(1)), None);
    }

    #[test]
    fn a_time_is_looked_at_ahead_once() {
        let (agenda, ahead) = (Agenda::default(), Duration::from_millis(10));
        assert_eq!(agenda.look_at(Group(1), WallTime(50), ahead), WallTime(40));
        agenda.looked_ahead(Group(1), WallTime(50));
        assert_eq!(agenda.look_at(Group(1), WallTime(50), ahead), WallTime(50));
        assert_eq!(agenda.look_at(Group(1), WallTime(60), ahead), WallTime(50));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_made_up_for_has_a_rate_that_all_nodes_share() {
        for (part, expected) in [(1.0, 395..=405), (0.25, 98..=102), (0.0, 1..=1)] {
            let agenda = Agenda::default();
            let mut count = 0;
            for _ in 0..300 {
                while agenda.may_catch_up(part) {
                    agenda.caught_up();
                    count += 1;
                }
                tokio::time::advance(Duration::from_millis(10)).await;
            }
            assert!(
                expected.contains(&count),
                "{count} by who has {part} in three seconds, and one second's worth to begin with"
            );
        }
    }
}
