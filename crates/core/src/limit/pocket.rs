//! What many threads spend from at once, without a lock: an amount, and the moment from which on its purse has to be looked at, in
//! one word. Whoever has the purse fills it with what may be spent without looking, and empties it before looking.
//! Spending is one compare-and-swap.
//!
//! A pocket may go to another key, if it was empty when it did, and is then only filled with alarms after any that it had before. Then
//! no word of the old key's ever comes back, and who read one can't spend of the new key's.

use core::sync::atomic::{AtomicU64, Ordering};

const AMOUNT_BITS: u32 = 24;
/// More than this is never in a pocket: the rest stays with the purse.
pub const AMOUNT_MAX: u64 = (1 << AMOUNT_BITS) - 1;
/// In milliseconds 34 years. A later alarm goes off then.
const ALARM_MAX_MS: u64 = u64::MAX >> AMOUNT_BITS;

/// See the module. An empty one has to be looked at by everyone.
#[derive(Debug, Default)]
pub struct Pocket(AtomicU64);

/// What became of an attempt to spend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It was there.
    Yes,
    /// Nothing was taken: the purse decides.
    Look,
    /// The pocket is another key's.
    Another,
}

impl Pocket {
    /// Takes, if it is there and nobody has to look first. `is_mine` says whether the pocket is the caller's key's: it is asked after
    /// the word was read, so a yes holds if the word is still the same when it is swapped.
    #[inline]
    pub fn take(&self, cost: u64, now_ms: u64, is_mine: impl Fn() -> bool) -> Taken {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if !is_mine() {
                return Taken::Another;
            }
            if now_ms >= word >> AMOUNT_BITS || cost > word & AMOUNT_MAX {
                return Taken::Look;
            }
            let left = word - cost;
            match self.0.compare_exchange_weak(word, left, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Taken::Yes,
                Err(changed) => word = changed,
            }
        }
    }

    /// Whether the purse has nothing to do yet.
    #[inline]
    pub fn is_quiet(&self, now_ms: u64) -> bool {
        now_ms < self.0.load(Ordering::Acquire) >> AMOUNT_BITS
    }

    /// What is in it.
    pub fn amount(&self) -> u64 {
        self.0.load(Ordering::Acquire) & AMOUNT_MAX
    }

    /// Takes everything out: what it was. From now on everyone has to look.
    pub fn empty(&self) -> u64 {
        self.0.swap(0, Ordering::AcqRel) & AMOUNT_MAX
    }

    /// Only for who has emptied it, and lets nobody else fill it meanwhile.
    pub fn fill(&self, amount: u64, alarm_ms: u64) {
        let word = alarm_ms.min(ALARM_MAX_MS) << AMOUNT_BITS | amount.min(AMOUNT_MAX);
        self.0.store(word, Ordering::Release);
    }

    /// What is in it goes to another pocket of the same key, which is empty.
    pub fn move_to(&self, other: &Self) {
        other.0.store(self.0.swap(0, Ordering::AcqRel), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_has_amount_and_alarm_side_by_side(amount in 0..=AMOUNT_MAX, alarm_ms in 1..=ALARM_MAX_MS) {
            let pocket = Pocket::default();
            pocket.fill(amount, alarm_ms);
            prop_assert_eq!(pocket.amount(), amount);
            prop_assert!(pocket.is_quiet(alarm_ms - 1) && !pocket.is_quiet(alarm_ms));
            prop_assert_eq!(pocket.take(amount + 1, 0, || true), Taken::Look);
            prop_assert_eq!(pocket.take(amount, alarm_ms - 1, || true), Taken::Yes);
            prop_assert_eq!(pocket.amount(), 0);
            prop_assert!(!pocket.is_quiet(alarm_ms), "what is taken leaves the alarm as it is");
        }
    }

    #[test]
    fn it_gives_what_it_has_until_the_alarm() {
        let pocket = Pocket::default();
        assert_eq!(pocket.take(1, 0, || true), Taken::Look, "an empty one");
        pocket.fill(100, 1_000);
        assert_eq!(pocket.take(90, 999, || true), Taken::Yes);
        assert_eq!(pocket.take(11, 999, || true), Taken::Look, "there is not enough");
        assert_eq!(pocket.take(1, 1_000, || true), Taken::Look, "it is time to look");
        assert_eq!(pocket.take(u64::MAX, 1, || true), Taken::Look);
        assert_eq!(pocket.take(1, 1, || false), Taken::Another);
        assert_eq!(pocket.empty(), 10);
        assert_eq!((pocket.amount(), pocket.take(1, 0, || true)), (0, Taken::Look));
    }

    #[test]
    fn who_read_the_key_before_it_changed_hands_cannot_spend_after() {
        let pocket = Pocket::default();
        pocket.fill(100, 1_000);
        let is_old = core::cell::Cell::new(true);
        // Between reading the word and swapping it the pocket goes to another key, with just as much in it.
        let taken = pocket.take(1, 1, || {
            if is_old.replace(false) {
                pocket.empty();
                pocket.fill(100, 1_001);
                return true;
            }
            false
        });
        assert_eq!((taken, pocket.amount()), (Taken::Another, 100));
    }

    #[test]
    fn what_is_too_much_for_it_stays_out_and_a_late_alarm_is_early() {
        let (pocket, other) = (Pocket::default(), Pocket::default());
        pocket.fill(u64::MAX, u64::MAX);
        assert!(pocket.is_quiet(ALARM_MAX_MS - 1) && !pocket.is_quiet(ALARM_MAX_MS));
        pocket.move_to(&other);
        assert_eq!((pocket.amount(), other.amount()), (0, AMOUNT_MAX));
        assert!(other.is_quiet(1) && !pocket.is_quiet(1));
    }
}
