//! What many threads spend from at once, without a lock: the hot half of a purse.
//!
//! A till has a balance, and two marks that its [purse](super::purse) sets: a moment from which on, and a level below which, the
//! purse has to be looked at. Spending is one compare-and-swap. Only the purse's holder puts something in, and takes back.
//!
//! A till may be given to another key. Its *turn*, which is in the same word as the balance, counts that: whoever read the key
//! before that can't spend after it. A turn is 24 bits, so it repeats after 16 million keys; to be fooled a thread would have
//! to be stopped for all of them, between reading the word and swapping it, and find the very same balance.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

const BALANCE_BITS: u32 = 40;
const BALANCE_MASK: u64 = (1 << BALANCE_BITS) - 1;
/// More than this is never in a till: whoever lends more is taken to have lent this.
pub(super) const BALANCE_MAX: i64 = (1 << (BALANCE_BITS - 1)) - 1;

/// See the module. An empty one has to be looked at by everyone.
#[derive(Debug, Default)]
pub struct Till {
    /// The turn, and below it the balance. That may be below zero if more was spent than the store knew of as given.
    word: AtomicU64,
    /// From when on the purse decides: it is closed, or should be renewed.
    alarm_ms: AtomicU64,
    /// Below this more should be asked for.
    low: AtomicI64,
}

/// What became of an attempt to spend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It was there, and enough is left.
    Yes,
    /// It was there, and little is left: the purse has to be looked at.
    Last,
    /// Nothing was taken: the purse decides.
    Look,
    /// The till is another key's.
    Another,
}

fn balance_in(word: u64) -> i64 {
    // The shift back brings the sign along.
    ((word << (u64::BITS - BALANCE_BITS)) as i64) >> (u64::BITS - BALANCE_BITS)
}

fn with_balance(word: u64, balance: i64) -> u64 {
    (word & !BALANCE_MASK) | (balance.clamp(-BALANCE_MAX, BALANCE_MAX) as u64 & BALANCE_MASK)
}

impl Till {
    /// Takes, if it is there and nobody has to look first. `is_mine` says whether the till is the caller's key's: it is asked after
    /// the word was read, so a yes holds if the word is still the same when it is swapped.
    #[inline]
    pub fn take(&self, cost: u64, now_ms: u64, is_mine: impl Fn() -> bool) -> Taken {
        let Ok(cost) = i64::try_from(cost) else { return Taken::Look };
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if !is_mine() {
                return Taken::Another;
            }
            let balance = balance_in(word);
            if balance < cost || now_ms >= self.alarm_ms.load(Ordering::Acquire) {
                return Taken::Look;
            }
            let left = balance - cost;
            match self.word.compare_exchange_weak(
                word,
                with_balance(word, left),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let is_low = left < self.low.load(Ordering::Relaxed);
                    return if is_low { Taken::Last } else { Taken::Yes };
                }
                Err(changed) => word = changed,
            }
        }
    }

    /// Whether the purse has nothing to do yet.
    #[inline]
    pub fn is_quiet(&self, now_ms: u64) -> bool {
        now_ms < self.alarm_ms.load(Ordering::Acquire)
    }

    /// Empties it for another key: from now on nobody spends who knew it as the old one's.
    pub fn pass_on(&self) {
        self.set_marks(0, 0);
        self.change(|_| 0);
        self.word.fetch_add(1 << BALANCE_BITS, Ordering::AcqRel);
    }

    pub(super) fn balance(&self) -> i64 {
        balance_in(self.word.load(Ordering::Acquire))
    }

    /// What it was, and what it is then.
    pub(super) fn change(&self, to: impl Fn(i64) -> i64) -> (i64, i64) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let changed = with_balance(word, to(balance_in(word)));
            match self.word.compare_exchange_weak(word, changed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (balance_in(word), balance_in(changed)),
                Err(other) => word = other,
            }
        }
    }

    pub(super) fn set_marks(&self, alarm_ms: u64, low: i64) {
        self.low.store(low, Ordering::Relaxed);
        self.alarm_ms.store(alarm_ms, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_has_turn_and_balance_side_by_side(turn in 0..1_u64 << 24, balance in -BALANCE_MAX..=BALANCE_MAX) {
            let word = with_balance(turn << BALANCE_BITS, balance);
            prop_assert_eq!((word >> BALANCE_BITS, balance_in(word)), (turn, balance));
        }
    }

    fn open(balance: i64) -> Till {
        let till = Till::default();
        till.change(|_| balance);
        till.set_marks(1_000, 10);
        till
    }

    #[test]
    fn it_gives_what_it_has_until_the_alarm_and_says_when_it_is_low() {
        let till = open(100);
        assert_eq!(till.take(90, 1, || true), Taken::Yes);
        assert_eq!(till.take(1, 1, || true), Taken::Last);
        assert_eq!(till.take(10, 1, || true), Taken::Look, "there is not enough");
        assert_eq!(till.take(9, 1_000, || true), Taken::Look, "it is time to look");
        assert_eq!(till.take(u64::MAX, 1, || true), Taken::Look);
        assert_eq!(till.take(1, 1, || false), Taken::Another);
        assert_eq!(till.balance(), 9);
        assert!(till.is_quiet(999) && !till.is_quiet(1_000));
    }

    #[test]
    fn who_read_the_key_before_it_was_passed_on_cannot_spend_after() {
        let till = open(100);
        let is_old = core::cell::Cell::new(true);
        // Between reading the word and swapping it the till goes to another key, with just as much in it.
        let taken = till.take(1, 1, || {
            if is_old.replace(false) {
                till.pass_on();
                till.change(|_| 100);
                till.set_marks(1_000, 10);
                return true;
            }
            false
        });
        assert_eq!((taken, till.balance()), (Taken::Another, 100));
    }

    #[test]
    fn more_than_a_till_holds_is_not_in_it() {
        let till = open(5);
        assert_eq!(till.change(|balance| balance.saturating_add(i64::MAX)), (5, BALANCE_MAX));
        assert_eq!(till.change(|_| i64::MIN), (BALANCE_MAX, -BALANCE_MAX));
    }
}
