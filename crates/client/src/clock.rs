//! Monotonic time that goes on while the machine sleeps. A lease does too: a clock that stops in suspend would
//! let a laptop wake up believing in a lock that expired hours ago (rule 2, L5).

use std::time::Duration;

/// How long one sleep lasts at most. Timers stop in suspend, this clock doesn't, so it is looked at this often.
const SLICE_MAX: Duration = Duration::from_secs(1);

/// A point in time on the clock that counts suspend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        // Elsewhere (macOS) the monotonic clock is the one that counts suspend.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(CLOCK);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// How long from `earlier` to here; nothing if it is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long from now to here; nothing if it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    pub(crate) fn has_passed(self) -> bool {
        Self::now() >= self
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns when the moment has come, also if the machine slept in between.
pub(crate) async fn sleep_until(moment: Moment) {
    loop {
        let remaining = moment.remaining();
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(remaining.min(SLICE_MAX)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_ordered_and_never_underflow() {
        let now = Moment::now();
        let later = now.after(Duration::from_millis(5));
        assert!(later > now);
        assert_eq!(later.since(now), Duration::from_millis(5));
        assert_eq!(now.since(later), Duration::ZERO);
        assert!(now.has_passed() && !now.after(Duration::MAX).has_passed());
    }
}
