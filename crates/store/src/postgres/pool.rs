//! A few connections, each of which comes back by itself.

use super::Unopened;
use super::group::Group;
use super::hints::Hints;
use super::session::{Failure, Session};
use super::target::Target;
use crate::backoff::Backoff;
use crate::contract::{Reason, StoreError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

/// More than this many statements waiting on one connection are refused: it could not answer them in time.
const WAITING_MAX: usize = 256;

#[derive(Default)]
struct Link {
    session: Mutex<Option<Arc<Session>>>,
    trouble: Mutex<Option<Unopened>>,
    attempts: AtomicUsize,
}

impl Link {
    fn session(&self) -> Option<Arc<Session>> {
        let session = self.session.lock().expect("no panic while held");
        session.as_ref().filter(|session| !session.is_over()).cloned()
    }

    async fn keep(&self, target: &Target, group: &Group, hints: &Hints) {
        let mut backoff = Backoff::default();
        loop {
            match Session::start(target).await {
                Ok((session, mut driver)) => {
                    backoff.reset();
                    let session = Arc::new(session);
                    *self.session.lock().expect("no panic while held") = Some(session.clone());
                    group.serve(&session, &mut driver, hints).await;
                    drop(driver);
                    *self.session.lock().expect("no panic while held") = None;
                    tracing::warn!("a connection to PostgreSQL is gone");
                }
                Err(trouble) => {
                    tracing::warn!("no connection to PostgreSQL: {trouble}");
                    *self.trouble.lock().expect("no panic while held") = Some(trouble);
                }
            }
            self.attempts.fetch_add(1, Ordering::Relaxed);
            backoff.wait().await;
        }
    }
}

/// The connections. Dropping it closes them.
pub(super) struct Pool {
    links: Vec<Arc<Link>>,
    _tasks: JoinSet<()>,
}

impl Pool {
    pub fn start(target: &Arc<Target>, group: &Arc<Group>, hints: &Arc<Hints>) -> Self {
        let links: Vec<_> = (0..target.connections).map(|_| Arc::new(Link::default())).collect();
        let mut tasks = JoinSet::new();
        for link in links.clone() {
            let (target, group, hints) = (target.clone(), group.clone(), hints.clone());
            tasks.spawn(async move { link.keep(&target, &group, &hints).await });
        }
        Self { links, _tasks: tasks }
    }

    /// The connection that has the least to do.
    pub fn session(&self) -> Result<Arc<Session>, StoreError> {
        let sessions = self.links.iter().filter_map(|link| link.session());
        let idlest = sessions.min_by_key(|session| session.waiting.load(Ordering::Relaxed));
        let refused = |reason, detail| Err(StoreError::NotApplied { reason, detail });
        let Some(session) = idlest else {
            let trouble = self.trouble().map(|trouble| trouble.to_string()).unwrap_or_default();
            return refused(Reason::Unavailable, format!("no connection to PostgreSQL: {trouble}"));
        };
        if session.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            let detail = format!("{WAITING_MAX} statements are waiting on each connection");
            return refused(Reason::Busy, detail);
        }
        Ok(session)
    }

    /// Until there is a connection; an error says why there is none.
    pub async fn up(&self) -> Result<(), Unopened> {
        let mut turn = tokio::time::interval(Duration::from_millis(5));
        loop {
            turn.tick().await;
            if self.links.iter().any(|link| link.session().is_some()) {
                return Ok(());
            }
            if self.links.iter().all(|link| link.attempts.load(Ordering::Relaxed) > 1) {
                return Err(self.trouble().unwrap_or_else(|| Unopened::Unreachable(String::new())));
            }
        }
    }

    fn trouble(&self) -> Option<Unopened> {
        let trouble =
            self.links.iter().filter_map(|link| link.trouble.lock().expect("no panic while held").clone());
        trouble.max_by_key(|trouble| trouble.to_string().len())
    }

    /// One statement, one round trip.
    pub async fn query(
        &self,
        statement: impl FnOnce(&Session) -> &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let session = self.session().map_err(Failure::Refused)?;
        session.query(statement(&session), parameters).await
    }
}
