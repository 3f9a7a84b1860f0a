//! The time for a check: a few nanoseconds to read, and never behind.
//!
//! A lease must not be spent after its end, so this clock may be early about it and never late. The kernel's coarse clock says which
//! tick it is, for a tenth of what the exact time costs; the exact time, on the clock that counts suspend, is read once for each tick.
//! What may have passed since then is added. A process that was stopped finds another tick when it goes on: nothing
//! has to run in the background for that.

use crate::clock::Moment;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many ticks may pass before the coarse clock shows it: one processor advances it, and if that one stands still (as on a virtual
/// machine that shares its processors) another takes over after five.
const TICKS_LATE_MAX: u64 = 6;

/// Milliseconds since it was made, from 1 on: 0 is when nothing has happened yet.
pub(super) struct Clock {
    began: Moment,
    /// What may have passed since the exact time was read, although the coarse clock still shows the same tick.
    tick_ms: u64,
    /// The last tick whose time was read.
    tick: AtomicU64,
    /// The exact time in that tick, or later.
    tick_at_ms: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            began: Moment::now(),
            // And one for what is cut off.
            tick_ms: TICKS_LATE_MAX * coarse::resolution_ms() + 1,
            tick: AtomicU64::new(0),
            tick_at_ms: AtomicU64::new(0),
        }
    }
}

impl Clock {
    /// Exactly, for what is said to the server.
    pub fn now_ms(&self) -> u64 {
        Moment::now().since(self.began).as_millis() as u64 + 1
    }

    /// Now, or a few ticks later: for deciding whether something may still be spent.
    #[inline]
    pub fn not_before_ms(&self) -> u64 {
        let tick = coarse::tick();
        match self.tick.load(Ordering::Acquire) == tick {
            // It was written before the tick was, so it is at least this tick's.
            true => self.tick_at_ms.load(Ordering::Acquire) + self.tick_ms,
            false => self.read(tick),
        }
    }

    #[cold]
    fn read(&self, tick: u64) -> u64 {
        let now_ms = self.now_ms();
        self.tick_at_ms.fetch_max(now_ms, Ordering::AcqRel);
        self.tick.store(tick, Ordering::Release);
        now_ms + self.tick_ms
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod coarse {
    use rustix::time::{ClockId, clock_getres, clock_gettime};

    #[inline]
    pub fn tick() -> u64 {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        // Differs from tick to tick, which is all that is asked of it.
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }

    pub fn resolution_ms() -> u64 {
        let resolution = clock_getres(ClockId::MonotonicCoarse);
        let nanos = (resolution.tv_sec as u64).saturating_mul(1_000_000_000) + resolution.tv_nsec as u64;
        nanos.div_ceil(1_000_000)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod coarse {
    use crate::clock::Moment;

    /// Without a coarse clock every moment is a tick of its own.
    pub fn tick() -> u64 {
        Moment::now().as_nanos()
    }

    pub fn resolution_ms() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_never_behind_the_exact_time_and_never_far_ahead() {
        let clock = Clock::default();
        let until_ms = clock.now_ms() + 60;
        loop {
            let before_ms = clock.now_ms();
            let quick_ms = clock.not_before_ms();
            let after_ms = clock.now_ms();
            assert!(quick_ms >= before_ms, "{quick_ms} at {before_ms}");
            assert!(quick_ms <= after_ms + clock.tick_ms, "{quick_ms} at {after_ms}");
            if after_ms > until_ms {
                return;
            }
        }
    }

    #[test]
    fn a_tick_that_was_read_late_takes_nothing_back() {
        let clock = Clock::default();
        let ahead_ms = clock.now_ms() + 1_000;
        clock.tick_at_ms.store(ahead_ms, Ordering::Release);
        clock.read(7);
        assert_eq!(clock.tick_at_ms.load(Ordering::Acquire), ahead_ms);
    }
}
