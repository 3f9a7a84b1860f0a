//! How long the machine has slept: suspended, hibernated. Timers and `Instant` stand still meanwhile, leases at the store don't.
//!
//! So a node that wakes up must neither spend what it was lent before (M2), nor begin what had to be over (J3). It reckons what its own clock says
//! and the time it slept. A process that is stopped while the machine runs needs none of this, since the clock goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The longest sleep that was seen, in nanoseconds since the machine was started: it only grows.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Where it is known from.
#[derive(Clone, Default, Debug)]
pub enum Asleep {
    /// The system's two clocks, of which one stands still.
    #[default]
    System,
    /// Milliseconds that somebody else sets.
    Set(Arc<AtomicU64>),
}

impl Asleep {
    /// For how long, since some moment before this process began.
    pub fn so_far(&self) -> Duration {
        match self {
            Self::System => system(),
            Self::Set(ms) => Duration::from_millis(ms.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let nanos = |clock| {
        let now = clock_gettime(clock);
        (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
    };
    // In this order whoever is held up between the two makes the sleep shorter and never longer.
    let (with, without) = (nanos(ClockId::Boottime), nanos(ClockId::Monotonic));
    let slept = with.saturating_sub(without);
    // Every check asks, on all cores: it is written only when there was a sleep, or the two clocks are told apart better than before.
    let seen = SEEN.load(Ordering::Relaxed);
    let seen = if slept > seen { SEEN.fetch_max(slept, Ordering::Relaxed).max(slept) } else { seen };
    Duration::from_nanos(seen)
}

/// Elsewhere it isn't known. Where the clock that `Instant` reads stands still in sleep there too, as on macOS, a machine that slept goes on as
/// if it hadn't: nodes that must not be wrong about that run on Linux.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn system() -> Duration {
    Duration::ZERO
}

/// A moment that is told from another also by how long the machine slept in between.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    /// By the clock that stands still in sleep.
    pub at: Instant,
    slept: Duration,
    asleep: Asleep,
}

impl Moment {
    pub fn now(asleep: &Asleep) -> Self {
        // First: a sleep in between counts for what begins here.
        let slept = asleep.so_far();
        Self { at: Instant::now(), slept, asleep: asleep.clone() }
    }

    /// How long ago it was.
    pub fn elapsed(&self) -> Duration {
        self.at.elapsed() + self.slept_since()
    }

    /// How long the machine slept since.
    pub fn slept_since(&self) -> Duration {
        self.asleep.so_far().saturating_sub(self.slept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_sleep_only_grows_and_is_none_while_it_is_awake() {
        let before = Asleep::System.so_far();
        for _ in 0..1_000 {
            let now = Asleep::System.so_far();
            assert!(now >= before && now - before < Duration::from_millis(1), "{before:?} {now:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_as_long_ago_as_the_clock_says_and_the_sleep_since() {
        let ms = Arc::new(AtomicU64::new(5));
        let moment = Moment::now(&Asleep::Set(ms.clone()));
        tokio::time::advance(Duration::from_millis(20)).await;
        ms.fetch_add(300, Ordering::Relaxed);
        assert_eq!(
            (moment.slept_since(), moment.elapsed()),
            (Duration::from_millis(300), Duration::from_millis(320))
        );
    }
}
