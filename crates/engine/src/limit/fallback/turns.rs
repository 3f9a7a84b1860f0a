//! The same request, sent again while it is being decided: one after the other, so that the second finds what became of the first.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Requests that are being decided: never more than there are calls.
#[derive(Default)]
pub(crate) struct Turns {
    under_way: Mutex<HashSet<[u8; 16]>>,
    over: Notify,
}

/// Nobody else decides this request meanwhile.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    request: [u8; 16],
}

impl Turns {
    /// When nobody else has it; nothing if that takes too long.
    pub async fn take(&self, request: [u8; 16], until: Instant) -> Option<Turn<'_>> {
        loop {
            let over = self.over.notified();
            if self.under_way().insert(request) {
                return Some(Turn { turns: self, request });
            }
            timeout_at(until, over).await.ok()?;
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<[u8; 16]>> {
        self.under_way.lock().expect("no panic while held")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.under_way().remove(&self.request);
        // Few wait, and seldom: whoever waits for another one waits again.
        self.turns.over.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_for_each_request_and_not_for_ever() {
        let turns = Turns::default();
        let until = Instant::now() + Duration::from_secs(1);
        let first = turns.take([1; 16], until).await.unwrap();
        assert!(turns.take([2; 16], until).await.is_some(), "another request");
        assert!(turns.take([1; 16], until).await.is_none(), "not in time");
        let until = Instant::now() + Duration::from_secs(1);
        let (second, ()) = tokio::join!(turns.take([1; 16], until), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(second.is_some() && Instant::now() < until);
        drop(second);
        assert!(turns.under_way().is_empty());
    }
}
