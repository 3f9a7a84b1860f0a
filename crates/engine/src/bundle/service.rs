//! A call from its beginning to its answer. It runs as a task of its own, so that whatever it holds is given back also
//! when its caller goes away.

use super::attempt::{Attempt, Caller, Stop};
use super::calls::{BundleCall, BundleError};
use super::delivery::Delivery;
use super::grants::Grants;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::lock::{Granted, HeldBy, LockError, Refusal};
use crate::metrics::Metrics;
use baton_core::bundle::begin::digest_of;
use baton_core::bundle::{self, Begin, Begun};
use baton_core::lock::grant::Terms;
use baton_core::lock::{LockName, Mode};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How often it is tried, behind the answer, to take back what a failing store didn't let go. Then its TTL ends it.
const CLEANINGS_MAX: u32 = 6;
/// The first pause between two of them.
const CLEANING_PAUSE: Duration = Duration::from_millis(100);

impl Engine {
    /// Takes several locks, all or none (L16): the grants, in the order of the call's locks. Dropping the future is going
    /// away: what was taken is given back, and the queue is left.
    pub async fn acquire_all(&self, call: BundleCall) -> Result<Vec<Granted>, BundleError> {
        let (caller, answered) = oneshot::channel();
        tokio::spawn(serve(self.clone(), call, caller));
        let result = answered.await.unwrap_or_else(|_| Err(Failure::Internal.into()));
        let result = result.map(Delivery::take);
        let outcome = result.as_ref().map_or_else(|error| error.error.label(), |_| "granted");
        Metrics::count(&self.node.metrics.bundles, outcome);
        result
    }
}

async fn serve(engine: Engine, call: BundleCall, mut caller: Caller) {
    let request_id = call.request_id.clone().unwrap_or_else(|| engine.node.request_id());
    let order = call.locks.clone();
    let Some(mut attempt) = attempt(engine, call, &request_id) else {
        // If nobody listens any more, nothing is lost.
        drop(caller.send(Err(Failure::Internal.into())));
        return;
    };
    let digest = digest_of(&attempt.grants.terms, &keys(&attempt.grants.locks));
    let begin = Begin { digest, fresh: attempt.by, kept: attempt.kept };
    let begun = attempt.decide(|name, view| bundle::begin(name, &begin, view)).await;
    let (nonce, stale, at) = match begun {
        Ok(Begun::Trying { nonce, stale, at }) => (nonce, stale, at),
        other => {
            let answer = match other {
                Ok(Begun::Held { nonce }) => {
                    attempt.grants.find_again(&nonce).await.map_err(|(index, error)| BundleError {
                        lock: Some(attempt.grants.locks[index].clone()),
                        error,
                    })
                }
                Ok(_) => Err(LockError::Refused(Refusal::RequestIdReused).into()),
                Err(failure) => Err(failure.into()),
            };
            let answer = answer.map(|granted| attempt.grants.in_order(granted, &order));
            // If nobody listens any more, nothing was done that has to be undone.
            drop(caller.send(answer.map(Delivery::repeated)));
            return;
        }
    };
    attempt.nonce = nonce;
    let mut result = Ok(());
    for nonce in &stale {
        let all: Vec<_> = (0..attempt.grants.locks.len()).collect();
        // Before anything is taken: what an earlier call may have left is in this one's way.
        result = result.and(attempt.grants.withdraw(&all, nonce, false).await);
    }
    let result = match result {
        Ok(()) => attempt.run(at.map(usize::from).filter(|at| *at < order.len()), &mut caller).await,
        // Something may be held. The record stays: it says to the next call what is to be withdrawn.
        Err(_) => Err(Stop::Unknown),
    };
    match result {
        Ok(granted) => {
            let granted = attempt.grants.in_order(granted, &order);
            // Dropped, it takes everything back.
            drop(caller.send(Ok(Delivery::new(granted, attempt))));
        }
        Err(stop) => attempt.give_up(stop, caller, request_id).await,
    }
}

/// Everything that a call says, made ready. Nothing if it asks for no lock at all.
fn attempt(engine: Engine, call: BundleCall, request_id: &str) -> Option<Attempt> {
    let mut locks = call.locks;
    locks.sort_by(|one, other| one.key().cmp(other.key()));
    let name = bundle::name(locks.first()?.namespace(), &call.principal, request_id);
    let terms = Terms {
        owner: call.owner,
        principal: call.principal,
        ttl: call.ttl,
        reentrant: false,
        metadata: call.metadata,
        mode: Mode::Exclusive,
        delay: call.delay,
    };
    let (node, touched) = (&engine.node, vec![false; locks.len()]);
    // While it is tried it must not be forgotten, nor as long as it may be held without a renewal.
    let kept = node.memory().max(call.ttl).max(node.config.call_max * 2);
    let (by, began) = (node.random.bytes(), Instant::now());
    let grants = Grants { engine, locks, terms };
    Some(Attempt { grants, name, by, nonce: by, kept, wait: call.wait, began, touched })
}

fn keys(locks: &[LockName]) -> Vec<&str> {
    locks.iter().map(LockName::key).collect()
}

impl Grants {
    /// Grants in the order of the locks, in the order that was asked for.
    fn in_order(&self, granted: Vec<Granted>, order: &[LockName]) -> Vec<Granted> {
        let place = |lock: &LockName| order.iter().position(|other| other == lock);
        let mut placed: Vec<_> = self.locks.iter().map(place).zip(granted).collect();
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, granted)| granted).collect()
    }
}

impl Attempt {
    /// Takes everything back, and says why there is nothing. Only what couldn't be taken back is left to do afterwards.
    async fn give_up(mut self, stop: Stop, caller: Caller, request_id: String) {
        let failed = |failure: Failure| BundleError::from(failure);
        let still = |held| LockError::Refused(Refusal::StillWaiting { request_id, held });
        let at = |index: usize, locks: &[LockName]| locks.get(index).cloned();
        let error = match stop {
            Stop::Unknown => {
                // If it was done, a repetition of the call is given it; else that takes it over.
                drop(caller.send(Err(failed(Failure::Unavailable { unknown: true }))));
                return;
            }
            Stop::Rests(index, held) => {
                let error = BundleError { lock: at(index, &self.grants.locks), error: still(held) };
                // A place is kept, whatever became of the record: it is not for certain that nothing may come of it.
                let unknown = |_| failed(Failure::Unavailable { unknown: true });
                drop(caller.send(self.rest(index).await.map_err(unknown).and(Err(error))));
                return;
            }
            Stop::Refused(index, refusal) => {
                BundleError { lock: at(index, &self.grants.locks), error: LockError::Refused(refusal) }
            }
            Stop::Overtaken | Stop::Gone => still(HeldBy::default()).into(),
            Stop::Failed(failure) => failed(failure),
        };
        if self.clear().await.is_ok() {
            let error = match error.error {
                // Nothing of it is left, and nothing may come of it.
                LockError::Failed(Failure::Unavailable { .. }) => {
                    failed(Failure::Unavailable { unknown: false })
                }
                _ => error,
            };
            // If nobody listens any more, there is nothing left for anybody to know.
            drop(caller.send(Err(error)));
            return;
        }
        drop(caller.send(Err(failed(Failure::Unavailable { unknown: true }))));
        let mut pause = CLEANING_PAUSE;
        for _ in 0..CLEANINGS_MAX {
            tokio::time::sleep(pause).await;
            if self.clear().await.is_ok() {
                return;
            }
            pause *= 2;
        }
    }

    /// Holds nothing, and keeps its place at one lock for the next call.
    async fn rest(&self, index: usize) -> Result<(), Failure> {
        let (by, kept, at) = (self.by, self.kept, u8::try_from(index).unwrap_or(u8::MAX));
        // If another call is at it already, that one keeps what there is.
        self.decide(|name, view| bundle::rest(name, by, at, kept, view)).await.map(drop)
    }

    /// Takes everything back for good; then nothing is to be remembered.
    pub(super) async fn clear(&mut self) -> Result<(), ()> {
        self.take_back(false).await.map_err(|_| ())?;
        let by = self.by;
        // If that fails, the record is in nobody's way, and is forgotten in its time.
        self.decide(|name, view| bundle::close(name, by, view)).await.ok();
        Ok(())
    }
}
