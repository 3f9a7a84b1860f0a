//! A flag that is raised once and waited for. Who waits is woken in the order they came, where a watch channel
//! wakes in a random one: a simulation has to be the same for the same seed.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// A flag that is raised once.
#[derive(Default)]
pub struct Signal {
    is_raised: AtomicBool,
    raised: Notify,
}

impl Signal {
    /// Raises it, for good.
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
        self.raised.notify_waiters();
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::SeqCst)
    }

    /// Resolves when it is raised.
    pub async fn wait(&self) {
        // Made before the look, so that nothing is missed in between.
        let raised = self.raised.notified();
        if !self.is_raised() {
            raised.await;
        }
    }
}
