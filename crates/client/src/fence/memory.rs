//! Fences in this process.

use super::refusal::StaleToken;
use crate::FencingToken;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The highest token that a resource in this process has seen.
///
/// [`check`](Self::check) is atomic, but it isn't one step with the write that follows: another thread can check a
/// higher token in between, and write first. Call it under the lock that the write is under, or take [`Fenced`].
///
/// ```
/// use baton_client::fence::{Fence, FencingToken};
///
/// let fence = Fence::new();
/// assert!(fence.check(FencingToken::new(34)).is_ok());
/// assert!(fence.check(FencingToken::new(34)).is_ok(), "a holder writes many times");
/// let stale = fence.check(FencingToken::new(33)).unwrap_err();
/// assert_eq!(stale.highest, Some(34));
/// ```
#[derive(Default, Debug)]
pub struct Fence(AtomicU64);

impl Fence {
    /// A fence that has seen nothing.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Accepts a token that is not lower than any before, and remembers it.
    pub fn check(&self, token: FencingToken) -> Result<(), StaleToken> {
        let before = self.0.fetch_max(token.get(), Ordering::AcqRel);
        if token.get() < before { Err(StaleToken::new(token, Some(before))) } else { Ok(()) }
    }

    /// The highest token so far; nothing before the first.
    pub fn highest(&self) -> Option<FencingToken> {
        Some(self.0.load(Ordering::Acquire)).filter(|highest| *highest > 0).map(FencingToken::new)
    }
}

/// A value that only the latest holder can write: check and write are one step.
///
/// ```
/// use baton_client::fence::{Fenced, FencingToken};
///
/// let stock = Fenced::new(10);
/// let left = stock.write(FencingToken::new(34), |stock| {
///     *stock -= 1;
///     *stock
/// });
/// assert_eq!(left, Ok(9));
/// assert!(stock.write(FencingToken::new(33), |stock| *stock = 0).is_err());
/// assert_eq!(stock.read(|stock| *stock), 9);
/// ```
#[derive(Default, Debug)]
pub struct Fenced<T> {
    fence: Fence,
    value: Mutex<T>,
}

impl<T> Fenced<T> {
    /// A value behind a fence that has seen nothing.
    pub const fn new(value: T) -> Self {
        Self { fence: Fence::new(), value: Mutex::new(value) }
    }

    /// Runs `write` on the value, unless a higher token was here before.
    pub fn write<R>(&self, token: FencingToken, write: impl FnOnce(&mut T) -> R) -> Result<R, StaleToken> {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.fence.check(token)?;
        Ok(write(&mut value))
    }

    /// Reads the value; that takes no token.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The highest token so far.
    pub fn highest(&self) -> Option<FencingToken> {
        self.fence.highest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn a_lower_token_is_refused_from_the_moment_a_higher_one_was_accepted() {
        // Writers race with all tokens from 1 up; whatever the order, the value is written by growing tokens only.
        let written = Fenced::new(Vec::new());
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (written, start) = (&written, &start);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..500 {
                        let token = FencingToken::new(1 + round * 8 + thread);
                        written.write(token, |all| all.push(token)).ok();
                    }
                });
            }
        });
        written.read(|all| {
            assert!(all.is_sorted() && all.last() == written.highest().as_ref(), "{all:?}");
            assert_eq!(all.last().map(|token| token.get()), Some(4000), "the highest always gets in");
        });
    }

    #[test]
    fn of_two_checks_that_race_the_higher_is_accepted_and_the_lower_only_before_it() {
        for _ in 0..1_000 {
            let (fence, start) = (Fence::new(), Barrier::new(2));
            let check = |token| {
                start.wait();
                fence.check(FencingToken::new(token))
            };
            let (low, high) = std::thread::scope(|scope| {
                let low = scope.spawn(|| check(1));
                let high = check(2);
                (low.join().unwrap(), high)
            });
            assert_eq!(high, Ok(()));
            assert!(low.is_ok() || low.unwrap_err().highest == Some(2));
            assert!(fence.check(FencingToken::new(1)).is_err());
        }
    }
}
