//! `/v1/replication`: how far the other replicas are; and what they ask (D3, D6).

use super::Shared;
use super::answer::{Problem, json, millis, raw};
use super::exchange::Exchange;
use super::input;
use crate::gate::Class;
use crate::metrics::Route;
use crate::peers::PROOF;
use crate::replication::{Unanswered, answer};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::limits::BODY_BYTES_MAX;
use baton_api::replication::{
    ReplicaRun, ReplicaStatus, ReplicationPeer, ReplicationStatus, RetireRequest, RetireResponse,
};
use baton_api::{ErrorBody, ErrorCode};
use baton_core::crdt::Actor;
use baton_core::crdt::sync::MESSAGE_BYTES_MAX;
use baton_engine::replica::{Failure, OpenError, Run};
use baton_engine::replication::PeerStatus;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use std::sync::Arc;

/// How far this node's replica and the others are.
#[utoipa::path(
    get, path = "/v1/replication", tag = "operations", operation_id = "getReplication",
    responses((status = 200, description = "As this replica sees it", body = ReplicationStatus))
)]
pub async fn status(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Replication, request);
    let outcome = shown(&exchange);
    exchange.end(outcome)
}

fn shown(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    let _place = exchange.enter(Class::Work)?;
    let status = exchange.server.replica.opened().map(|opened| {
        let size = opened.replica.size();
        ReplicationStatus {
            replica: Some(ReplicaStatus {
                actor: named(opened.replica.actor()),
                state: format!("{:016x}", opened.replica.whole()),
                rows: size.rows as u64,
                held: size.held as u64,
                actors: size.actors as u64,
            }),
            peers: opened.replication.peers().into_iter().map(peer).collect(),
            runs: opened.replica.runs().into_iter().map(run).collect(),
        }
    });
    Ok(json(StatusCode::OK, &status.unwrap_or_default()))
}

fn run(run: Run) -> ReplicaRun {
    ReplicaRun { actor: named(run.actor), changes: run.changes, retired: run.is_retired }
}

/// Retire a run that is over for good: what it made in sets and registers becomes this replica's.
///
/// Nothing changes for readers. A run that goes on all the same is merged like any other.
#[utoipa::path(
    post, path = "/v1/replication/retire", tag = "operations", operation_id = "retireReplica",
    request_body = RetireRequest,
    responses((status = 200, description = "It is retired, if it was known", body = RetireResponse))
)]
pub async fn retire(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::ReplicationRetire, request);
    let outcome = retired(&exchange, body).await;
    exchange.end(outcome)
}

async fn retired(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    exchange.same_site()?;
    let request: RetireRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    let wrong = |message: &str| Problem::invalid("actor", message);
    let actor = read(&request.actor).ok_or_else(|| wrong("a run's name has 32 digits from 0 to f"))?;
    let _place = exchange.enter(Class::Work)?;
    let opened = exchange.server.replica.open().await.map_err(unopened)?;
    let peers = opened.replication.peers();
    if opened.replica.actor() == actor
        || peers.iter().any(|peer| peer.is_reachable && peer.actor == Some(actor))
    {
        return Err(wrong("this run is not over: stop its node first"));
    }
    let known = opened.replica.runs().iter().any(|run| run.actor == actor);
    let rows = if known { opened.replica.retire(actor).await.map_err(|error| failed(&error))? } else { 0 };
    tracing::info!(actor = request.actor, known, rows, "a run was retired");
    Ok(json(StatusCode::OK, &RetireResponse { actor: request.actor, known, rows: rows as u64 }))
}

fn read(actor: &str) -> Option<Actor> {
    let is_name = actor.len() == 32 && actor.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_name.then(|| u128::from_str_radix(actor, 16).ok()).flatten().map(|bits| Actor(bits.to_be_bytes()))
}

fn peer(status: PeerStatus) -> ReplicationPeer {
    ReplicationPeer {
        address: status.address.to_string(),
        actor: status.actor.map(named),
        this: status.is_self,
        reachable: status.is_reachable,
        behind: status.behind,
        lag_millis: status.lag.map_or(0, millis),
        waiting: status.waiting,
        dropped: status.dropped,
        rounds: status.rounds,
        failures: status.failures,
        last_round_millis: status.last_round.map(millis),
    }
}

/// A run of a replica, as it is written.
fn named(actor: Actor) -> String {
    actor.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Answers another replica. Between replicas only, and so not in the description.
pub async fn asked(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let proof = request.headers().get(PROOF).and_then(|proof| proof.to_str().ok()).map(str::to_owned);
    let (exchange, body) = Exchange::begin(server, Route::Replica, request);
    let outcome = answered(&exchange, proof.as_deref(), body).await;
    exchange.end(outcome)
}

async fn answered(exchange: &Exchange, proof: Option<&str>, body: Body) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    let (server, stranger) = (&exchange.server, || {
        let message = "only replicas of the same cluster ask each other here; GET /v1/replication shows how far they are";
        Problem::from(ErrorBody::new(ErrorCode::Forbidden, message))
    });
    let proof = proof.ok_or_else(stranger)?;
    // Replicas have a place before their bodies are read, so that strangers can't fill the memory with them.
    let _place = exchange.enter(Class::Work)?;
    let request = input::body(body, MESSAGE_BYTES_MAX, server.body_within).await?;
    if !server.replica.keys.know(proof, &request) {
        return Err(stranger());
    }
    let opened = server.replica.open().await.map_err(unopened)?;
    let (reply, proof) = answer(&opened.replica, &server.replica.keys, proof, &request).await.map_err(
        |error| match error {
            Unanswered::Stranger => stranger(),
            Unanswered::Unreadable => {
                Problem::invalid("body", "this can't be read: it is of another version of Baton, or damaged")
            }
            Unanswered::Failed(failure) => failed(&failure),
        },
    )?;
    let mut response = raw(StatusCode::OK, "application/octet-stream", bytes::Bytes::copy_from_slice(&reply));
    let proof = HeaderValue::from_str(&proof).map_err(|_| Problem::internal())?;
    response.headers_mut().insert(PROOF, proof);
    Ok(response)
}

fn unopened(error: OpenError) -> Problem {
    tracing::error!(%error, "the replica can't be opened");
    Problem::not_ready("this node's replica can't be opened; its log says why")
}

fn failed(failure: &Failure) -> Problem {
    match failure {
        Failure::Busy => Problem::overloaded("writes to the replica"),
        Failure::Partial => super::crdt::partial(),
        failure => {
            tracing::error!(%failure, "what another replica told can't be taken in");
            Problem::not_ready("this node's replica can't be written; its log says why")
        }
    }
}
