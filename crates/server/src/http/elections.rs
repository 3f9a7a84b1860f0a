//! Looking at elections: one, or a list. Never shows a leaderToken.

use super::Shared;
use super::answer::{Problem, json, millis};
use super::election::no_leader;
use super::exchange::Exchange;
use super::input::{self, Parameters};
use super::parameters::{ListParameters, NameParameter, NamespaceParameter, PageParameters};
use crate::gate::Class;
use crate::metrics::Route;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::election::{Candidate, ElectionList, ElectionStatus, ElectionSummary};
use baton_core::lock::{Family, LockName};
use hyper::StatusCode;
use std::sync::Arc;

/// Who leads, and who stands by.
#[utoipa::path(
    get, path = "/v1/elections/{name}", tag = "elections", operation_id = "getElection",
    params(NameParameter, NamespaceParameter, PageParameters),
    responses(
        (status = 200, description = "Somebody leads", body = ElectionStatus),
        (status = 404, description = "NO_LEADER: nobody leads", body = ErrorBody),
    )
)]
pub async fn election(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Election, request);
    let outcome = looked_at(&exchange).await;
    exchange.end(outcome)
}

async fn looked_at(exchange: &Exchange) -> Result<Response, Problem> {
    let name = input::name(&exchange.uri, "name")?;
    let parameters = Parameters::read(&exchange.uri, &["namespace", "limit", "cursor"])?;
    let election = LockName::election(parameters.namespace()?, &name);
    let (limit, cursor) = parameters.page()?;
    let _place = exchange.enter(Class::Work)?;
    let engine = &exchange.server.engine;
    let state = engine.lock_state(&election).await?;
    let Some((leader, waiting)) = state.as_ref().and_then(|state| Some((state.first()?, state.waiting)))
    else {
        return Err(no_leader("nobody leads; campaign to, or look again when a candidate was elected"));
    };
    let page = engine.candidates(&election, limit, cursor).await?;
    let candidate = |candidate: baton_engine::election::Candidate| Candidate {
        candidate_id: candidate.id.as_ref().into(),
        priority: candidate.priority,
        since: candidate.since.0,
        waiting_millis: millis(candidate.waited),
        connected: candidate.connected,
    };
    let value = leader.metadata.as_ref().and_then(|bytes| serde_json::from_slice(bytes).ok());
    let status = ElectionStatus {
        election: election.key().into(),
        leader: leader.owner.as_ref().into(),
        epoch: leader.fencing.0,
        value: value.unwrap_or_default(),
        since: leader.acquired_at.0,
        expires_at: leader.expires_at.0,
        ttl_millis: millis(leader.ttl),
        renewals: leader.renewals,
        candidate_count: waiting,
        candidates: page.candidates.into_iter().map(candidate).collect(),
        next_cursor: page.next_cursor,
    };
    Ok(json(StatusCode::OK, &status))
}

/// Elections that somebody leads, page by page.
#[utoipa::path(
    get, path = "/v1/elections", tag = "elections", operation_id = "listElections",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page of elections", body = ElectionList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Elections, request);
    let outcome = listed(&exchange).await;
    exchange.end(outcome)
}

async fn listed(exchange: &Exchange) -> Result<Response, Problem> {
    let parameters = Parameters::of_list(&exchange.uri)?;
    let (namespace, prefix, limit, cursor) = parameters.list()?;
    let _place = exchange.enter(Class::Work)?;
    let page = exchange.server.engine.list_locks(Family::Election, namespace, prefix, limit, cursor).await?;
    let summary = |election: baton_engine::lock::Summary| ElectionSummary {
        election: election.key,
        leader: election.owner.as_ref().into(),
        epoch: election.fencing.0,
        expires_at: election.expires_at.0,
        candidate_count: election.waiting,
    };
    let elections = page.locks.into_iter().map(summary).collect();
    Ok(json(StatusCode::OK, &ElectionList { elections, next_cursor: page.next_cursor }))
}
