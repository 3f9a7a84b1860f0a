//! How many records are, or may come, under each lease that several calls of this node were given together.
//!
//! A count only falls when it is certain that a record has left, or never comes: too high, it leaves a lease to run out;
//! too low, it would end one that is needed. So what nobody is certain of stays counted.

use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How many leases are counted; further ones are left to run out.
const COUNTED_MAX: usize = 16 * 1024;
/// How often leases that have run out are looked for, if there is no room.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

struct Counted {
    records: usize,
    ends: Instant,
}

#[derive(Default)]
pub(super) struct Tally {
    leases: HashMap<i64, Counted>,
    swept: Option<Instant>,
}

impl Tally {
    /// A lease that so many records may come under; it has run out at about `ends`.
    pub fn begin(&mut self, id: i64, records: usize, ends: Instant) {
        let now = Instant::now();
        if self.leases.len() >= COUNTED_MAX && self.swept.is_none_or(|swept| now > swept + SWEEP_EVERY) {
            self.swept = Some(now);
            self.leases.retain(|_, lease| lease.ends > now);
        }
        if self.leases.len() < COUNTED_MAX {
            self.leases.insert(id, Counted { records, ends });
        }
    }

    /// One more may come under it.
    pub fn add(&mut self, id: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.records += 1;
        }
    }

    /// One has left it, or won't come. Whether it was the last one.
    pub fn end(&mut self, id: i64) -> bool {
        let Some(lease) = self.leases.get_mut(&id) else { return false };
        lease.records = lease.records.saturating_sub(1);
        let is_last = lease.records == 0;
        if is_last {
            self.leases.remove(&id);
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_with_its_last_record_and_one_that_is_not_counted_never() {
        let (mut tally, ends) = (Tally::default(), Instant::now() + Duration::from_secs(60));
        tally.begin(1, 2, ends);
        tally.add(1);
        assert_eq!([tally.end(1), tally.end(1), tally.end(1), tally.end(1)], [false, false, true, false]);
        tally.add(2);
        assert!(!tally.end(2));
    }

    #[test]
    fn without_room_what_has_run_out_makes_some_and_else_a_lease_is_not_counted() {
        let (mut tally, now) = (Tally::default(), Instant::now());
        for id in 0..COUNTED_MAX as i64 {
            tally.begin(id, 1, now + Duration::from_secs(60));
        }
        tally.begin(-1, 1, now + Duration::from_secs(60));
        assert_eq!(tally.leases.len(), COUNTED_MAX);
        assert!(!tally.end(-1));
        for lease in tally.leases.values_mut() {
            lease.ends = now;
        }
        tally.swept = None;
        tally.begin(-2, 1, now + Duration::from_secs(60));
        assert_eq!(tally.leases.len(), 1);
        assert!(tally.end(-2));
    }
}
