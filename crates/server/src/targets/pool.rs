//! Connections to targets: those that are open and idle, to be used again, and whose turn it is to open another.
//!
//! Many requests that are due together would each open a connection, where a few do as well: opening one takes longer than a request on
//! one that is open. So whoever has sent a request keeps its turn for a moment, or until it is answered, and then the next one finds that
//! connection. A target that takes longer to answer gets as many connections as it takes, a few at a time.

use super::connect::{Connection, Connector, Origin};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Idle connections to one target; more are closed.
const PER_ORIGIN_MAX: usize = 32;
/// Idle connections to all of them; then those that have been idle for long are closed, or the new one is.
const ALL_MAX: usize = 512;
/// One that is idle for longer isn't used any more: the target, or something between, may have forgotten it.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// Who may send to one target at a time: with as many requests under way, others wait for their turn, or for a connection that becomes
/// idle.
const TURNS: usize = PER_ORIGIN_MAX;
/// How long a turn lasts once its request was sent. A target that takes longer for an answer is sent 16,000 requests a second at most.
const TURN_MAX: Duration = Duration::from_millis(2);
/// Targets whose turns are known; beyond it those that nobody waits for are forgotten.
const TURNS_MAX: usize = 1_024;

/// Connections, by where they lead.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Origin, Vec<(Connection, Instant)>>>,
    turns: Mutex<HashMap<Origin, Weak<Turns>>>,
}

/// Who may send to a target.
struct Turns {
    free: Arc<Semaphore>,
    /// A connection became idle although its turn was over.
    kept: Notify,
}

/// It is somebody's turn to send to a target.
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
}

impl Turn {
    /// Waits for an answer; nobody else waits for it long.
    pub async fn lasting_for<T>(turn: &mut Option<Self>, answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        if turn.is_some() {
            if let Ok(answered) = timeout(TURN_MAX, &mut answer).await {
                return answered;
            }
            *turn = None;
        }
        answer.await
    }
}

/// A connection for a request, and the turn, unless that is over.
pub(super) enum Taken {
    /// It was used before, and may have been closed at the other end.
    Used(Connection, Option<Turn>),
    /// Nothing was sent on it yet.
    Fresh(Connection, Option<Turn>),
}

impl Pool {
    /// An idle connection, or else a fresh one, when it is one's turn; a fresh one if it has to be. If it is nobody's turn, one that is idle
    /// anyway.
    pub async fn get(&self, origin: &Origin, connector: &Connector, is_fresh: bool) -> Result<Taken, String> {
        let turns = self.turns(origin);
        // All turns may be those of requests that wait for the target to take their connection.
        if !is_fresh
            && turns.free.available_permits() == 0
            && let Some(connection) = self.take(origin)
        {
            return Ok(Taken::Used(connection, None));
        }
        let turn = turns.free.clone().acquire_owned();
        tokio::pin!(turn);
        loop {
            tokio::select! {
                biased;
                turn = &mut turn => {
                    let turn = Turn { _permit: turn.map_err(|error| error.to_string())? };
                    if is_fresh {
                        // It is never used again, so there is nothing to wait for.
                        return connector.connect(origin).await.map(|connection| Taken::Fresh(connection, None));
                    }
                    return match self.take(origin) {
                        Some(connection) => Ok(Taken::Used(connection, Some(turn))),
                        None => connector.connect(origin).await.map(|fresh| Taken::Fresh(fresh, Some(turn))),
                    };
                }
                () = turns.kept.notified(), if !is_fresh => {
                    if let Some(connection) = self.take(origin) {
                        return Ok(Taken::Used(connection, None));
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
        let turns = Arc::new(Turns { free: Arc::new(Semaphore::new(TURNS)), kept: Notify::new() });
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

    /// Keeps one whose answer was read to its end. Whoever's turn is next finds it.
    pub fn keep(&self, origin: &Origin, connection: Connection, turn: Option<Turn>) {
        if self.keep_idle(origin, connection)
            && turn.is_none()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_lasts_until_the_answer_has_come_but_not_for_long() {
        let free = Arc::new(Semaphore::new(1));
        let mut turn = Some(Turn { _permit: free.clone().try_acquire_owned().unwrap() });
        Turn::lasting_for(&mut turn, std::future::ready(())).await;
        assert!(turn.is_some(), "it is given up when the connection is there for the next one");
        let slow = async {
            while free.available_permits() == 0 {
                tokio::task::yield_now().await;
            }
        };
        let waited = timeout(Duration::from_secs(20), Turn::lasting_for(&mut turn, slow)).await;
        assert!(waited.is_ok() && turn.is_none(), "others wait for a slow target's answer");
    }
}
