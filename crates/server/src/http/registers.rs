//! `/v1/registers`: values that need no agreement: the last write wins, or all concurrent ones are kept (D1).

use super::Shared;
use super::answer::{Problem, json};
use super::crdt::{self, NAME};
use super::crdt_watch;
use super::exchange::Exchange;
use super::parameters::{
    ListParameters, NameParameter, NamespaceParameter, RegisterKindParameter, RemovalParameters,
    SeenParameters,
};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::crdt::{CrdtKind, ObjectList, RegisterState, RegisterWrite, RemovedResponse, WRITE_BYTES_MAX};
use baton_core::crdt::{Act, Context, Edit, Kind, Object};
use baton_core::{Bytes, Name};
use baton_engine::replica::{Reading, Replica};
use hyper::StatusCode;
use serde_json::value::RawValue;
use std::sync::Arc;

/// What a register may be.
const KINDS: [CrdtKind; 2] = [CrdtKind::Register, CrdtKind::MultiValue];

/// Set a register.
///
/// Answered when it is on this node's disk, without asking any other. Of concurrent writes of a `register` the last one wins, by clocks that
/// are ahead of all they have seen; a `multi-value` one keeps all of them until a write that has seen them.
#[utoipa::path(
    put, path = "/v1/registers/{name}", tag = "crdt", operation_id = "putRegister",
    params(NameParameter, NamespaceParameter, RegisterKindParameter), request_body = RegisterWrite,
    responses(
        (status = 200, description = "It is durable here", body = RegisterState),
        (status = 409, description = "OBJECT_FULL", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn put(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Register, request);
    let outcome = written(&exchange, body).await;
    exchange.end(outcome)
}

async fn written(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let (name, parameters) = exchange.name_and(NAME, &["namespace", "kind"])?;
    let kind = crdt::kind(&parameters, &KINDS)?;
    let request: RegisterWrite = exchange.read(body, WRITE_BYTES_MAX).await?;
    request.check()?;
    let seen = crdt::optional_context(request.context.as_ref())?;
    if seen.is_some() && kind == CrdtKind::Register {
        let message =
            "only a multi-value register is written with a context: of this one the last write wins";
        return Err(Problem::invalid("context", message));
    }
    let edit = edit(&crdt::object(&name), kind, &request.value, seen);
    let _place = exchange.enter(Class::Work)?;
    let replica = &crdt::opened(exchange).await?.replica;
    let written = crdt::write(replica, &[edit], request.writer.as_ref(), request.request_id.as_ref()).await?;
    let state = RegisterState {
        context: written.context().to_text(),
        replayed: written.replayed,
        ..state(replica, &name, kind)
    };
    Ok(json(StatusCode::OK, &state))
}

/// The edit that sets a register, or a map's field that is one.
pub(super) fn edit(object: &Object, kind: CrdtKind, value: &RawValue, seen: Option<Context>) -> Edit {
    let (key, value) = (object.row(crdt::to_core(kind)), value.get().as_bytes().into());
    match seen.filter(|_| kind == CrdtKind::MultiValue) {
        Some(seen) => Edit { key, act: Act::Replace { value, seen } },
        None => Edit { key, act: Act::Put(value) },
    }
}

/// The register as it is here.
pub(super) fn state(replica: &Replica, name: &Name, kind: CrdtKind) -> RegisterState {
    let object = crdt::object(name);
    let Reading { value: values, context } = match kind {
        CrdtKind::MultiValue => replica.values(&object),
        _ => {
            let Reading { value, context } = replica.register(&object);
            Reading { value: value.into_iter().collect(), context }
        }
    };
    let values: Vec<_> = values.iter().filter_map(value).collect();
    let first = values.first().cloned();
    RegisterState {
        register: name.key().into(),
        kind,
        exists: first.is_some(),
        value: first,
        values: if kind == CrdtKind::MultiValue { values } else { Vec::new() },
        context: context.to_text(),
        replayed: false,
    }
}

/// A value as it was given. All of them came in as JSON.
pub(super) fn value(bytes: &Bytes) -> Option<Box<RawValue>> {
    serde_json::from_slice(bytes).ok()
}

/// What a register is set to, as far as this replica has seen.
#[utoipa::path(
    get, path = "/v1/registers/{name}", tag = "crdt", operation_id = "getRegister",
    params(NameParameter, NamespaceParameter, RegisterKindParameter, SeenParameters),
    responses((status = 200, description = "As it is here; `exists` says whether it has a value", body = RegisterState))
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::Register, request);
    exchange.waits = true;
    let outcome = crdt::looked_at(&exchange, &KINDS, state).await;
    exchange.end(outcome)
}

/// Remove a register's value, as far as it was seen.
#[utoipa::path(
    delete, path = "/v1/registers/{name}", tag = "crdt", operation_id = "removeRegister",
    params(NameParameter, NamespaceParameter, RegisterKindParameter, RemovalParameters),
    responses(
        (status = 200, description = "What was seen is gone", body = RemovedResponse),
        (status = 403, description = "FORBIDDEN: a web page of another site sent it", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn remove(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Register, request);
    let outcome = crdt::removed(&exchange, &KINDS).await;
    exchange.end(outcome)
}

/// Registers of a namespace.
#[utoipa::path(
    get, path = "/v1/registers", tag = "crdt", operation_id = "listRegisters",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page", body = ObjectList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Registers, request);
    let names = |replica: &Replica, namespace: &str, prefix: &str, from: Option<&[u8]>, limit| {
        replica.names(namespace, &[Kind::Register, Kind::MultiValue], prefix, from, limit)
    };
    let outcome = crdt::listed(&exchange, names, crdt::named).await;
    exchange.end(outcome)
}

/// Follow a register.
///
/// The first event says at once what it is set to, and each further one that it was set or removed: named `value`, with a RegisterState.
/// Changes that come together are one event.
#[utoipa::path(
    get, path = "/v1/registers/{name}/watch", tag = "crdt", operation_id = "watchRegister",
    params(NameParameter, NamespaceParameter, RegisterKindParameter),
    responses((status = 200, description = "Events as they happen", body = String, content_type = "text/event-stream"))
)]
pub async fn watch(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::RegisterWatch, request);
    exchange.waits = true;
    let outcome = crdt_watch::value(&exchange, &KINDS, state).await;
    exchange.end(outcome)
}
