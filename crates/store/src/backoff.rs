//! Pauses between attempts at a server: longer each time, and never those of two nodes at the same moments.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// How long the next pause is.
#[derive(Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// It worked.
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// It didn't: waits before the next attempt.
    pub async fn wait(&mut self) {
        let longest = (FIRST * 2_u32.pow(self.0.min(6))).min(LONGEST);
        self.0 = self.0.saturating_add(1);
        tokio::time::sleep(spread(longest)).await;
    }
}

/// From a half of it to the whole.
pub(crate) fn spread(longest: Duration) -> Duration {
    // Without randomness the waits are equal, which does no harm.
    let dice = getrandom::u32().unwrap_or_default() % 1000;
    longest / 2 + longest * dice / 2000
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_a_second_and_no_two_are_alike() {
        let mut backoff = Backoff::default();
        for longest in [50, 100, 200, 400, 800, 1000, 1000] {
            let begun = Instant::now();
            backoff.wait().await;
            let waited = begun.elapsed().as_millis();
            assert!((longest / 2..=longest + 1).contains(&waited), "{waited} of {longest}");
        }
        backoff.reset();
        let begun = Instant::now();
        backoff.wait().await;
        assert!(begun.elapsed() <= FIRST + Duration::from_millis(1));
        let spreads: Vec<_> = (0..20).map(|_| spread(LONGEST)).collect();
        assert!(spreads.iter().any(|one| *one != spreads[0]), "{spreads:?}");
    }
}
