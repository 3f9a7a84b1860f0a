//! What a fence says instead of yes, and retries that know the difference (F4).

use crate::clock::Moment;
use crate::retry::backoff;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// The resource has seen a higher token: someone else has the lock by now, and this write must not happen.
///
/// It is final. Nothing that is tried again with this token succeeds; stop, and look at what was done under it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct StaleToken {
    /// The token that was refused.
    pub token: u64,
    /// The highest that the resource has seen, if it says so.
    pub highest: Option<u64>,
}

impl StaleToken {
    /// A refusal, [counted](Self::count). For fences of your own.
    pub fn new(token: impl Into<u64>, highest: Option<u64>) -> Self {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        Self { token: token.into(), highest }
    }

    /// How many writes fences have refused in this process: a number for your metrics. Above zero, a holder was
    /// late, and nothing happened; growing steadily, leases are too short for the work.
    pub fn count() -> u64 {
        REFUSED.load(Ordering::Relaxed)
    }
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fencing token {} is stale", self.token)?;
        if let Some(highest) = self.highest {
            write!(f, ": the resource has seen {highest}")?;
        }
        f.write_str("; someone else has the lock by now, so don't try again: what was done under this token is suspect")
    }
}

impl std::error::Error for StaleToken {}

/// Why a fenced write didn't happen, or may not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused<E> {
    /// The fence said no. Never tried again.
    Stale(StaleToken),
    /// The resource, or the way to it, failed. Whether it was written is as unknown as its error says.
    Failed(E),
}

impl<E> Refused<E> {
    /// The fence's refusal, if it is one.
    pub fn stale(&self) -> Option<&StaleToken> {
        match self {
            Self::Stale(stale) => Some(stale),
            Self::Failed(_) => None,
        }
    }
}

impl<E> From<StaleToken> for Refused<E> {
    fn from(stale: StaleToken) -> Self {
        Self::Stale(stale)
    }
}

impl<E: fmt::Display> fmt::Display for Refused<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Refused<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stale(stale) => Some(stale),
            Self::Failed(error) => Some(error),
        }
    }
}

/// Tries a fenced write again, with growing, jittered pauses, while it fails in a way that `is_transient` says may
/// pass, for at most `time`. A stale token ends it at once.
///
/// A write that failed may have happened all the same, so it must be one that may happen twice.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use baton_client::fence::{Fenced, FencingToken, Refused, retry};
/// use baton_client::secs;
///
/// let stock = Fenced::new(10);
/// stock.write(FencingToken::new(35), |stock| *stock = 9).unwrap();
/// let mut tries = 0;
/// let late = retry(secs(5), |_: &std::io::Error| true, async || {
///     tries += 1;
///     Ok(stock.write(FencingToken::new(34), |stock| *stock = 8)?)
/// });
/// assert!(late.await.unwrap_err().stale().is_some());
/// assert_eq!(tries, 1);
/// # });
/// ```
pub async fn retry<T, E>(
    time: Duration,
    is_transient: impl Fn(&E) -> bool,
    mut write: impl AsyncFnMut() -> Result<T, Refused<E>>,
) -> Result<T, Refused<E>> {
    let deadline = Moment::now().after(time);
    let mut tries = 0;
    loop {
        let error = match write().await {
            Err(Refused::Failed(error)) if is_transient(&error) => error,
            settled => return settled,
        };
        let pause = backoff(tries);
        if pause >= deadline.remaining() {
            return Err(Refused::Failed(error));
        }
        tries = tries.saturating_add(1);
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_that_may_pass_is_tried_again_and_a_stale_token_is_not() {
        let mut answers = vec![Ok(()), Err(Refused::Failed("busy")), Err(Refused::Failed("busy"))];
        let written =
            retry(Duration::from_secs(5), |error| *error == "busy", async || answers.pop().unwrap());
        assert_eq!(written.await, Ok(()));

        let mut answers =
            vec![Ok(()), Err(Refused::Stale(StaleToken::new(33u64, Some(34)))), Err(Refused::Failed("busy"))];
        let late = retry(Duration::from_secs(5), |_| true, async || answers.pop().unwrap()).await;
        assert_eq!(late.unwrap_err().stale().map(|stale| stale.highest), Some(Some(34)));
        assert_eq!(answers.len(), 1, "it was tried again");
    }

    #[tokio::test]
    async fn a_failure_that_does_not_pass_and_time_that_is_up_end_it() {
        let mut tries = 0;
        let failed = retry(
            Duration::from_secs(5),
            |_| false,
            async || {
                tries += 1;
                Err::<(), _>(Refused::Failed("broken"))
            },
        );
        assert_eq!((failed.await, tries), (Err(Refused::Failed("broken")), 1));
        let over = retry(Duration::ZERO, |_| true, async || Err::<(), _>(Refused::Failed("busy"))).await;
        assert_eq!(over, Err(Refused::Failed("busy")));
    }

    #[test]
    fn refusals_are_counted_and_say_what_to_do() {
        let before = StaleToken::count();
        let stale = StaleToken::new(33u64, Some(34));
        assert!(StaleToken::count() > before);
        let said = stale.to_string();
        assert!(said.contains("33") && said.contains("34") && said.contains("don't try again"), "{said}");
    }
}
