//! What is in a purse: a balance, and two marks that its [purse](super::purse) sets: a moment from which on, and a level below
//! which, the purse has to be looked at. It is one holder's at a time; what threads spend beside each other is put into a
//! [pocket](super::pocket) before.

use super::narrow::{I40, U40};
use super::pocket::AMOUNT_MAX;
use core::cell::Cell;

/// More than this is never in a till: whoever lends more is taken to have lent this.
pub(super) const BALANCE_MAX: i64 = I40::MAX;

/// See the module. An empty one has to be looked at by everyone.
#[derive(Debug, Default)]
pub struct Till {
    /// It may be below zero if more was spent than the store knew of as given.
    balance: Cell<I40>,
    /// From when on the purse decides: it is closed, or should be renewed.
    alarm_ms: Cell<U40>,
    /// Below this more should be asked for.
    low: Cell<I40>,
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
}

impl Till {
    /// One with so much in it, and no marks yet.
    pub fn of(balance: i64) -> Self {
        let till = Self::default();
        till.change(|_| balance);
        till
    }

    /// Takes, if it is there and nobody has to look first.
    pub fn take(&self, cost: u64, now_ms: u64) -> Taken {
        let Ok(cost) = i64::try_from(cost) else { return Taken::Look };
        if self.balance() < cost || !self.is_quiet(now_ms) {
            return Taken::Look;
        }
        let (_, left) = self.change(|balance| balance - cost);
        if left < self.low.get().get() { Taken::Last } else { Taken::Yes }
    }

    /// Whether the purse has nothing to do yet.
    pub fn is_quiet(&self, now_ms: u64) -> bool {
        now_ms < self.alarm_ms.get().get()
    }

    /// What is in it.
    pub fn balance(&self) -> i64 {
        self.balance.get().get()
    }

    /// Takes out what fits into a pocket and may be spent without looking until the alarm. How much, and when that is.
    pub fn pocket(&self) -> (u64, u64) {
        let above = self.balance().saturating_sub(self.low.get().get()).min(self.balance());
        let amount = u64::try_from(above).unwrap_or_default().min(AMOUNT_MAX);
        self.balance.set(I40::of(self.balance() - amount as i64));
        (amount, self.alarm_ms.get().get())
    }

    /// What it was, and what it is then.
    pub(super) fn change(&self, to: impl Fn(i64) -> i64) -> (i64, i64) {
        let before = self.balance();
        let after = to(before).clamp(-BALANCE_MAX, BALANCE_MAX);
        self.balance.set(I40::of(after));
        (before, after)
    }

    pub(super) fn set_marks(&self, alarm_ms: u64, low: i64) {
        self.low.set(I40::of(low));
        self.alarm_ms.set(U40::of(alarm_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(balance: i64) -> Till {
        let till = Till::of(balance);
        till.set_marks(1_000, 10);
        till
    }

    #[test]
    fn it_gives_what_it_has_until_the_alarm_and_says_when_it_is_low() {
        let till = open(100);
        assert_eq!(till.take(90, 1), Taken::Yes);
        assert_eq!(till.take(1, 1), Taken::Last);
        assert_eq!(till.take(10, 1), Taken::Look, "there is not enough");
        assert_eq!(till.take(9, 1_000), Taken::Look, "it is time to look");
        assert_eq!(till.take(u64::MAX, 1), Taken::Look);
        assert_eq!(till.balance(), 9);
        assert!(till.is_quiet(999) && !till.is_quiet(1_000));
    }

    #[test]
    fn a_pocket_gets_what_is_above_the_low_mark_and_fits() {
        for (balance, low, amount) in [
            (100, 10, 90),
            (9, 10, 0),
            (-5, i64::MIN, 0),
            (100, i64::MIN, 100),
            (100, i64::MAX, 0),
            (BALANCE_MAX, 0, AMOUNT_MAX),
        ] {
            let till = Till::of(balance);
            till.set_marks(1_000, low);
            assert_eq!(till.pocket(), (amount, 1_000), "of {balance} above {low}");
            assert_eq!(till.balance(), balance - amount as i64, "the rest stays");
        }
    }

    #[test]
    fn more_than_a_till_holds_is_not_in_it() {
        let till = open(5);
        assert_eq!(till.change(|balance| balance.saturating_add(i64::MAX)), (5, BALANCE_MAX));
        assert_eq!(till.change(|_| i64::MIN), (BALANCE_MAX, -BALANCE_MAX));
    }
}
