//! `/v1/sets`: sets that need no agreement; an add wins over a removal that hasn't seen it (D1, D9).

use super::Shared;
use super::answer::{Problem, json};
use super::crdt::{self, NAME, Read};
use super::crdt_watch;
use super::exchange::Exchange;
use super::parameters::{
    ElementParameters, ListParameters, NameParameter, NamespaceParameter, SeenParameters,
};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::crdt::{ELEMENT_BYTES, ObjectList, SetPage, SetWrite, SetWritten, WRITE_BYTES_MAX};
use baton_core::crdt::{Edit, Kind, opaque};
use baton_engine::replica::{Part, Reading, Replica};
use hyper::StatusCode;
use std::sync::Arc;

/// Put elements into a set and take others out, all in one step.
///
/// Answered when it is on this node's disk, without asking any other. A removal takes away what its `context` has seen, or else what this
/// replica has seen: an element that was added elsewhere meanwhile stays.
#[utoipa::path(
    post, path = "/v1/sets/{name}", tag = "crdt", operation_id = "changeSet",
    params(NameParameter, NamespaceParameter), request_body = SetWrite,
    responses(
        (status = 200, description = "It is durable here", body = SetWritten),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn change(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Set, request);
    let outcome = changed(&exchange, body).await;
    exchange.end(outcome)
}

async fn changed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: SetWrite = exchange.read(body, WRITE_BYTES_MAX).await?;
    request.check()?;
    let seen = crdt::optional_context(request.context.as_ref())?;
    let object = crdt::object(&name);
    let adds = request.add.iter().map(|element| Edit::insert(&object, element.as_bytes()));
    let removes =
        request.remove.iter().map(|element| Edit::remove(&object, element.as_bytes(), seen.clone()));
    let edits: Vec<_> = adds.chain(removes).collect();
    let _place = exchange.enter(Class::Work)?;
    let replica = &crdt::opened(exchange).await?.replica;
    let written = crdt::write(replica, &edits, request.writer.as_ref(), request.request_id.as_ref()).await?;
    let (set, context) = (name.key().into(), written.context().to_text());
    Ok(json(StatusCode::OK, &SetWritten { set, context, replayed: written.replayed }))
}

/// The elements of a set, page by page, as far as this replica has seen.
///
/// Each page has the context of its own moment: a removal of what it shows is made with that one.
#[utoipa::path(
    get, path = "/v1/sets/{name}", tag = "crdt", operation_id = "getSet",
    params(NameParameter, NamespaceParameter, SeenParameters, ElementParameters),
    responses((status = 200, description = "As it is here; empty if it was never written", body = SetPage))
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::Set, request);
    exchange.waits = true;
    let outcome = looked_at(&exchange).await;
    exchange.end(outcome)
}

async fn looked_at(exchange: &Exchange) -> Result<Response, Problem> {
    let known = [&Read::PARAMETERS[..], &["element", "limit", "cursor"]].concat();
    let (name, parameters) = exchange.name_and(NAME, &known)?;
    let (limit, cursor) = parameters.page()?;
    let from = crdt::place(cursor)?;
    let element = parameters.get("element").map(ToOwned::to_owned);
    if let Some(element) = element.as_ref().filter(|element| !ELEMENT_BYTES.contains(&element.len())) {
        let message = format!("an element has 1 to 1024 bytes, not {}", element.len());
        return Err(Problem::invalid("element", message));
    }
    let read = Read::of(name, &parameters)?;
    let (opened, _place) = read.begin(exchange).await?;
    let (object, replica) = (crdt::object(&read.name), &opened.replica);
    let Reading { value: Part { items, more }, context } = match element {
        Some(element) => {
            let Reading { value, context } = replica.contains(&object, element.as_bytes());
            let items = if value { vec![element.as_bytes().into()] } else { Vec::new() };
            Reading { value: Part { items, more: false }, context }
        }
        None => replica.elements(&object, from.as_deref(), limit),
    };
    let next_cursor = items.last().filter(|_| more).map(|last| opaque::text(last));
    let elements = items.iter().map(|element| crdt::text(element)).collect();
    let set = read.name.key().into();
    Ok(json(StatusCode::OK, &SetPage { set, elements, context: context.to_text(), next_cursor }))
}

/// Sets of a namespace that have elements.
#[utoipa::path(
    get, path = "/v1/sets", tag = "crdt", operation_id = "listSets",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page", body = ObjectList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Sets, request);
    let names = |replica: &Replica, namespace: &str, prefix: &str, from: Option<&[u8]>, limit| {
        replica.names(namespace, &[Kind::Set], prefix, from, limit)
    };
    let outcome = crdt::listed(&exchange, names, crdt::named).await;
    exchange.end(outcome)
}

/// Follow a set.
///
/// Events are named `changed`; their data is a SetChange. `lost` says that some may be missing: read the set again.
#[utoipa::path(
    get, path = "/v1/sets/{name}/watch", tag = "crdt", operation_id = "watchSet",
    params(NameParameter, NamespaceParameter),
    responses((status = 200, description = "Events as they happen", body = String, content_type = "text/event-stream"))
)]
pub async fn watch(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::SetWatch, request);
    exchange.waits = true;
    let outcome = crdt_watch::set(&exchange).await;
    exchange.end(outcome)
}
