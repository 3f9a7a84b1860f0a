//! What comes together goes together: one statement, one transaction and one sync for all commits that wait, and one for all
//! charges.
//!
//! A connection has one batch of each under way. Who comes meanwhile waits, and goes with the next one; a lone one goes at
//! once. Several connections have commits under way only if many wait, or one of them is slow. Each is decided as if alone. Should the server refuse a batch because of one of them, they are sent one by one.

use super::hints::Hints;
use super::queue::{Queue, SLOW, Waiting, Work};
use super::session::{Driver, Failure, Session};
use super::target::Target;
use crate::charge::Charge;
use crate::contract::{Reason, StoreError};
use baton_core::meter::Charged;
use baton_core::{Commit, Outcome};
use tokio::sync::Notify;

/// Where commits and charges wait for a connection.
#[derive(Default)]
pub(super) struct Group {
    commits: Queue<Commit>,
    charges: Queue<Charge>,
    arrived: Notify,
}

impl Group {
    /// Waits until the commit is decided, for as long as an answer may take.
    pub async fn commit(&self, commit: Commit, target: &Target) -> Result<Outcome, StoreError> {
        self.commits.submit(commit, target, &self.arrived).await
    }

    /// The same for a charge.
    pub async fn charge(&self, charge: Charge, target: &Target) -> Result<Charged, StoreError> {
        self.charges.submit(charge, target, &self.arrived).await
    }

    /// Commits and charges over one connection until that is gone.
    pub async fn serve(&self, session: &Session, driver: &mut Driver, hints: &Hints) {
        while !session.is_over() {
            let commits = self.commits.take(&self.arrived);
            let charges = self.charges.take(&self.arrived);
            if commits.is_empty() && charges.is_empty() {
                tokio::select! {
                    biased;
                    () = driver.ended() => break,
                    () = self.arrived.notified() => {}
                    () = tokio::time::sleep(SLOW), if self.commits.is_held_back() => {}
                }
            } else {
                // Both are sent before either is answered.
                tokio::join!(
                    self.send(&self.commits, commits, session, hints),
                    self.send(&self.charges, charges, session, hints),
                );
            }
        }
        // Another one takes over who may have come for this one.
        self.arrived.notify_one();
    }

    async fn send<W: Work>(
        &self,
        queue: &Queue<W>,
        batch: Vec<Waiting<W>>,
        session: &Session,
        hints: &Hints,
    ) {
        if !batch.is_empty() {
            let latches: Vec<_> = batch.iter().flat_map(|waiting| waiting.latches.clone()).collect();
            send(batch, session, hints).await;
            queue.release(&latches, &self.arrived);
        }
    }
}

/// Sends a batch, and answers everyone in it. Others are told also of what nobody waits for any more.
async fn send<W: Work>(batch: Vec<Waiting<W>>, session: &Session, hints: &Hints) {
    match W::ask(&batch, session).await {
        Ok(answers) => {
            for (Waiting { work, answer: caller, .. }, answer) in batch.into_iter().zip(answers) {
                match &answer {
                    Ok(answer) => work.tell(answer, hints),
                    Err(StoreError::Unknown { .. }) => W::tell_lost(hints),
                    Err(StoreError::NotApplied { .. }) => {}
                }
                caller.send(answer).ok();
            }
        }
        Err(Failure::Refused(error)) if batch.len() > 1 && is_about_one(&error) => {
            for waiting in batch {
                Box::pin(send(vec![waiting], session, hints)).await;
            }
        }
        Err(failure) => {
            if matches!(failure, Failure::Silent(_)) {
                W::tell_lost(hints);
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
