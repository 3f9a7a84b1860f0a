//! Where the embedded store gets the time from, so that tests drive it instead of sleeping.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The two clocks a store needs.
pub trait Time: Send + Sync + 'static {
    /// Time since some fixed moment of this process; never steps.
    fn monotonic(&self) -> Duration;
    /// Time since the Unix epoch, as far as the machine knows; may step.
    fn wall(&self) -> Duration;
}

/// The machine's clocks.
pub struct RealTime {
    origin: Instant,
}

impl Default for RealTime {
    fn default() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Time for RealTime {
    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// Clocks that a test moves by hand.
pub struct ManualTime {
    clocks: Mutex<(Duration, Duration)>,
}

impl ManualTime {
    /// Clocks that stand still, with the wall clock at `wall`.
    pub fn new(wall: Duration) -> Self {
        Self { clocks: Mutex::new((Duration::ZERO, wall)) }
    }

    /// Lets both clocks run.
    pub fn advance(&self, by: Duration) {
        let mut clocks = self.clocks.lock().expect("no panic while held");
        clocks.0 += by;
        clocks.1 += by;
    }

    /// Steps the wall clock alone.
    pub fn step_wall(&self, to: Duration) {
        self.clocks.lock().expect("no panic while held").1 = to;
    }
}

impl Time for ManualTime {
    fn monotonic(&self) -> Duration {
        self.clocks.lock().expect("no panic while held").0
    }

    fn wall(&self) -> Duration {
        self.clocks.lock().expect("no panic while held").1
    }
}

/// The lease clock: what earlier runs had reached, plus the monotonic time since this one opened. In
/// microseconds. Down time counts as zero, so that a restart never expires a lease early.
pub(super) struct LeaseClock {
    reached_us: u64,
    opened: Duration,
}

impl LeaseClock {
    pub fn continuing(reached_us: u64, time: &dyn Time) -> Self {
        Self { reached_us, opened: time.monotonic() }
    }

    pub fn now_us(&self, time: &dyn Time) -> u64 {
        self.reached_us.saturating_add(micros(time.monotonic().saturating_sub(self.opened)))
    }
}

/// Whole microseconds, rounded up so that a time to live never becomes shorter than asked for.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
