//! When to try again: exponential backoff with full jitter, inside a deadline.

use crate::clock::Moment;
use crate::error::{Error, Failure};
use crate::random;
use std::time::Duration;

const BACKOFF_FIRST_MS: u64 = 20;
const BACKOFF_MAX_MS: u64 = 2_000;

/// The tries of one call. They share one requestId, so any of them may be the one that counted.
pub(crate) struct Retry {
    deadline: Moment,
    tries: u32,
    unknown: bool,
}

impl Retry {
    pub(crate) fn until(deadline: Moment) -> Self {
        Self { deadline, tries: 0, unknown: false }
    }

    /// Gives it more time, from the shortest pause on; what may have been applied stays unknown.
    pub(crate) fn extend(&mut self, deadline: Moment) {
        self.deadline = self.deadline.max(deadline);
        self.tries = 0;
    }

    /// Pauses before the next try, or gives the call up: the failure is final, or there is no time for another.
    pub(crate) async fn pause(&mut self, failure: Failure) -> Result<(), Error> {
        self.unknown |= failure.may_have_applied();
        let pause = backoff(self.tries).max(Duration::from_millis(failure.retry_after_ms()));
        if !failure.is_transient() || pause >= self.deadline.remaining() {
            return Err(Error::from_failure(failure, self.unknown));
        }
        self.tries = self.tries.saturating_add(1);
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// Anything from nothing to twice as much as before: retries of many clients spread out.
pub(crate) fn backoff(tries: u32) -> Duration {
    let cap = BACKOFF_FIRST_MS.saturating_mul(1 << tries.min(20)).min(BACKOFF_MAX_MS);
    Duration::from_millis(random::up_to(cap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_is_jittered_and_capped() {
        assert!((0..100).all(|tries| backoff(tries) <= Duration::from_millis(BACKOFF_MAX_MS)));
        assert!((0..100).all(|_| backoff(0) <= Duration::from_millis(BACKOFF_FIRST_MS)));
    }

    #[tokio::test]
    async fn a_call_whose_time_is_up_reports_an_earlier_unknown_try() {
        let mut retry = Retry::until(Moment::now().after(Duration::from_millis(500)));
        retry.pause(Failure::Unknown("no answer".into())).await.unwrap();
        retry.deadline = Moment::now();
        let error = retry.pause(Failure::NotSent("refused".into())).await.unwrap_err();
        assert!(error.is_unknown() && !error.is_unreachable(), "{error}");
    }

    #[tokio::test]
    async fn a_call_that_never_left_is_not_unknown() {
        let error = Retry::until(Moment::now()).pause(Failure::NotSent("refused".into())).await.unwrap_err();
        assert!(error.is_unreachable() && !error.is_unknown(), "{error}");
    }
}
