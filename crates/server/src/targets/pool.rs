//! Connections to targets: those that are open and idle, to be used again, and whose turn it is to open another.

use super::connect::{Connection, Connector, Origin};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// Idle connections to one target; more are closed.
const PER_ORIGIN_MAX: usize = 32;
/// Idle connections to all of them; then those that have been idle for long are closed, or the new one is.
const ALL_MAX: usize = 512;
/// One that is idle for longer isn't used any more: the target, or something between, may have forgotten it.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// Connections to one target that are opened at once. Whoever needs one more waits for its turn, or for one that becomes idle: many that
/// are due together would else open a connection each, where a few do as well.
const OPENING_MAX: usize = 32;
/// Targets whose turns are known; beyond it those that nobody waits for are forgotten.
const TURNS_MAX: usize = 1_024;

/// Connections, by where they lead.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Origin, Vec<(Connection, Instant)>>>,
    turns: Mutex<HashMap<Origin, Weak<Turns>>>,
}

/// Who may open a connection to a target.
struct Turns {
    opening: Semaphore,
    /// One became idle.
    kept: Notify,
}

/// A connection for a request.
pub(super) enum Taken {
    /// It was used before, and may have been closed at the other end.
    Used(Connection),
    /// Nothing was sent on it yet.
    Fresh(Connection),
}

impl Pool {
    /// An idle connection, or else a fresh one, whichever comes first; a fresh one if it has to be.
    pub async fn get(&self, origin: &Origin, connector: &Connector, is_fresh: bool) -> Result<Taken, String> {
        let take = || if is_fresh { None } else { self.take(origin).map(Taken::Used) };
        if let Some(taken) = take() {
            return Ok(taken);
        }
        let turns = self.turns(origin);
        let turn = turns.opening.acquire();
        tokio::pin!(turn);
        loop {
            tokio::select! {
                biased;
                turn = &mut turn => {
                    let _turn = turn.map_err(|error| error.to_string())?;
                    return match take() {
                        Some(taken) => Ok(taken),
                        None => connector.connect(origin).await.map(Taken::Fresh),
                    };
                }
                () = turns.kept.notified(), if !is_fresh => {
                    if let Some(taken) = take() {
                        return Ok(taken);
                    }
                }
            }
        }
    }

    fn turns(&self, origin: &Origin) -> Arc<Turns> {
        let mut all = self.turns.lock().expect("no panic while held");
        if let Some(turns) = all.get(origin).and_then(Weak::upgrade) {
            return turns;
        }
        if all.len() >= TURNS_MAX {
            all.retain(|_, turns| turns.strong_count() > 0);
        }
        let turns = Arc::new(Turns { opening: Semaphore::new(OPENING_MAX), kept: Notify::new() });
        all.insert(origin.clone(), Arc::downgrade(&turns));
        turns
    }

    /// The one that was used last, if it still seems to be open.
    fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut idle = self.idle.lock().expect("no panic while held");
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
        if self.keep_idle(origin, connection)
            && let Some(turns) =
                self.turns.lock().expect("no panic while held").get(origin).and_then(Weak::upgrade)
        {
            turns.kept.notify_one();
        }
    }

    fn keep_idle(&self, origin: &Origin, connection: Connection) -> bool {
        let mut idle = self.idle.lock().expect("no panic while held");
        if idle.values().map(Vec::len).sum::<usize>() >= ALL_MAX {
            let is_fresh =
                |(other, since): &(Connection, Instant)| since.elapsed() < IDLE_MAX && !other.is_closed();
            idle.values_mut().for_each(|others| others.retain(is_fresh));
            idle.retain(|_, others| !others.is_empty());
            if idle.values().map(Vec::len).sum::<usize>() >= ALL_MAX {
                return false;
            }
        }
        let others = idle.entry(origin.clone()).or_default();
        let has_room = others.len() < PER_ORIGIN_MAX;
        if has_room {
            others.push((connection, Instant::now()));
        }
        has_room
    }
}
