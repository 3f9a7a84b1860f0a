//! Looking at locks: one, a list, a queue, a history. Never shows a lockToken.

use super::Shared;
use super::answer::{Problem, json, millis};
use super::calls;
use super::exchange::Exchange;
use super::input::Parameters;
use super::parameters::{KeyParameter, ListParameters, NamespaceParameter};
use crate::gate::Class;
use crate::metrics::Route;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::lock::{
    LockHistory, LockHolder, LockList, LockQueue, LockStatus, LockSummary, Metadata, NotLocked, Waiting,
};
use baton_api::mode::LockMode;
use baton_core::lock::{Family, LockName, Mode};
use baton_engine::lock::{HolderState, LockState};
use hyper::StatusCode;
use std::sync::Arc;

/// Who holds a lock.
#[utoipa::path(
    get, path = "/v1/locks/{lockKey}", tag = "locks", operation_id = "getLock",
    params(KeyParameter, NamespaceParameter),
    responses(
        (status = 200, description = "It is held", body = LockStatus),
        (status = 404, description = "It is free", body = NotLocked),
    )
)]
pub async fn lock(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Lock, request);
    let outcome = looked_at(&exchange).await;
    exchange.end(outcome)
}

async fn looked_at(exchange: &Exchange) -> Result<Response, Problem> {
    let lock = exchange.lock()?;
    let _place = exchange.enter(Class::Work)?;
    let state = exchange.server.engine.lock_state(&lock).await?;
    Ok(match state.and_then(|state| status(&lock, &state)) {
        Some(status) => json(StatusCode::OK, &status),
        None => json(StatusCode::NOT_FOUND, &NotLocked { locked: false }),
    })
}

fn status(lock: &LockName, state: &LockState) -> Option<LockStatus> {
    let first = state.first()?;
    Some(LockStatus {
        lock_key: lock.key().into(),
        locked: true,
        owner_id: first.owner.as_ref().into(),
        expires_at: first.expires_at.0,
        fencing_token: first.fencing.0,
        acquired_at: first.acquired_at.0,
        updated_at: first.updated_at.0,
        ttl_millis: millis(first.ttl),
        reentrancy_count: first.count,
        queue_length: state.waiting,
        renewals: first.renewals,
        metadata: metadata(first),
        mode: calls::lock_mode(first.hold),
        permits: state.permits,
        holders: state.holders.iter().map(holder).collect(),
    })
}

fn holder(state: &HolderState) -> LockHolder {
    LockHolder {
        owner_id: state.owner.as_ref().into(),
        fencing_token: state.fencing.0,
        slot: calls::slot(state.hold),
        acquired_at: state.acquired_at.0,
        expires_at: state.expires_at.0,
        renewals: state.renewals,
        metadata: metadata(state),
    }
}

fn metadata(state: &HolderState) -> Metadata {
    state.metadata.as_ref().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// Held locks, page by page.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks", operation_id = "listLocks",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page of held locks", body = LockList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::List, request);
    let outcome = listed(&exchange).await;
    exchange.end(outcome)
}

async fn listed(exchange: &Exchange) -> Result<Response, Problem> {
    let parameters = Parameters::of_list(&exchange.uri)?;
    let (namespace, prefix, limit, cursor) = parameters.list()?;
    let _place = exchange.enter(Class::Work)?;
    let page = exchange.server.engine.list_locks(Family::Lock, namespace, prefix, limit, cursor).await?;
    let summary = |lock: baton_engine::lock::Summary| LockSummary {
        lock_key: lock.key,
        owner_id: lock.owner.as_ref().into(),
        expires_at: lock.expires_at.0,
        fencing_token: lock.fencing.0,
        queue_length: lock.waiting,
        mode: calls::lock_mode(lock.hold),
        permits: lock.permits,
        holders: lock.holders,
    };
    let locks = page.locks.into_iter().map(summary).collect();
    Ok(json(StatusCode::OK, &LockList { locks, next_cursor: page.next_cursor }))
}

/// Who waits for a lock, next first.
#[utoipa::path(
    get, path = "/v1/locks/{lockKey}/queue", tag = "locks", operation_id = "getLockQueue",
    params(KeyParameter, NamespaceParameter),
    responses((status = 200, description = "Who waits; nobody for a free lock", body = LockQueue))
)]
pub async fn queue(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Queue, request);
    let outcome = queued(&exchange).await;
    exchange.end(outcome)
}

async fn queued(exchange: &Exchange) -> Result<Response, Problem> {
    let lock = exchange.lock()?;
    let _place = exchange.enter(Class::Work)?;
    let entries = exchange.server.engine.lock_queue(&lock).await?;
    let waiting = entries.into_iter().map(|entry| Waiting {
        owner_id: entry.owner.as_ref().into(),
        mode: match entry.mode {
            Mode::Exclusive => LockMode::Exclusive,
            Mode::Shared => LockMode::Shared,
            Mode::Semaphore { .. } => LockMode::Semaphore,
        },
        since: entry.since.0,
        waiting_millis: millis(entry.waited),
        connected: entry.connected,
    });
    Ok(json(StatusCode::OK, &LockQueue { lock_key: lock.key().into(), waiting: waiting.collect() }))
}

/// What happened to a lock, newest first.
#[utoipa::path(
    get, path = "/v1/locks/{lockKey}/history", tag = "locks", operation_id = "getLockHistory",
    params(KeyParameter, NamespaceParameter),
    responses((status = 200, description = "What is remembered; nothing for an unknown lock", body = LockHistory))
)]
pub async fn history(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::History, request);
    let outcome = remembered(&exchange).await;
    exchange.end(outcome)
}

async fn remembered(exchange: &Exchange) -> Result<Response, Problem> {
    let lock = exchange.lock()?;
    let _place = exchange.enter(Class::Work)?;
    let events = exchange.server.engine.lock_history(&lock).await?;
    let events = events.into_iter().map(calls::event).collect();
    Ok(json(StatusCode::OK, &LockHistory { lock_key: lock.key().into(), events }))
}
