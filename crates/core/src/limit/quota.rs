//! A quota: what a proxy may let pass by itself for a while, at so many a second (RLQS).
//!
//! The proxy has a bucket of one second's tokens, which fills at the rate for as long as the assignment lasts, and says now and then what it let
//! pass. Behind it is a lease on the key's meter with all that this can come to: a bucket, and the rate times how long it
//! lasts, and as much longer as messages may be under way. What is reported is settled, what isn't burns with the lease. An assignment
//! that stays as it is keeps the proxy's bucket, and a changed one gives it a full one beside what it took from the old; so it changes seldom, and then both are reserved.
//! The old one stays reserved until it has ended by itself: nobody says whether the proxy has heard of the new one.

use alloc::vec::Vec;

/// Seconds that a report or an assignment may be under way. What takes longer is counted all the same, when it is reported.
pub const UNDER_WAY_S: u64 = 2;
/// The rate that is asked for when nothing is known of a bucket yet.
const RATE_FIRST: u64 = 10;
/// How long assignments are taken to last before the store has said so.
const TTL_FIRST_S: u64 = 8;
/// As much more than was asked for in a second is assigned, so that what grows isn't cut.
const HEADROOM: u64 = 2;
/// An assignment stays until it is this many times what is asked for.
const SLACK: u64 = 4;
/// How often somebody asks is known after this long.
const MEASURED_MS: u64 = 500;
/// A bucket that nobody asked of for this long is given up.
const IDLE_MS: u64 = 60_000;
/// What a proxy's bucket can hold.
const RATE_MAX: u64 = u32::MAX as u64;

/// What the proxy is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// So many a second, a second's worth at once, for so long.
    Rate {
        /// In a second.
        per_second: u64,
        /// Seconds.
        ttl_s: u64,
    },
    /// Nothing, for so long.
    Nothing {
        /// Seconds.
        ttl_s: u64,
    },
}

/// What is said to the store about the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaMessage {
    /// Higher than of any before.
    pub sequence: u64,
    /// All that was ever let pass.
    pub spent: u64,
    /// What of the lease is kept.
    pub kept: u64,
    /// How much more is wanted.
    pub want: u64,
    /// How long the lease must live at least.
    pub ttl_ms: u64,
}

/// A proxy's quota of one key.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Of the assignment in force; 0 if nothing may pass.
    rate: u64,
    /// When that ends, counted from when it was sent.
    until_ms: u64,
    /// Assignments before, which the proxy may still go by if it hasn't heard of another.
    older: Older,
    /// How long assignments last.
    ttl_s: u64,
    /// What the lease has, by the last answer, less what was spent or given back since.
    amount: u64,
    spent: u64,
    told: u64,
    sequence: u64,
    /// Asked for in a second, lately.
    demand: Option<u64>,
    asked: u64,
    since_ms: u64,
    used_ms: u64,
    target: u64,
}

impl Quota {
    /// Of a bucket that is heard of for the first time.
    pub fn new(now_ms: u64) -> Self {
        Self {
            rate: 0,
            until_ms: now_ms,
            older: Older::default(),
            ttl_s: 1,
            amount: 0,
            spent: 0,
            told: 0,
            sequence: 0,
            demand: None,
            asked: 0,
            since_ms: now_ms,
            used_ms: now_ms,
            target: RATE_FIRST,
        }
    }

    /// The proxy says what it let pass, and what not, since it said so last.
    pub fn reported(&mut self, allowed: u64, denied: u64, now_ms: u64) {
        self.spent = self.spent.saturating_add(allowed);
        self.asked = self.asked.saturating_add(allowed).saturating_add(denied);
        if allowed.saturating_add(denied) > 0 {
            self.used_ms = now_ms;
        }
        let over_ms = now_ms.saturating_sub(self.since_ms);
        if over_ms >= MEASURED_MS {
            self.demand = Some(self.asked.saturating_mul(1_000).div_ceil(over_ms));
            (self.asked, self.since_ms) = (0, now_ms);
        }
    }

    /// Whether nobody has asked for anything for so long that it can be given up.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.used_ms) >= IDLE_MS
    }

    /// What to say to the store now. What it gives back is deducted here at once, whatever is answered.
    pub fn message(&mut self, now_ms: u64) -> QuotaMessage {
        self.older.forget(now_ms);
        self.target = self.wanted_rate();
        let left = self.amount.saturating_sub(self.spent - self.told);
        // If nothing more is heard here, the proxy goes on with what it has.
        let promised = match lasts_s(now_ms, self.until_ms) {
            0 => 0,
            lasts_s => reserve(self.rate, lasts_s),
        };
        let promised = promised.saturating_add(self.older.reserve(now_ms));
        let ttl_s = if self.sequence == 0 { TTL_FIRST_S } else { self.ttl_s };
        let need = self.need(self.target, ttl_s);
        let kept = left.min(need.max(promised));
        // What passed before there was a lease is told with the next message: a lease counts what is spent since its first.
        self.told = if self.sequence == 0 { 0 } else { self.spent };
        (self.amount, self.sequence) = (kept, self.sequence + 1);
        QuotaMessage {
            sequence: self.sequence,
            spent: self.told,
            kept,
            want: need.saturating_sub(kept),
            ttl_ms: (self.ttl_s + UNDER_WAY_S) * 1_000,
        }
    }

    /// The store says what the lease has, and how long leases live. What the proxy is told.
    pub fn heard(&mut self, amount: u64, lease_ttl_ms: u64, now_ms: u64) -> Assignment {
        self.amount = amount;
        // An assignment ends before its lease does, which lived from before this was heard.
        self.ttl_s = (lease_ttl_ms / 1_000).saturating_sub(UNDER_WAY_S).max(1);
        self.older.forget(now_ms);
        let (rate, ttl_s) = self.affordable();
        if rate != self.rate && self.rate > 0 {
            self.older.add(self.rate, self.until_ms);
        }
        self.rate = rate;
        if rate == 0 {
            self.until_ms = now_ms;
            return Assignment::Nothing { ttl_s };
        }
        self.until_ms = now_ms + ttl_s * 1_000;
        Assignment::Rate { per_second: rate, ttl_s }
    }

    /// As it is, if that is about right; else with room to grow.
    fn wanted_rate(&self) -> u64 {
        let Some(demand) = self.demand else { return self.rate.max(RATE_FIRST) };
        if self.rate > 0 && demand <= self.rate && self.rate <= demand.max(1).saturating_mul(SLACK) {
            return self.rate;
        }
        demand.saturating_mul(HEADROOM).clamp(1, RATE_MAX)
    }

    /// What has to be leased for a rate: of another one than now also what the proxy may take before it hears of it.
    fn need(&self, rate: u64, ttl_s: u64) -> u64 {
        let present = if rate == self.rate { 0 } else { self.rate };
        reserve(rate, ttl_s).saturating_add(self.before(present))
    }

    /// What a proxy may take by `present`, or by what it had before, until it hears of another.
    fn before(&self, present: u64) -> u64 {
        reserve(present.max(self.older.highest()), 0)
    }

    /// The best that the lease has enough for: what is wanted, what is there, less, or for a shorter time; and for how long.
    fn affordable(&self) -> (u64, u64) {
        let has = |rate: u64, ttl_s: u64| rate > 0 && self.need(rate, ttl_s) <= self.amount;
        for rate in [self.target, self.rate] {
            if has(rate, self.ttl_s) {
                return (rate, self.ttl_s);
            }
        }
        let lower = self.amount.saturating_sub(self.before(self.rate)) / (self.ttl_s + UNDER_WAY_S + 1);
        let lower = lower.min(self.target);
        if has(lower, self.ttl_s) {
            return (lower, self.ttl_s);
        }
        for rate in [self.rate, 1] {
            let shorter = (1..self.ttl_s).rev().find(|ttl_s| has(rate, *ttl_s));
            if let Some(ttl_s) = shorter {
                return (rate, ttl_s);
            }
        }
        (0, self.ttl_s)
    }
}

/// Assignments that were replaced and haven't ended: rates, and when each ends.
///
/// A lower rate that ends no later than a higher one adds nothing to what may pass by that. So there are those alone that end after all
/// higher ones: the highest first, which ends first. One spike in what is asked for is reserved until its own end, whatever follows.
#[derive(Clone, Default, Debug)]
struct Older(Vec<(u64, u64)>);

impl Older {
    /// As many are told apart; beyond it the two that last longest become one with the higher rate of both.
    const MOST: usize = 4;

    fn add(&mut self, rate: u64, until_ms: u64) {
        if self.0.iter().any(|known| known.0 >= rate && known.1 >= until_ms) {
            return;
        }
        self.0.retain(|known| known.0 > rate || known.1 > until_ms);
        let place = self.0.partition_point(|known| known.0 > rate);
        self.0.insert(place, (rate, until_ms));
        if self.0.len() > Self::MOST
            && let Some((_, last_ms)) = self.0.pop()
            && let Some(last) = self.0.last_mut()
        {
            last.1 = last_ms;
        }
    }

    /// What the proxy had is over for it too, however late it heard of it.
    fn forget(&mut self, now_ms: u64) {
        self.0.retain(|(_, until_ms)| now_ms < until_ms + UNDER_WAY_S * 1_000);
    }

    fn highest(&self) -> u64 {
        self.0.first().map_or(0, |(rate, _)| *rate)
    }

    /// All that can pass by them: each rate for as long as no higher one does, a full bucket of each, and the highest for as long as
    /// messages may be under way. Every end may come as much later, at which a rate steps down to the next: that is the highest one in all.
    fn reserve(&self, now_ms: u64) -> u64 {
        let mut from_ms = now_ms;
        let under_way = self.highest().saturating_mul(UNDER_WAY_S);
        self.0.iter().fold(under_way, |sum, (rate, until_ms)| {
            let lasts_s = lasts_s(from_ms, *until_ms);
            from_ms = from_ms.max(*until_ms);
            sum.saturating_add(rate.saturating_mul(lasts_s + 1))
        })
    }
}

/// Seconds from one moment to another, rounded up.
fn lasts_s(from_ms: u64, until_ms: u64) -> u64 {
    until_ms.saturating_sub(from_ms).div_ceil(1_000)
}

/// All that a bucket at this rate can let pass while it is assigned for so long: it is full when it begins.
fn reserve(rate: u64, ttl_s: u64) -> u64 {
    rate.saturating_mul(ttl_s.saturating_add(UNDER_WAY_S).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TTL_MS: u64 = 10_000;

    #[test]
    fn a_quota_begins_with_a_guess_follows_what_is_asked_for_and_stays_while_that_is_about_right() {
        let mut quota = Quota::new(0);
        quota.reported(1, 0, 0);
        let message = quota.message(0);
        assert_eq!((message.sequence, message.spent, message.kept), (1, 0, 0));
        let all = RATE_FIRST * 11;
        assert_eq!(message.want, all);
        let first = quota.heard(all, TTL_MS, 0);
        assert_eq!(first, Assignment::Rate { per_second: 10, ttl_s: 8 }, "it ends before its lease");
        quota.reported(16, 0, 2_000);
        let message = quota.message(2_000);
        assert_eq!(message.spent, 17, "also what passed before");
        assert_eq!(message.kept + message.want, all, "eight a second: ten are about right");
        assert_eq!(quota.heard(all, TTL_MS, 2_000), first);
        quota.reported(20, 180, 4_000);
        let message = quota.message(4_000);
        assert_eq!(message.kept + message.want, 200 * 11 + 10 * 3, "both, until the proxy has heard");
        let more = quota.heard(200 * 11 + 30, TTL_MS, 4_000);
        assert_eq!(more, Assignment::Rate { per_second: 200, ttl_s: 8 });
        quota.reported(0, 0, 14_000);
        let message = quota.message(14_000);
        assert_eq!((message.kept, message.want), (11 + 200 * 3, 0), "what nobody wants goes back");
        assert!(!quota.is_idle(63_999) && quota.is_idle(64_000));
    }

    #[test]
    fn with_too_little_there_is_less_or_for_a_shorter_time_and_with_nothing_nothing() {
        let given = |amount| {
            let mut quota = Quota::new(0);
            quota.reported(0, 5_000, 1_000);
            assert_eq!(quota.message(1_000).want, reserve(10_000, 8));
            quota.heard(amount, TTL_MS, 1_000)
        };
        assert_eq!(given(1_100), Assignment::Rate { per_second: 100, ttl_s: 8 });
        assert_eq!(given(11), Assignment::Rate { per_second: 1, ttl_s: 8 });
        assert_eq!(given(6), Assignment::Rate { per_second: 1, ttl_s: 3 });
        assert_eq!(given(3), Assignment::Nothing { ttl_s: 8 });
        assert_eq!(given(0), Assignment::Nothing { ttl_s: 8 });
    }

    /// Two reports, one right after the other: when the second comes the proxy can't have heard what followed from the first.
    #[test]
    fn what_a_proxy_may_still_go_by_is_kept_until_that_has_ended() {
        let mut quota = Quota::new(0);
        quota.reported(0, 50, 1_000);
        let all = quota.message(1_000).want;
        assert_eq!(quota.heard(all, TTL_MS, 1_000), Assignment::Rate { per_second: 100, ttl_s: 8 });
        quota.reported(0, 0, 3_000);
        let left = reserve(100, 6);
        assert_eq!(quota.message(3_000).kept, left);
        assert_eq!(quota.heard(left, TTL_MS, 3_000), Assignment::Rate { per_second: 1, ttl_s: 8 });
        assert_eq!(quota.message(3_000).kept, left);
        quota.heard(left, TTL_MS, 3_000);
        let late = reserve(1, 8) + reserve(100, 0);
        assert_eq!(quota.message(10_999).kept, late, "it may have heard of it late");
        quota.heard(late, TTL_MS, 10_999);
        assert_eq!(quota.message(11_000).kept, reserve(1, 8));
    }

    #[test]
    fn one_spike_is_reserved_until_it_has_ended_however_often_the_rate_changes_after_it() {
        let mut quota = Quota::new(0);
        let (mut now_ms, mut most_late) = (1_000, 0);
        quota.reported(0, 5_000, now_ms);
        // Then a hundred a second and twenty in turn: every report changes the rate.
        for turn in 0_u64..20 {
            let message = quota.message(now_ms);
            let amount = message.kept + message.want;
            quota.heard(amount, TTL_MS, now_ms);
            // The spike's assignment lasts for 8 s, and as much longer as a message takes.
            if now_ms >= 11_000 {
                most_late = most_late.max(amount);
            }
            now_ms += 1_000;
            quota.reported(if turn % 2 == 0 { 20 } else { 200 }, 0, now_ms);
        }
        // What those rates come to, both at once, and nothing of 10,000 a second.
        assert!(most_late > 0 && most_late <= 2 * reserve(400, 8), "{most_late} leased long after it");
    }

    #[test]
    fn what_was_assigned_before_is_told_apart_as_far_as_there_is_room() {
        let mut older = Older::default();
        for known in [(100, 5_000), (50, 4_000), (10, 9_000), (10, 8_000)] {
            older.add(known.0, known.1);
        }
        assert_eq!(older.0, [(100, 5_000), (10, 9_000)]);
        assert_eq!(older.reserve(0), 100 * (5 + 1 + 2) + 10 * (4 + 1));
        assert_eq!(older.reserve(6_000), 100 * 3 + 10 * 4, "the first may have been heard of late");
        older.forget(7_000);
        assert_eq!(older.reserve(7_000), reserve(10, 2));
        for (rate, until_ms) in [(9, 10_000), (8, 11_000), (7, 12_000), (6, 13_000)] {
            older.add(rate, until_ms);
        }
        assert_eq!(older.0, [(10, 9_000), (9, 10_000), (8, 11_000), (7, 13_000)], "never less");
    }

    /// A proxy's bucket, in thousandths of a token, as greedy as it may be.
    #[derive(Default)]
    struct Bucket {
        rate: u64,
        level: u64,
        at_ms: u64,
        until_ms: u64,
    }

    impl Bucket {
        fn hears(&mut self, assignment: Assignment, now_ms: u64) {
            let (rate, ttl_s) = match assignment {
                Assignment::Rate { per_second, ttl_s } => (per_second, ttl_s),
                Assignment::Nothing { ttl_s } => (0, ttl_s),
            };
            if rate != self.rate || now_ms >= self.until_ms {
                (self.rate, self.level, self.at_ms) = (rate, rate * 1_000, now_ms);
            }
            self.until_ms = now_ms + ttl_s * 1_000;
        }

        fn takes(&mut self, most: u64, now_ms: u64) -> u64 {
            let end_ms = now_ms.min(self.until_ms);
            let filled = self.level + self.rate * end_ms.saturating_sub(self.at_ms);
            (self.level, self.at_ms) = (filled.min(self.rate * 1_000), self.at_ms.max(end_ms));
            if now_ms >= self.until_ms {
                return 0;
            }
            let taken = (self.level / 1_000).min(most);
            self.level -= taken * 1_000;
            taken
        }
    }

    proptest! {
        /// However much is given, however long messages take, and whichever get lost: as long as none takes longer than it may.
        #[test]
        fn a_proxy_never_lets_pass_what_was_not_leased(
            steps in prop::collection::vec((0_u64..4_000, 0_u64..900, 0_u64..900, 0_u64..400, any::<bool>(), 0_u64..50), 1..60),
        ) {
            let (mut quota, mut bucket) = (Quota::new(0), Bucket::default());
            // The store's side: what the row has, what of it was told to be spent, and until when it lives.
            let (mut row, mut row_spent, mut row_until) = (0_u64, 0_u64, 0_u64);
            let (mut passed, mut denied, mut now_ms) = (0_u64, 0_u64, 0_u64);
            let mut reported = 0;
            for (pause, there, back, grant, arrives, wish) in steps {
                let mut spends = Vec::new();
                // What it takes is spread over the time between two reports.
                for part in 1..=8 {
                    let at_ms = now_ms + pause * part / 8;
                    let taken = bucket.takes(wish, at_ms);
                    (passed, denied) = (passed + taken, denied + wish - taken);
                    spends.push(taken);
                    if at_ms < row_until {
                        prop_assert!(passed - row_spent <= row, "{} of {row} at {at_ms}", passed - row_spent);
                    }
                }
                now_ms += pause;
                let (allowed, refused) = (passed - reported, denied);
                (reported, denied) = (passed, 0);
                // On its way the proxy goes on.
                passed += bucket.takes(u64::MAX, now_ms + there);
                now_ms += there;
                quota.reported(allowed, refused, now_ms);
                let message = quota.message(now_ms);
                if now_ms >= row_until {
                    (row, row_spent) = (0, message.spent);
                }
                let left = row.saturating_sub(message.spent - row_spent);
                row = message.kept.min(left) + grant.min(message.want);
                (row_spent, row_until) = (message.spent, now_ms + TTL_MS);
                let assignment = quota.heard(row, TTL_MS, now_ms);
                passed += bucket.takes(u64::MAX, now_ms + back);
                now_ms += back;
                if arrives {
                    bucket.hears(assignment, now_ms);
                }
                prop_assert!(passed - row_spent <= row, "{} of {row} after {assignment:?}", passed - row_spent);
            }
        }
    }
}
