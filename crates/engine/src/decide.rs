//! The loop that decisions go through: draft, commit, and on a conflict decide again.
//!
//! [`Node::decide`] is the whole of it for primitives that take one command at a time. The lock's desks decide several
//! commands for one commit, and share what is below: [`Node::send`] and the reading.

use crate::engine::Node;
use crate::failure::Failure;
use baton_core::{Commit, Group, Key, Outcome, Pause, Record, Revision, View, WallTime};
use baton_store::{Reading, StoreError};
use std::time::Duration;
use tokio::time::Instant;

/// How often a command is decided again before its caller hears `Overloaded`.
pub(crate) const CONFLICTS_MAX: u32 = 64;
/// How often a command may stop to read: far above what any needs.
const READS_MAX: u32 = 64;
/// The first pause before a commit of unknown outcome is sent again.
const RESEND_FIRST: Duration = Duration::from_millis(5);

/// A decision that is true now.
pub(crate) struct Decided<Reply> {
    pub reply: Reply,
    /// Of the commit that made it true, if one was needed.
    pub revision: Revision,
    pub now: WallTime,
    /// What the commit touched and deleted, in the order of its writes.
    pub witnessed: Vec<Option<Record>>,
    /// The answer to some commit got lost: a copy of one that was decided anew may still be under way.
    pub doubtful: bool,
}

/// What became of a commit that was sent until it was decided, or its time was over.
pub(crate) struct Sent {
    pub outcome: Result<Outcome, Failure>,
    /// Whether an answer got lost on the way there.
    pub lost: bool,
}

impl Node {
    /// When a call that begins now gives up on the store.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.config.store_deadline
    }

    /// Decides until the store agrees. `rule` is run again from the start, on what is known by then.
    pub async fn decide<Reply>(
        &self,
        group: Group,
        until: Instant,
        mut rule: impl FnMut(&mut View) -> Result<Reply, Pause>,
    ) -> Result<Decided<Reply>, Failure> {
        let mut view = View::new(group);
        let (mut conflicts, mut reads, mut doubtful) = (0, 0, false);
        loop {
            view.save();
            let reply = match rule(&mut view) {
                Ok(reply) if view.fits() => reply,
                Err(Pause::Read(key)) if reads < READS_MAX => {
                    reads += 1;
                    view.roll_back();
                    self.learn(&mut view, vec![key], until, doubtful).await?;
                    continue;
                }
                Err(Pause::Unreadable) => {
                    tracing::error!("a record can't be read by this version");
                    return Err(Failure::Internal);
                }
                Ok(_) | Err(_) => return Err(Failure::Internal),
            };
            if !view.is_dirty() {
                if !view.is_assuming() {
                    let (revision, now) = (Revision::default(), self.now());
                    return Ok(Decided { reply, revision, now, witnessed: Vec::new(), doubtful });
                }
                // An answer without a commit rests on facts.
                reads += 1;
                if reads > READS_MAX {
                    return Err(Failure::Internal);
                }
                let keys = view.commit().checks.iter().map(|check| check.key().clone()).collect();
                view.clear();
                self.learn(&mut view, keys, until, doubtful).await?;
                continue;
            }
            let sent = self.send(|| view.commit(), until, until, doubtful).await;
            doubtful |= sent.lost;
            match sent.outcome? {
                Outcome::Committed { revision, now, witnessed } => {
                    self.note_time(now);
                    return Ok(Decided { reply, revision, now, witnessed, doubtful });
                }
                Outcome::Conflict { found, now } => {
                    self.note_time(now);
                    self.metrics.conflicts.inc();
                    view.clear();
                    found.into_iter().for_each(|(key, record)| view.learn(&key, record));
                }
            }
            conflicts += 1;
            if conflicts > CONFLICTS_MAX {
                return Err(if doubtful {
                    Failure::Unavailable { unknown: true }
                } else {
                    Failure::Overloaded
                });
            }
        }
    }

    async fn learn(
        &self,
        view: &mut View,
        keys: Vec<Key>,
        until: Instant,
        doubtful: bool,
    ) -> Result<(), Failure> {
        let reading = self.read(keys.clone(), until).await;
        let reading = reading.map_err(|failure| match failure {
            Failure::Unavailable { unknown } => Failure::Unavailable { unknown: unknown || doubtful },
            failure => failure,
        })?;
        keys.iter().zip(reading.records).for_each(|(key, record)| view.learn(key, record));
        Ok(())
    }

    /// Reads records, as of one moment.
    pub async fn read(&self, keys: Vec<Key>, until: Instant) -> Result<Reading, Failure> {
        let reading = self.asked(self.store.read(keys), until).await?;
        self.note_time(reading.now);
        Ok(reading)
    }

    /// A call that changes nothing.
    pub async fn asked<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
        until: Instant,
    ) -> Result<T, Failure> {
        match self.in_time_until(until, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.store_failed(&error);
                Err(Failure::Unavailable { unknown: false })
            }
            Err(_) => Err(Failure::Unavailable { unknown: false }),
        }
    }

    /// Sends a commit, identically again while its outcome is unknown and someone waits for it. No try takes longer than
    /// `until`, none begins after `deadline`. `doubtful`: what was sent before may have taken effect.
    pub async fn send(
        &self,
        commit: impl Fn() -> Commit,
        until: Instant,
        deadline: Instant,
        doubtful: bool,
    ) -> Sent {
        let (mut pause, mut lost) = (RESEND_FIRST, false);
        loop {
            let started = Instant::now();
            let outcome = self.in_time_until(until, self.store.commit(commit())).await;
            self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
            match outcome {
                Ok(Ok(outcome)) => return Sent { outcome: Ok(outcome), lost },
                Ok(Err(error @ StoreError::NotApplied { reason, .. })) => {
                    self.store_failed(&error);
                    return Sent { outcome: Err(Failure::of(reason, doubtful || lost)), lost };
                }
                Ok(Err(error @ StoreError::Unknown { .. })) => self.store_failed(&error),
                Err(_) => {}
            }
            lost = true;
            // Those of many callers and nodes, which a failure often hits at one moment, come apart.
            let spread = self.random.jittered(pause);
            if Instant::now() + spread >= deadline {
                return Sent { outcome: Err(Failure::Unavailable { unknown: true }), lost };
            }
            tokio::time::sleep(spread).await;
            pause *= 2;
        }
    }
}
