//! Connections that are open and idle, to be used again.

use super::connect::{Connection, Origin};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Idle connections to one target; more are closed.
const PER_ORIGIN_MAX: usize = 32;
/// Idle connections to all of them; then those that have been idle for long are closed, or the new one is.
const ALL_MAX: usize = 512;
/// One that is idle for longer isn't used any more: the target, or something between, may have forgotten it.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Idle connections, by where they lead.
#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<Origin, Vec<(Connection, Instant)>>>);

impl Pool {
    /// The one that was used last, if it still seems to be open.
    pub fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut idle = self.0.lock().expect("no panic while held");
        let found = idle.get_mut(origin)?;
        while let Some((connection, since)) = found.pop() {
            if since.elapsed() < IDLE_MAX && connection.is_ready() {
                return Some(connection);
            }
        }
        idle.remove(origin);
        None
    }

    /// Keeps one whose answer was read to its end.
    pub fn keep(&self, origin: &Origin, connection: Connection) {
        let mut idle = self.0.lock().expect("no panic while held");
        if idle.values().map(Vec::len).sum::<usize>() >= ALL_MAX {
            let is_fresh =
                |(other, since): &(Connection, Instant)| since.elapsed() < IDLE_MAX && !other.is_closed();
            idle.values_mut().for_each(|others| others.retain(is_fresh));
            idle.retain(|_, others| !others.is_empty());
            if idle.values().map(Vec::len).sum::<usize>() >= ALL_MAX {
                return;
            }
        }
        let others = idle.entry(origin.clone()).or_default();
        if others.len() < PER_ORIGIN_MAX {
            others.push((connection, Instant::now()));
        }
    }
}
