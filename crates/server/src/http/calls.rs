//! One lock call, from the wire's words to the engine's and back: the same for a path and for a line of a batch.

use super::Shared;
use super::answer::{Problem, millis};
use crate::gate::Class;
use baton_api::lock::{
    AcquireRequest, AcquireResponse, LockEvent, LockEventKind, Metadata, ReleaseRequest, ReleaseResponse,
    RenewRequest, RenewResponse,
};
use baton_api::mode::LockMode;
use baton_core::Bytes;
use baton_core::lock::{Hold, LockName, Mode, Principal};
use baton_engine::lock::{AcquireCall, Granted, HistoryEvent, HistoryKind, ReleaseCall, RenewCall, Wait};
use futures_util::FutureExt;
use std::sync::Arc;
use std::time::Duration;

/// Nobody in particular, until there is authentication.
pub(crate) fn anybody() -> Principal {
    "".into()
}

/// Asks for a lock. Dropping the future takes the call away: out of the queue, and back what wasn't delivered.
pub(crate) fn acquire<'a>(
    server: &'a Shared,
    lock: &'a LockName,
    request: AcquireRequest,
) -> Result<impl Future<Output = Result<AcquireResponse, Problem>> + 'a, Problem> {
    request.check()?;
    let wait = wait(request.wait, request.wait_timeout_millis);
    let place = server.enter(if wait == Wait::No { Class::Work } else { Class::Waiting })?;
    let owner: Arc<str> = request.owner_id.into();
    let call = AcquireCall {
        owner: owner.clone(),
        principal: anybody(),
        ttl: Duration::from_millis(request.ttl_millis),
        wait,
        request_id: request.request_id,
        reentrant: request.reentrant,
        metadata: metadata(request.metadata.as_ref())?,
        mode: mode(request.mode, request.permits)?,
        delay: Duration::from_millis(request.lock_delay_millis),
    };
    Ok(server.engine.acquire(lock, call).map(move |granted| {
        drop(place);
        Ok(grant(lock, &owner, &granted?))
    }))
}

/// A lock that was granted, as its owner hears of it.
pub(crate) fn grant(lock: &LockName, owner_id: &str, granted: &Granted) -> AcquireResponse {
    tracing::debug!(
        namespace = lock.namespace(),
        lockKey = lock.key(),
        ownerId = owner_id,
        fencingToken = granted.fencing.0,
        "granted"
    );
    AcquireResponse {
        lock_key: lock.key().into(),
        lock_token: granted.token.reveal(),
        owner_id: owner_id.into(),
        fencing_token: granted.fencing.0,
        expires_at: granted.expires_at.0,
        ttl_millis: millis(granted.ttl),
        reentrancy_count: granted.count,
        mode: lock_mode(granted.hold),
        slot: slot(granted.hold),
    }
}

/// Whether to queue, and how long.
pub(crate) fn wait(wait: bool, at_most_millis: Option<u64>) -> Wait {
    match (wait, at_most_millis) {
        (false, _) => Wait::No,
        (true, None) => Wait::Forever,
        (true, Some(at_most)) => Wait::AtMost(Duration::from_millis(at_most)),
    }
}

/// Metadata as it is stored.
pub(crate) fn metadata(metadata: Option<&Metadata>) -> Result<Option<Bytes>, Problem> {
    let text = metadata.map(serde_json::to_vec).transpose().map_err(|_| Problem::internal())?;
    Ok(text.map(Into::into))
}

fn mode(mode: LockMode, permits: Option<u64>) -> Result<Mode, Problem> {
    Ok(match mode {
        LockMode::Exclusive => Mode::Exclusive,
        LockMode::Shared => Mode::Shared,
        LockMode::Semaphore => {
            let permits = permits.and_then(|permits| u16::try_from(permits).ok());
            Mode::Semaphore { permits: permits.ok_or_else(Problem::internal)? }
        }
    })
}

pub(crate) fn lock_mode(hold: Hold) -> LockMode {
    match hold {
        Hold::Exclusive => LockMode::Exclusive,
        Hold::Shared => LockMode::Shared,
        Hold::Permit { .. } => LockMode::Semaphore,
    }
}

pub(crate) fn slot(hold: Hold) -> Option<u16> {
    match hold {
        Hold::Permit { slot } => Some(slot),
        Hold::Exclusive | Hold::Shared => None,
    }
}

pub(crate) async fn renew(
    server: &Shared,
    lock: &LockName,
    request: RenewRequest,
) -> Result<RenewResponse, Problem> {
    request.check()?;
    let _place = server.enter(Class::Urgent)?;
    let call = RenewCall {
        token: request.lock_token,
        owner: request.owner_id.into(),
        principal: anybody(),
        ttl: Duration::from_millis(request.ttl_millis),
    };
    let renewed = server.engine.renew(lock, call).await?;
    Ok(RenewResponse {
        lock_key: lock.key().into(),
        expires_at: renewed.expires_at.0,
        fencing_token: renewed.fencing.0,
    })
}

pub(crate) async fn release(
    server: &Shared,
    lock: &LockName,
    request: ReleaseRequest,
) -> Result<ReleaseResponse, Problem> {
    request.check()?;
    let _place = server.enter(Class::Urgent)?;
    let call = ReleaseCall {
        token: request.lock_token,
        owner: request.owner_id.as_str().into(),
        principal: anybody(),
        request_id: request.request_id,
    };
    server.engine.release(lock, call).await?;
    let (namespace, lock_key) = (lock.namespace(), lock.key());
    tracing::debug!(namespace, lockKey = lock_key, ownerId = request.owner_id, "released");
    Ok(ReleaseResponse { status: "RELEASED".into(), lock_key: lock_key.into() })
}

/// Something that happened, as histories and watches tell it.
pub(crate) fn event(event: HistoryEvent) -> LockEvent {
    LockEvent {
        event: match event.kind {
            HistoryKind::Granted => LockEventKind::Granted,
            HistoryKind::Released => LockEventKind::Released,
            HistoryKind::Expired => LockEventKind::Expired,
            HistoryKind::Forced => LockEventKind::Forced,
        },
        lock_key: event.key,
        owner_id: event.owner.as_ref().into(),
        fencing_token: event.fencing.0,
        at: event.at.0,
        renewals: event.renewals,
        reason: event.reason,
        by: event.by.map(|by| by.as_ref().into()),
    }
}
