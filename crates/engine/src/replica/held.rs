//! Changes whose time isn't near yet: looked at again until it is (D9).

use super::Shared;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// How often it is looked whether what is held has come near.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Takes in what has come near, until the replica is closed or broken. Nothing is done while nothing is held.
pub(super) async fn keep(shared: Weak<Shared>, holds: Arc<Notify>) {
    loop {
        holds.notified().await;
        loop {
            {
                let Some(shared) = shared.upgrade() else { return };
                let now_ms = shared.now_ms();
                let mut ahead = shared.ahead();
                if ahead.closed || ahead.failed {
                    return;
                }
                ahead.release(now_ms);
                if ahead.held.is_empty() {
                    break;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
