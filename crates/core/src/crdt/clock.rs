//! A hybrid logical clock: near the wall clock, later than everything that was seen, and never back.
//!
//! It orders writes of registers. A replica whose wall clock is far behind what it has seen refuses to write them, since its
//! writes would carry a time that is not its own; and what comes from another replica with a time far ahead waits until that
//! time is near, so that one wrong clock doesn't drag all others along.

use core::time::Duration;

/// How far clocks may be apart.
pub const DRIFT_MAX: Duration = Duration::from_secs(60);

/// A moment: the wall clock in milliseconds, and a count within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Hlc {
    /// Since the Unix epoch.
    pub ms: u64,
    /// Orders what happened in one millisecond, or while the wall clock was behind.
    pub count: u32,
}

/// The wall clock is behind what was already seen by more than [`DRIFT_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skewed {
    /// By this much.
    pub behind: Duration,
}

/// The clock of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    highest: Hlc,
}

impl Clock {
    /// A moment after everything that was seen; `now_ms` is the wall clock.
    pub fn tick(&mut self, now_ms: u64) -> Result<Hlc, Skewed> {
        let behind = self.highest.ms.saturating_sub(now_ms);
        if u128::from(behind) > DRIFT_MAX.as_millis() {
            return Err(Skewed { behind: Duration::from_millis(behind) });
        }
        self.highest = if now_ms > self.highest.ms {
            Hlc { ms: now_ms, count: 0 }
        } else {
            match self.highest.count.checked_add(1) {
                Some(count) => Hlc { ms: self.highest.ms, count },
                None => Hlc { ms: self.highest.ms + 1, count: 0 },
            }
        };
        Ok(self.highest)
    }

    /// Something with this time was taken in.
    pub fn observe(&mut self, seen: Hlc) {
        self.highest = self.highest.max(seen);
    }

    /// The latest moment that it gave out or saw.
    pub fn highest(&self) -> Hlc {
        self.highest
    }
}

/// How long something with this time has to wait before it is taken in; nothing if it is near enough.
pub fn early_by(seen: Hlc, now_ms: u64) -> Option<Duration> {
    let ahead = Duration::from_millis(seen.ms.saturating_sub(now_ms));
    ahead.checked_sub(DRIFT_MAX).filter(|early| !early.is_zero())
}
