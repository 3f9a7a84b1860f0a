//! `/v1/maps`: maps of counters, sets and registers, whose fields are known by name and kind (D1, D12).

use super::Shared;
use super::answer::{Problem, json};
use super::crdt::{self, NAME, Read, to_core};
use super::crdt_watch;
use super::exchange::Exchange;
use super::parameters::{ListParameters, NameParameter, NamespaceParameter, PageParameters, SeenParameters};
use super::registers;
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::crdt::{
    CrdtKind, MapField, MapPage, MapWrite, MapWritten, ObjectList, ObjectName, WRITE_BYTES_MAX,
};
use baton_core::Name;
use baton_core::crdt::{Act, Context, Edit, Kind, Object, Row, RowKey, counter, opaque, register};
use baton_engine::presence::is_group;
use baton_engine::replica::Replica;
use hyper::StatusCode;
use std::sync::Arc;

/// Change fields of a map, all in one step.
///
/// Answered when it is on this node's disk, without asking any other. A field is known by its name and its kind: a counter and a set of
/// one name are two fields.
#[utoipa::path(
    post, path = "/v1/maps/{name}", tag = "crdt", operation_id = "changeMap",
    params(NameParameter, NamespaceParameter), request_body = MapWrite,
    responses(
        (status = 200, description = "It is durable here", body = MapWritten),
        (status = 409, description = "OBJECT_FULL", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn change(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Map, request);
    let outcome = changed(&exchange, body).await;
    exchange.end(outcome)
}

async fn changed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: MapWrite = exchange.read(body, WRITE_BYTES_MAX).await?;
    request.check()?;
    let seen = crdt::optional_context(request.context.as_ref())?;
    let edits = edits(&name, &request, seen.as_ref());
    let _place = exchange.enter(Class::Work)?;
    let replica = &crdt::opened(exchange).await?.replica;
    let written = crdt::write(replica, &edits, request.writer.as_ref(), request.request_id.as_ref()).await?;
    let (map, context) = (name.key().into(), written.context().to_text());
    Ok(json(StatusCode::OK, &MapWritten { map, context, replayed: written.replayed }))
}

fn edits(name: &Name, request: &MapWrite, seen: Option<&Context>) -> Vec<Edit> {
    let object = |field: &str| Object::field(name.namespace(), name.key(), field);
    let mut edits = Vec::new();
    for (kind, counters) in [(Kind::Counter, &request.counters), (Kind::GrowCounter, &request.grow_counters)]
    {
        edits.extend(counters.iter().map(|(field, amount)| Edit::add(&object(field), kind, amount.0)));
    }
    for (field, set) in &request.sets {
        let object = object(field);
        edits.extend(set.add.iter().map(|element| Edit::insert(&object, element.as_bytes())));
        let remove = |element: &String| Edit::remove(&object, element.as_bytes(), seen.cloned());
        edits.extend(set.remove.iter().map(remove));
    }
    for (kind, registers) in
        [(CrdtKind::Register, &request.registers), (CrdtKind::MultiValue, &request.multi_values)]
    {
        let put = |(field, value)| registers::edit(&object(field), kind, value, seen.cloned());
        edits.extend(registers.iter().map(|(field, value)| put((field, value))));
    }
    edits.extend(request.remove.iter().map(|MapField { field, kind }| {
        let (key, act) = (object(field).row(to_core(*kind)), Act::Remove(seen.cloned()));
        Edit { key, act }
    }));
    edits
}

/// A map's fields, page by page, as far as this replica has seen.
///
/// A page is counted in fields and, of sets, in elements: a set may go on on the next page.
#[utoipa::path(
    get, path = "/v1/maps/{name}", tag = "crdt", operation_id = "getMap",
    params(NameParameter, NamespaceParameter, SeenParameters, PageParameters),
    responses((status = 200, description = "As it is here; empty if it was never written", body = MapPage))
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::Map, request);
    exchange.waits = true;
    let outcome = looked_at(&exchange).await;
    exchange.end(outcome)
}

async fn looked_at(exchange: &Exchange) -> Result<Response, Problem> {
    let known = [&Read::PARAMETERS[..], &["limit", "cursor"]].concat();
    let (name, parameters) = exchange.name_and(NAME, &known)?;
    let (limit, cursor) = parameters.page()?;
    let prefix = Object::map_prefix(name.namespace(), name.key());
    let after = crdt::place(cursor)?.map(|rest| RowKey::decode(&[&prefix[..], &rest].concat()));
    let bad = |_| Problem::invalid("cursor", "cursor must be a nextCursor of an earlier page, unchanged");
    let after = after.transpose().map_err(bad)?;
    let read = Read::of(name, &parameters)?;
    let (opened, _place) = read.begin(exchange).await?;
    let name = &read.name;
    let reading = opened.replica.map(name.namespace(), name.key(), after.as_ref(), limit);
    let part = reading.value;
    let last = part.items.last().filter(|_| part.more);
    let mut page = MapPage {
        map: name.key().into(),
        context: reading.context.to_text(),
        next_cursor: last.map(|(key, _)| opaque::text(&key.bytes()[prefix.len()..])),
        ..MapPage::default()
    };
    part.items.iter().for_each(|(key, row)| show(&mut page, key, row));
    Ok(json(StatusCode::OK, &page))
}

fn show(page: &mut MapPage, key: &RowKey, row: &Row) {
    let parts = key.parts();
    let Some(field) = parts.field.map(ToOwned::to_owned) else { return };
    match parts.kind {
        Kind::Counter => drop(page.counters.insert(field, counter::value(row))),
        Kind::GrowCounter => drop(page.grow_counters.insert(field, counter::value(row))),
        Kind::Set => page.sets.entry(field).or_default().push(crdt::text(parts.element)),
        Kind::Register => {
            let value = register::latest(row).and_then(|(_, value)| registers::value(value));
            page.registers.extend(value.map(|value| (field, value)));
        }
        Kind::MultiValue => {
            let values = register::values(row).into_iter().filter_map(|(_, value)| registers::value(value));
            page.multi_values.insert(field, values.collect());
        }
    }
}

/// Maps of a namespace that have fields.
#[utoipa::path(
    get, path = "/v1/maps", tag = "crdt", operation_id = "listMaps",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page", body = ObjectList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Maps, request);
    let names = |replica: &Replica, namespace: &str, prefix: &str, from: Option<&[u8]>, limit| {
        let mut names = replica.maps(namespace, prefix, from, limit);
        // Those of presence are kept as maps, and are none.
        names.items.retain(|(name, _)| !is_group(name));
        names
    };
    let outcome = crdt::listed(&exchange, names, |(name, _)| ObjectName { name, kind: None }).await;
    exchange.end(outcome)
}

/// Follow a map.
///
/// Events are named `changed`; their data is a MapChange, which says which fields to read again. `lost` says that some may be missing.
#[utoipa::path(
    get, path = "/v1/maps/{name}/watch", tag = "crdt", operation_id = "watchMap",
    params(NameParameter, NamespaceParameter),
    responses((status = 200, description = "Events as they happen", body = String, content_type = "text/event-stream"))
)]
pub async fn watch(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::MapWatch, request);
    exchange.waits = true;
    let outcome = crdt_watch::map(&exchange).await;
    exchange.end(outcome)
}
