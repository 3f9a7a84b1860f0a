//! Commits that come together go together: one statement, one transaction and one sync for all of them.
//!
//! A connection has one batch under way. Who comes meanwhile waits, and goes with the next one; a lone commit goes at
//! once. Each is decided as if alone. Should the server refuse a batch because of one of them, they are sent one by one.

use super::hints::Hints;
use super::rows::{self, Parameters};
use super::session::{ANSWER_MAX, Driver, Failure, Session};
use super::target::Target;
use crate::contract::{Reason, StoreError};
use baton_core::{Commit, Outcome};
use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, oneshot};

/// Commits in one batch: more would make those wait who come next, and save little.
const BATCH_MAX: usize = 64;
/// Bytes in one batch, if it isn't a single commit that is larger.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Names locked by one batch: the server's table of locks has a few thousand places for everybody, other applications too.
const LATCHES_MAX: usize = 256;
/// Commits that may wait; more are refused, because they could not be answered in time.
const WAITING_MAX: usize = 4096;

/// A commit whose turn comes.
struct Waiting {
    number: u64,
    commit: Commit,
    latches: Vec<i64>,
    answer: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// Where commits wait for a connection.
#[derive(Default)]
pub(super) struct Group {
    waiting: Mutex<VecDeque<Waiting>>,
    arrived: Notify,
    numbers: AtomicU64,
}

impl Group {
    /// Waits until the commit is decided, for as long as an answer may take.
    pub async fn commit(&self, commit: Commit, target: &Target) -> Result<Outcome, StoreError> {
        let (answer, answered) = oneshot::channel();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let latches = rows::latches(target, &commit);
        {
            let mut waiting = self.waiting.lock().expect("no panic while held");
            if waiting.len() >= WAITING_MAX {
                return Err(unavailable(format!("{WAITING_MAX} commits are waiting already")));
            }
            waiting.push_back(Waiting { number, commit, latches, answer });
        }
        self.arrived.notify_one();
        match tokio::time::timeout(ANSWER_MAX, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::Unknown { detail: "the store was closed".into() }),
            Err(_) if self.withdraw(number) => Err(unavailable(format!("not sent within {ANSWER_MAX:?}"))),
            Err(_) => Err(StoreError::Unknown { detail: format!("no answer within {ANSWER_MAX:?}") }),
        }
    }

    /// Whether it had not been sent, and now won't be.
    fn withdraw(&self, number: u64) -> bool {
        let mut waiting = self.waiting.lock().expect("no panic while held");
        let before = waiting.len();
        waiting.retain(|waiting| waiting.number != number);
        waiting.len() < before
    }

    /// The next batch: the first that wait and have no name in common.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().expect("no panic while held");
        let (mut taken, mut bytes, mut held) = (Vec::new(), 0, HashSet::new());
        let mut left = VecDeque::new();
        while let Some(next) = waiting.pop_front() {
            bytes += next.commit.bytes();
            let is_too_much = bytes > BATCH_BYTES_MAX || held.len() + next.latches.len() > LATCHES_MAX;
            if taken.len() >= BATCH_MAX || (is_too_much && !taken.is_empty()) {
                left.push_back(next);
                left.append(&mut waiting);
                self.arrived.notify_one();
            } else if next.answer.is_closed() {
                // Its caller has gone before it was sent.
            } else if next.latches.iter().any(|latch| held.contains(latch)) {
                left.push_back(next);
            } else {
                held.extend(next.latches.iter().copied());
                taken.push(next);
            }
        }
        *waiting = left;
        taken
    }

    /// Commits over one connection until that is gone.
    pub async fn serve(&self, session: &Session, driver: &mut Driver, hints: &Hints) {
        while !session.is_over() {
            let batch = self.take();
            if batch.is_empty() {
                tokio::select! {
                    biased;
                    () = driver.ended() => break,
                    () = self.arrived.notified() => {}
                }
            } else {
                send(batch, session, hints).await;
            }
        }
        // Another one takes over who may have come for this one.
        self.arrived.notify_one();
    }
}

/// Sends a batch, and answers everyone in it. Others are told also of what nobody waits for any more.
async fn send(batch: Vec<Waiting>, session: &Session, hints: &Hints) {
    let parameters = Parameters::of(batch.iter().map(|waiting| (&waiting.commit, &waiting.latches[..])));
    let answer = session.query(&session.commit, &parameters.list()).await;
    let outcomes = match answer {
        Ok(rows) => rows::outcomes(batch.iter().map(|waiting| &waiting.commit), &rows)
            .map_err(|error| Failure::Silent(super::describe(&error))),
        Err(failure) => Err(failure),
    };
    match outcomes {
        Ok(outcomes) => {
            for (Waiting { commit, answer, .. }, outcome) in batch.into_iter().zip(outcomes) {
                let outcome = outcome.ok_or_else(|| {
                    hints.tell_lost();
                    StoreError::Unknown { detail: "the server said nothing of it".into() }
                });
                if let Ok(outcome) = &outcome {
                    hints.tell(commit, outcome);
                }
                answer.send(outcome).ok();
            }
        }
        Err(Failure::Refused(error)) if batch.len() > 1 && is_about_one(&error) => {
            for waiting in batch {
                Box::pin(send(vec![waiting], session, hints)).await;
            }
        }
        Err(failure) => {
            if matches!(failure, Failure::Silent(_)) {
                hints.tell_lost();
            }
            let error = failure.of_a_commit();
            for waiting in batch {
                waiting.answer.send(Err(error.clone())).ok();
            }
        }
    }
}

/// Whether a refusal need not be everybody's: too large for the server, or more than it has room for.
fn is_about_one(error: &StoreError) -> bool {
    matches!(error, StoreError::NotApplied { reason: Reason::Invalid | Reason::Full, .. })
}

fn unavailable(detail: String) -> StoreError {
    StoreError::NotApplied { reason: Reason::Unavailable, detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::{Group as Part, Key, Ttl, Write};

    fn waiting(
        group: &Group,
        name: &str,
        value_bytes: usize,
    ) -> oneshot::Receiver<Result<Outcome, StoreError>> {
        let target = Target::parse("postgres://me@host/db").unwrap();
        let key = Key::new(Part(1), name.as_bytes());
        let write = Write::Put { key, value: vec![0; value_bytes].into(), ttl: Ttl::Forever };
        let commit = Commit { checks: vec![], writes: vec![write] };
        let (answer, answered) = oneshot::channel();
        let latches = rows::latches(&target, &commit);
        let mut waiting = group.waiting.lock().unwrap();
        let number = waiting.len() as u64;
        waiting.push_back(Waiting { number, commit, latches, answer });
        answered
    }

    fn taken(group: &Group) -> Vec<u64> {
        group.take().iter().map(|waiting| waiting.number).collect()
    }

    #[test]
    fn who_shares_a_name_goes_in_another_batch_and_keeps_its_turn() {
        let group = Group::default();
        let _callers = ["a", "b", "a", "c", "a"].map(|name| waiting(&group, name, 1));
        assert_eq!(taken(&group), [0, 1, 3]);
        assert_eq!(taken(&group), [2]);
        assert_eq!(taken(&group), [4]);
        assert!(group.take().is_empty());
    }

    #[test]
    fn a_batch_is_bounded_by_number_and_by_size() {
        let group = Group::default();
        let _callers: Vec<_> = (0..100).map(|name| waiting(&group, &name.to_string(), 1)).collect();
        assert_eq!((group.take().len(), group.take().len()), (64, 36));
        let _large: Vec<_> = (0..3).map(|name| waiting(&group, &name.to_string(), 600 << 10)).collect();
        assert_eq!((taken(&group), taken(&group), taken(&group)), (vec![0], vec![1], vec![2]));
    }

    #[test]
    fn who_has_gone_is_not_sent_and_who_withdraws_was_not() {
        let group = Group::default();
        let callers: Vec<_> = ["a", "b", "c"].iter().map(|name| waiting(&group, name, 1)).collect();
        assert!(group.withdraw(1) && !group.withdraw(1));
        drop(callers);
        assert!(group.take().is_empty());
    }
}
