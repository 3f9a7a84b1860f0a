//! Hints between nodes, beside the commits: NOTIFY in a commit's own transaction would take a lock of the whole server.
//!
//! One connection listens and tells. A node hears its own commits at once, without the server, and tells nothing while there
//! is no other. What couldn't be told or heard becomes [`Change::Lost`].

use super::Unopened;
use super::notice::{self, Hint};
use super::others::{HERE_EVERY, Others};
use super::pool::Pool;
use super::session::{Driver, answered, connect};
use super::target::Target;
use crate::backoff::Backoff;
use crate::watch::{Change, Hub};
use baton_core::{Commit, Outcome, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_postgres::{AsyncMessage, Client};

/// Hints that may wait to be told to others, and messages that may wait to be understood.
const WAITING_MAX: usize = 4096;

/// Messages in one statement: what has come together while the last was on its way.
const TOLD_TOGETHER_MAX: usize = 256;

/// Where this node's commits are made known.
pub(super) struct Hints {
    pub hub: Hub,
    waiting: mpsc::Sender<Hint>,
    dropped: AtomicBool,
    others: Others,
}

/// The other end of [`Hints`], for the task that tells.
pub(super) type Told = mpsc::Receiver<Hint>;

impl Hints {
    pub fn new() -> (Arc<Self>, Told) {
        let (waiting, told) = mpsc::channel(WAITING_MAX);
        let (dropped, others) = (AtomicBool::new(false), Others::new(Instant::now()));
        (Arc::new(Self { hub: Hub::default(), waiting, dropped, others }), told)
    }

    /// Makes known what a commit did.
    pub fn tell(&self, commit: Commit, outcome: &Outcome) {
        let Outcome::Committed { revision, witnessed, .. } = outcome else { return };
        let (is_told, is_watched) = (!self.others.are_away(), self.hub.is_watched());
        if !is_told && !is_watched {
            return;
        }
        let mut witnessed = witnessed.iter();
        let mut changes = Vec::new();
        for write in commit.writes {
            match write {
                Write::Put { key, value, .. } => {
                    changes.push(Change::Put { key, value, revision: *revision })
                }
                Write::Touch { .. } => drop(witnessed.next()),
                Write::Delete { key } => {
                    if witnessed.next().is_some_and(Option::is_some) {
                        changes.push(Change::Deleted { key, revision: *revision });
                    }
                }
            }
        }
        for change in changes.iter().filter(|_| is_told) {
            self.queue(Hint::of(change));
        }
        if is_watched {
            self.hub.publish(changes.into_iter());
        }
    }

    /// Something may have changed, and it is not known what.
    pub fn tell_lost(&self) {
        self.hub.publish(std::iter::once(Change::Lost));
        if !self.others.are_away() {
            self.queue(Hint::Lost);
        }
    }

    /// Somebody else is there, or may be.
    fn heard_another(&self) {
        if self.others.heard(Instant::now()) {
            self.queue(Hint::Lost);
        }
    }

    fn queue(&self, hint: Hint) {
        if self.waiting.try_send(hint).is_err() {
            self.dropped.store(true, Ordering::Release);
        }
    }
}

/// The connection for hints, and what comes over it.
pub(super) struct Ear {
    client: Client,
    driver: Driver,
    heard: mpsc::Receiver<String>,
    missed: Arc<AtomicBool>,
}

fn channel(target: &Target) -> String {
    format!("baton_{}", target.schema)
}

/// Connects and listens.
pub(super) async fn listen(target: &Target) -> Result<Ear, Unopened> {
    let (sender, heard) = mpsc::channel(WAITING_MAX);
    let missed = Arc::new(AtomicBool::new(false));
    let (client, driver) = connect(target, {
        let missed = missed.clone();
        move |message| {
            if let AsyncMessage::Notification(notification) = message
                && sender.try_send(notification.payload().to_owned()).is_err()
            {
                missed.store(true, Ordering::Release);
            }
        }
    })
    .await?;
    // A hint needs neither a disk nor a standby.
    let listen = format!("SET synchronous_commit = off; LISTEN {}", channel(target));
    answered(client.batch_execute(&listen)).await?;
    Ok(Ear { client, driver, heard, missed })
}

/// Runs until the store has gone. `ear` listens already, so that nothing is missed from the moment the store is open.
pub(super) async fn run(
    hints: Arc<Hints>,
    mut told: Told,
    mut ear: Ear,
    pool: Arc<Pool>,
    target: Arc<Target>,
) {
    let node = getrandom::u64().unwrap_or_default();
    let mut backoff = Backoff::default();
    loop {
        {
            let Ear { client, driver, heard, missed } = &mut ear;
            tokio::select! {
                () = driver.ended() => {}
                () = tell_others(&hints, &mut told, client, node, &target) => {}
                () = hear_others(&hints, heard, missed, node, &pool) => {}
            }
        }
        tracing::warn!("the connection for hints to PostgreSQL is gone");
        ear = loop {
            backoff.wait().await;
            match listen(&target).await {
                Ok(ear) => break ear,
                Err(trouble) => tracing::warn!("no connection for hints to PostgreSQL: {trouble}"),
            }
        };
        backoff.reset();
        // What others told meanwhile went past us, and what we were telling may not have arrived; also that somebody came.
        hints.heard_another();
        hints.tell_lost();
    }
}

/// Ends when the connection doesn't work any more.
async fn tell_others(hints: &Hints, told: &mut Told, client: &Client, node: u64, target: &Target) {
    let (sql, channel) =
        ("SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload", channel(target));
    let Ok(statement) = answered(client.prepare(sql)).await else { return };
    let mut here = tokio::time::interval(HERE_EVERY);
    here.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            count = told.recv_many(&mut batch, TOLD_TOGETHER_MAX) => if count == 0 { return },
            // A message without hints says that this node is there.
            _ = here.tick() => hints.others.look(Instant::now()),
        }
        if hints.dropped.swap(false, Ordering::AcqRel) {
            batch.push(Hint::Lost);
        }
        let payloads = notice::encode(node, &batch);
        batch.clear();
        if let Err(trouble) = answered(client.query(&statement, &[&channel, &payloads])).await {
            tracing::debug!("hints were not told: {trouble}");
            return;
        }
    }
}

/// Ends when the connection is gone.
async fn hear_others(
    hints: &Hints,
    heard: &mut mpsc::Receiver<String>,
    missed: &AtomicBool,
    node: u64,
    pool: &Pool,
) {
    while let Some(payload) = heard.recv().await {
        let mut changes = Vec::new();
        if missed.swap(false, Ordering::AcqRel) {
            changes.push(Change::Lost);
        }
        let is_own = notice::teller(&payload) == Some(node);
        if !is_own {
            hints.heard_another();
        }
        if hints.hub.is_watched() && !is_own {
            // A message that isn't understood comes from a newer node: something has changed.
            match notice::decode(&payload) {
                Some((_, hints)) => changes.extend(complete(hints, pool).await),
                None => changes.push(Change::Lost),
            }
        }
        hints.hub.publish(changes.into_iter());
    }
}

/// Reads what was too large to be told.
async fn complete(hints: Vec<Hint>, pool: &Pool) -> Vec<Change> {
    let keys = hints.iter().filter_map(|hint| match hint {
        Hint::Look(key) => Some(key.clone()),
        Hint::Put { .. } | Hint::Deleted { .. } | Hint::Lost => None,
    });
    let keys: Vec<_> = keys.collect();
    let mut records = Vec::new();
    if !keys.is_empty() {
        match super::read(pool, &keys).await {
            Ok(reading) => records = reading.records,
            Err(_) => return vec![Change::Lost],
        }
    }
    let mut records = records.into_iter();
    let changes = hints.into_iter().filter_map(|hint| match hint {
        Hint::Put { key, value, revision } => Some(Change::Put { key, value, revision }),
        Hint::Deleted { key, revision } => Some(Change::Deleted { key, revision }),
        Hint::Lost => Some(Change::Lost),
        // Gone already: another hint says so.
        Hint::Look(_) => records.next().flatten().map(|record| Change::Put {
            key: record.key,
            value: record.value,
            revision: record.revision,
        }),
    });
    changes.collect()
}
