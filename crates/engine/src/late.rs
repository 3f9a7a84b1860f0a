//! Starting without the store: a node that can't reach it serves all the same, as in an outage, and goes on when it has come.

use crate::engine::{Config, Engine, Node};
use crate::limit::{fallback, gossip};
use crate::random::Random;
use baton_core::WallTime;
use baton_store::{Late, Store};
use std::sync::Arc;
use std::time::Duration;

/// Before a store that was there, and then wasn't, is tried again.
const AGAIN: Duration = Duration::from_secs(1);

impl Engine {
    /// Starts a node on a store that hasn't been reached. `coming` gives it when it has been; until the node has met it, every call
    /// is refused but checks of limits whose definitions are known. `now` is the time until the store says its own.
    pub fn start_late(
        late: Late,
        coming: impl Future<Output = Arc<dyn Store>> + Send + 'static,
        now: WallTime,
        config: Config,
        random: Random,
    ) -> Self {
        let late = Arc::new(late);
        let node = Node::new(late.clone(), config, random);
        node.note_time(now);
        tokio::spawn(fallback::keep_synced(node.clone()));
        tokio::spawn(gossip::spread::keep(node.clone()));
        let engine = Self { node: node.clone() };
        tokio::spawn(async move {
            let meeting = async {
                let store = coming.await;
                loop {
                    match node.meet(&*store).await {
                        Ok(joined) => return (store, joined),
                        Err(error) => tracing::warn!(%error, "the store was there, and isn't any more"),
                    }
                    tokio::time::sleep(node.random.jittered(AGAIN)).await;
                }
            };
            tokio::select! {
                biased;
                () = node.draining.wait() => {}
                (store, joined) = meeting => {
                    late.arrived(store);
                    node.go_on(joined);
                }
            }
        });
        engine
    }
}
