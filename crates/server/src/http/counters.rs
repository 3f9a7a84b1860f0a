//! `/v1/counters`: counters that need no agreement (D1).

use super::Shared;
use super::answer::{Problem, json};
use super::crdt::{self, NAME, to_core};
use super::crdt_watch;
use super::exchange::Exchange;
use super::parameters::{
    CounterKindParameter, ListParameters, NameParameter, NamespaceParameter, RemovalParameters,
    SeenParameters,
};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::crdt::{CounterState, CounterWrite, CrdtKind, ObjectList, RemovedResponse, WRITE_BYTES_MAX};
use baton_core::Name;
use baton_core::crdt::{Act, Edit, Kind, slot_of};
use baton_engine::replica::Replica;
use hyper::StatusCode;
use std::sync::Arc;

/// What a counter may be.
const KINDS: [CrdtKind; 2] = [CrdtKind::Counter, CrdtKind::GrowCounter];

/// Add to a counter, or take from it.
///
/// Answered when it is on this node's disk, without asking any other. Other replicas hear of it as soon as they can be reached.
#[utoipa::path(
    post, path = "/v1/counters/{name}", tag = "crdt", operation_id = "addToCounter",
    params(NameParameter, NamespaceParameter, CounterKindParameter), request_body = CounterWrite,
    responses(
        (status = 200, description = "It is durable here", body = CounterState),
        (status = 409, description = "OBJECT_FULL", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn add(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Counter, request);
    let outcome = added(&exchange, body).await;
    exchange.end(outcome)
}

async fn added(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let (name, parameters) = exchange.name_and(NAME, &["namespace", "kind"])?;
    let kind = crdt::kind(&parameters, &KINDS)?;
    let request: CounterWrite = exchange.read(body, WRITE_BYTES_MAX).await?;
    request.check()?;
    let act = match (request.add, request.total, &request.writer) {
        (Some(add), ..) => Act::Add(add.0),
        (None, Some(total), Some(writer)) => {
            Act::Report { writer: slot_of(writer), added: total.added, taken: total.taken }
        }
        _ => return Err(Problem::internal()),
    };
    let _place = exchange.enter(Class::Work)?;
    let replica = &crdt::opened(exchange).await?.replica;
    let edit = Edit { key: crdt::object(&name).row(to_core(kind)), act };
    let written = crdt::write(replica, &[edit], request.writer.as_ref(), request.request_id.as_ref()).await?;
    let state = CounterState {
        context: written.context().to_text(),
        replayed: written.replayed,
        ..state(replica, &name, kind)
    };
    Ok(json(StatusCode::OK, &state))
}

/// The counter as it is here.
pub(super) fn state(replica: &Replica, name: &Name, kind: CrdtKind) -> CounterState {
    let reading = replica.counter(&crdt::object(name), to_core(kind));
    CounterState {
        counter: name.key().into(),
        kind,
        value: reading.value,
        context: reading.context.to_text(),
        replayed: false,
    }
}

/// What a counter counts, as far as this replica has seen.
#[utoipa::path(
    get, path = "/v1/counters/{name}", tag = "crdt", operation_id = "getCounter",
    params(NameParameter, NamespaceParameter, CounterKindParameter, SeenParameters),
    responses((status = 200, description = "As it is here; 0 if it was never written", body = CounterState))
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::Counter, request);
    exchange.waits = true;
    let outcome = crdt::looked_at(&exchange, &KINDS, state).await;
    exchange.end(outcome)
}

/// Remove a counter, as far as it was seen.
///
/// What was added concurrently elsewhere stays. A writer's `total` comes back with its next report.
#[utoipa::path(
    delete, path = "/v1/counters/{name}", tag = "crdt", operation_id = "removeCounter",
    params(NameParameter, NamespaceParameter, CounterKindParameter, RemovalParameters),
    responses(
        (status = 200, description = "What was seen is gone", body = RemovedResponse),
        (status = 403, description = "FORBIDDEN: a web page of another site sent it", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn remove(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Counter, request);
    let outcome = crdt::removed(&exchange, &KINDS).await;
    exchange.end(outcome)
}

/// Counters of a namespace.
#[utoipa::path(
    get, path = "/v1/counters", tag = "crdt", operation_id = "listCounters",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page", body = ObjectList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Counters, request);
    let names = |replica: &Replica, namespace: &str, prefix: &str, from: Option<&[u8]>, limit| {
        replica.names(namespace, &[Kind::Counter, Kind::GrowCounter], prefix, from, limit)
    };
    let outcome = crdt::listed(&exchange, names, crdt::named).await;
    exchange.end(outcome)
}

/// Follow a counter.
///
/// The first event says at once what it counts, and each further one that it counts something else: named `value`, with a CounterState.
/// Changes that come together are one event.
#[utoipa::path(
    get, path = "/v1/counters/{name}/watch", tag = "crdt", operation_id = "watchCounter",
    params(NameParameter, NamespaceParameter, CounterKindParameter),
    responses((status = 200, description = "Events as they happen", body = String, content_type = "text/event-stream"))
)]
pub async fn watch(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::CounterWatch, request);
    exchange.waits = true;
    let outcome = crdt_watch::value(&exchange, &KINDS, state).await;
    exchange.end(outcome)
}
