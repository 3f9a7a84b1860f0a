//! Acquire, renew, release and force, from the caller's side.

use super::calls::{
    AcquireCall, Failure, ForceCall, Forced, Granted, HeldBy, LockError, LockState, Refusal, ReleaseCall,
    RenewCall, Renewed, Wait,
};
use super::desks::{Answer, Asked, Told};
use crate::engine::{Engine, Node};
use crate::metrics::Metrics;
use baton_core::lock::command::{Acquire, Attachment, Force, Held, Release};
use baton_core::lock::grant::{Grant, Terms};
use baton_core::lock::name::Operation;
use baton_core::lock::{Command, FencingToken, GrantId, LockName, LockToken, Principal, Reply};
use baton_core::{Check, Commit, Outcome, Revision, WallTime, Write};
use baton_store::{Reason, StoreError};
use futures_util::FutureExt;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

impl Engine {
    /// Takes a lock, or queues for it (L1, L2, L3, L8, L9). It is asked for at once. Dropping the future is going away:
    /// it leaves the queue, and a grant that wasn't delivered is taken back.
    pub fn acquire<'a>(
        &'a self,
        lock: &'a LockName,
        call: AcquireCall,
    ) -> impl Future<Output = Result<Granted, LockError>> + 'a {
        self.acquire_ranked(lock, call, 0)
    }

    /// The same, behind those of lower rank in the queue.
    pub(crate) fn acquire_ranked<'a>(
        &'a self,
        lock: &'a LockName,
        call: AcquireCall,
        rank: u16,
    ) -> impl Future<Output = Result<Granted, LockError>> + 'a {
        let started = Instant::now();
        let request_id = call.request_id.unwrap_or_else(|| self.node.request_id());
        let id = GrantId::of(lock, &call.principal, Operation::Acquire, &request_id);
        let terms = Terms {
            owner: call.owner,
            principal: call.principal,
            ttl: call.ttl,
            reentrant: call.reentrant,
            metadata: call.metadata,
            mode: call.mode,
            delay: call.delay,
        };
        let patience = self.node.patience(call.wait);
        let taken = self.take(lock, Bid { id, terms, rank, patience, request_id });
        // Not by awaiting it: that would make room for it twice.
        taken.inspect(move |result| {
            let metrics = &self.node.metrics;
            match result {
                Ok(_) => {
                    metrics.acquire_seconds.observe(started.elapsed().as_secs_f64());
                    Metrics::count(&metrics.acquires, "granted");
                }
                Err(error) => Metrics::count(&metrics.acquires, error.label()),
            }
        })
    }

    /// Takes a lock under an id, or queues for it. Dropping the future is going away, as above.
    ///
    /// What a call is made of goes to the desk before anything is awaited, and what is seldom needed is elsewhere: thousands of
    /// these futures may wait, so they hold what waiting takes and no more.
    pub(crate) fn take<'a>(
        &'a self,
        lock: &'a LockName,
        bid: Bid,
    ) -> impl Future<Output = Result<Granted, LockError>> + 'a {
        let Bid { id, terms, rank, patience, request_id } = bid;
        let attachment = patience.is_some().then(|| self.node.attachment());
        let acquire = Acquire { id, digest: terms.digest(), terms, attachment, rank };
        let asked = self.node.ask(lock, Command::Acquire(acquire));
        let mut place = Place { node: &self.node, lock, id, attachment, asked };
        async move {
            let answer = match patience {
                None => place.answer().await,
                Some(patience) => match tokio::time::timeout(patience.limit, place.answer()).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        let ended = self.end_wait(lock, &mut place, patience.gives_up, request_id);
                        return Box::pin(ended).await;
                    }
                },
            };
            place.settle();
            self.node.granted(lock, answer, &request_id)
        }
    }

    /// The time for waiting is over: leaves the queue, or keeps the place for the next call.
    async fn end_wait(
        &self,
        lock: &LockName,
        place: &mut Place<'_>,
        gives_up: bool,
        request_id: String,
    ) -> Result<Granted, LockError> {
        let Some(number) = place.attachment else { return Err(LockError::Failed(Failure::Internal)) };
        let attachment = Attachment { id: place.id, number };
        let command = if gives_up { Command::Leave(attachment) } else { Command::Detach(attachment) };
        place.asked.step_back();
        let ended = self.node.ask(lock, command).await;
        // It may have been granted just before.
        let answer = place.asked.close();
        place.settle();
        if let Some(answer) = answer {
            return self.node.granted(lock, answer, &request_id);
        }
        if !matches!(ended, Ok(Answer::Told(_))) {
            return Err(LockError::Failed(Failure::Unavailable { unknown: true }));
        }
        let held = self.held_by(lock).await;
        let still = Refusal::StillWaiting { request_id, held: held.clone() };
        Err(LockError::Refused(if gives_up { Refusal::WaitTimeout(held) } else { still }))
    }

    async fn held_by(&self, lock: &LockName) -> HeldBy {
        match self.lock_state(lock).await {
            Ok(Some(LockState { holders, waiting, .. })) => {
                let first = holders.into_iter().min_by_key(|holder| holder.expires_at);
                let left = |end: WallTime| Duration::from_millis(end.0.saturating_sub(self.node.now().0));
                let retry_after = first.as_ref().map(|holder| left(holder.expires_at));
                HeldBy { owner: first.map(|holder| holder.owner), retry_after, waiting }
            }
            _ => HeldBy::default(),
        }
    }

    /// Makes a lease last longer (L5). One commit, whatever is going on around the lock.
    pub async fn renew(&self, lock: &LockName, call: RenewCall) -> Result<Renewed, LockError> {
        let result = self.renew_uncounted(lock, call).await;
        let outcome = result.as_ref().map_or_else(LockError::label, |_| "renewed");
        Metrics::count(&self.node.metrics.renewals, outcome);
        result
    }

    async fn renew_uncounted(&self, lock: &LockName, call: RenewCall) -> Result<Renewed, LockError> {
        let token = self.authentic(lock, &call.token, &call.owner, &call.principal).await?;
        self.renew_grant(lock, &token, call.ttl).await
    }

    /// The same with a token that is known to be authentic.
    pub(crate) async fn renew_grant(
        &self,
        lock: &LockName,
        token: &LockToken,
        ttl: Duration,
    ) -> Result<Renewed, LockError> {
        let key = lock.grant(token.id);
        let created = Revision(token.fencing.0);
        let mut writes = vec![Write::Touch { key: key.clone(), ttl }];
        if token.flags.delayed {
            // How long the lock would stay closed is in the grant, which never changes.
            let Some(record) = self.read_one(key.clone()).await?.filter(|record| record.created == created)
            else {
                return Err(LockError::Refused(Refusal::Expired));
            };
            let grant = Grant::decode(&record.value).map_err(|_| LockError::Failed(Failure::Internal))?;
            writes.push(Write::Touch { key: lock.delay(token.id), ttl: ttl + grant.delay });
        }
        let commit = Commit { checks: vec![Check::Created(key, created)], writes };
        // Touching twice is touching once: an unknown outcome is simply tried again.
        let deadline = self.node.deadline();
        let sent = self.node.send(|| commit.clone(), deadline, deadline, false).await;
        match sent.outcome.map_err(LockError::Failed)? {
            Outcome::Committed { now, witnessed, .. } => {
                self.node.note_time(now);
                let left = witnessed.into_iter().flatten().next().and_then(|record| record.expires_in);
                let expires_at = now.after(left.unwrap_or(ttl));
                Ok(Renewed { expires_at, fencing: token.fencing })
            }
            Outcome::Conflict { .. } => Err(LockError::Refused(Refusal::Expired)),
        }
    }

    /// Gives a lock back, or counts one down (L4, L8).
    pub async fn release(&self, lock: &LockName, call: ReleaseCall) -> Result<(), LockError> {
        self.release_to(lock, call, None).await
    }

    /// The same, in favour of somebody who waits.
    pub(crate) async fn release_to(
        &self,
        lock: &LockName,
        call: ReleaseCall,
        successor: Option<Arc<str>>,
    ) -> Result<(), LockError> {
        let token = self.authentic(lock, &call.token, &call.owner, &call.principal).await?;
        if token.flags.reentrant && call.request_id.is_none() {
            return Err(LockError::Refused(Refusal::RequestIdMissing));
        }
        let id = call.request_id.as_ref();
        let id = id.map(|id| GrantId::of(lock, &call.principal, Operation::Release, id));
        let release = Release { token, owner: call.owner, principal: call.principal, id, successor };
        let answer = self.node.ask(lock, Command::Release(release)).await;
        match told(answer)?.reply {
            Reply::Released => Ok(()),
            reply => Err(refusal(reply, String::new())),
        }
    }

    /// Takes a lock from its holders, or from one of them (L10). Breaks mutual exclusion by design. Those who come to hold
    /// it meanwhile keep it.
    pub async fn force_release(&self, lock: &LockName, call: ForceCall) -> Result<Vec<Forced>, LockError> {
        let mut tokens = VecDeque::from([call.fencing.map(|token| Revision(token.0))]);
        let mut forced = Vec::new();
        while let Some(fencing) = tokens.pop_front() {
            let (delay, by, reason) = (call.delay, call.by.clone(), call.reason.clone());
            let force = Force { target: None, fencing, delay, by, reason };
            let told = told(self.node.ask(lock, Command::Force(force)).await)?;
            match told.reply {
                Reply::Forced { owner, fencing, others, .. } => {
                    forced.push(Forced { owner, fencing: fencing.resolve(told.revision).into() });
                    if call.fencing.is_none() && forced.len() == 1 {
                        tokens.extend(others.into_iter().map(Some));
                    }
                }
                // One of several ended by itself meanwhile.
                Reply::NotFound if !forced.is_empty() => {}
                reply => return Err(refusal(reply, String::new())),
            }
        }
        Ok(forced)
    }

    /// The token, if this cluster made it for this lock and caller; else the refusal that says what is there.
    pub(crate) async fn authentic(
        &self,
        lock: &LockName,
        token: &str,
        owner: &str,
        principal: &Principal,
    ) -> Result<LockToken, LockError> {
        let (token, key) = (LockToken::parse(token), self.node.key()?);
        if let Some(token) = token.filter(|token| token.is_authentic(key, lock, owner, principal)) {
            return Ok(token);
        }
        let is_held = self.lock_state(lock).await?.is_some();
        Err(LockError::Refused(if is_held { Refusal::NotOwner } else { Refusal::NotFound }))
    }
}

/// One lock, asked for under an id.
pub(crate) struct Bid {
    pub id: GrantId,
    pub terms: Terms,
    pub rank: u16,
    /// How long to wait for it; without it, not at all.
    pub patience: Option<Patience>,
    /// To call again with.
    pub request_id: String,
}

/// How long a call waits.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub limit: Duration,
    /// Whether it then leaves the queue; else its place is kept for the next call.
    pub gives_up: bool,
}

/// A caller's place: while it waits for its answer.
struct Place<'a> {
    node: &'a Arc<Node>,
    lock: &'a LockName,
    id: GrantId,
    attachment: Option<u64>,
    asked: Asked,
}

impl Place<'_> {
    async fn answer(&mut self) -> Answer {
        let answer = (&mut self.asked).await;
        answer.unwrap_or(Answer::Failed(Failure::Unavailable { unknown: true }))
    }

    /// The caller has its answer: there is nothing left to leave.
    fn settle(&mut self) {
        self.attachment = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        match self.asked.close() {
            Some(Answer::Told(told)) => {
                if let Told { reply: Reply::Granted(grant), revision, .. } = *told
                    && grant.is_new
                {
                    self.node.undo(self.lock, grant.id, grant.fencing.resolve(revision));
                }
            }
            Some(_) => {}
            None => {
                if let Some(number) = self.attachment {
                    let attachment = Attachment { id: self.id, number };
                    // Nobody is left to hear the answer.
                    drop(self.node.ask(self.lock, Command::Leave(attachment)));
                }
            }
        }
    }
}

impl Node {
    /// Puts a command on its lock's desk.
    pub(crate) fn ask(self: &Arc<Self>, lock: &LockName, command: Command) -> Asked {
        Asked::new(self, lock, command)
    }

    /// Takes back a grant that couldn't be delivered.
    pub(super) fn undo(self: &Arc<Self>, lock: &LockName, id: GrantId, fencing: Revision) {
        // Nobody is left to hear the answer.
        drop(self.ask(lock, Command::Undo { id, fencing }));
    }

    /// How long one call may wait that was asked to wait this long. A node that is about to stop doesn't wait.
    pub(crate) fn patience(&self, wait: Wait) -> Option<Patience> {
        let call_max = self.config.call_max;
        match wait {
            Wait::No => None,
            _ if self.is_draining() => None,
            Wait::AtMost(limit) if limit <= call_max => Some(Patience { limit, gives_up: true }),
            Wait::AtMost(_) | Wait::Forever => Some(Patience { limit: call_max, gives_up: false }),
        }
    }

    pub(crate) fn request_id(&self) -> String {
        self.random.bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn granted(&self, lock: &LockName, answer: Answer, request_id: &str) -> Result<Granted, LockError> {
        let told = match answer {
            Answer::CallAgain => {
                let (request_id, held) = (request_id.to_owned(), HeldBy::default());
                return Err(LockError::Refused(Refusal::StillWaiting { request_id, held }));
            }
            answer => told(Ok(answer))?,
        };
        let grant = match told.reply {
            Reply::Granted(grant) => grant,
            reply => return Err(refusal(reply, request_id.to_owned())),
        };
        let fencing = FencingToken::from(grant.fencing.resolve(told.revision));
        let parts = (grant.id, grant.flags, fencing, grant.digest);
        let token = LockToken::new(self.key()?, lock, &grant.owner, &grant.principal, parts);
        let expires_at = told.now.after(grant.ttl);
        Ok(Granted { token, fencing, expires_at, ttl: grant.ttl, count: grant.count, hold: grant.hold })
    }

    /// Counts and logs a failure of the store.
    pub(crate) fn store_failed(&self, error: &StoreError) {
        let outcome = match error {
            StoreError::NotApplied { .. } => "not_applied",
            StoreError::Unknown { .. } => "unknown",
        };
        Metrics::count(&self.metrics.store_errors, outcome);
        if let StoreError::NotApplied { reason: Reason::Invalid, .. } = error {
            tracing::error!(%error, "the store refused a call that should not have been made");
        } else {
            tracing::debug!(%error, "the store failed a call");
        }
    }
}

pub(crate) fn told(answer: Result<Answer, oneshot::error::RecvError>) -> Result<Told, LockError> {
    match answer {
        Ok(Answer::Told(told)) => Ok(*told),
        Ok(Answer::Failed(failure)) => Err(LockError::Failed(failure)),
        Ok(Answer::CallAgain) | Err(_) => Err(LockError::Failed(Failure::Unavailable { unknown: true })),
    }
}

pub(crate) fn refusal(reply: Reply, request_id: String) -> LockError {
    let held =
        |held: Held| HeldBy { owner: held.owner, retry_after: held.retry_after, waiting: held.waiting };
    LockError::Refused(match reply {
        Reply::Held(by) => Refusal::Held(held(by)),
        Reply::QueueFull(by) => Refusal::QueueFull(held(by)),
        Reply::Delayed(by) => Refusal::Delayed(held(by)),
        Reply::ModeMismatch { permits } => Refusal::ModeMismatch { permits },
        Reply::AlreadyReleased => Refusal::AlreadyReleased,
        Reply::Expired => Refusal::Expired,
        Reply::RequestIdReused => Refusal::RequestIdReused,
        Reply::NotFound => Refusal::NotFound,
        Reply::NoSuchSuccessor => Refusal::NoSuchSuccessor,
        Reply::Parked => Refusal::StillWaiting { request_id, held: HeldBy::default() },
        Reply::Granted(_)
        | Reply::Released
        | Reply::Proclaimed
        | Reply::Forced { .. }
        | Reply::Left
        | Reply::Pruned
        | Reply::Settled { .. } => {
            return LockError::Failed(Failure::Internal);
        }
    })
}
