//! `/v1/presence`: who is there, each observer counting from when it heard (D7).

use super::Shared;
use super::answer::{Problem, json, millis};
use super::crdt::{self, NAME, Read};
use super::exchange::Exchange;
use super::parameters::{NameParameter, NamespaceParameter, PageParameters, SeenParameters};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::crdt::{PresenceLeave, PresenceList, PresenceMember, PresenceRefresh, PresenceWritten};
use baton_api::limits::BODY_BYTES_MAX;
use baton_core::crdt::opaque;
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;

/// Say that a member is there.
///
/// Every observer takes it to be there for `ttlMillis` after it hears of this, by its own clock. Say it again at a third of that.
#[utoipa::path(
    post, path = "/v1/presence/{name}", tag = "crdt", operation_id = "refreshPresence",
    params(NameParameter, NamespaceParameter), request_body = PresenceRefresh,
    responses((status = 200, description = "It is known here", body = PresenceWritten))
)]
pub async fn refresh(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Presence, request);
    let outcome = refreshed(&exchange, body).await;
    exchange.end(outcome)
}

async fn refreshed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: PresenceRefresh = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    let (presence, ttl) =
        (&crdt::opened(exchange).await?.presence, Duration::from_millis(request.ttl_millis));
    let written = presence.refresh(name.namespace(), name.key(), &request.member, ttl).await?;
    let (group, context) = (name.key().into(), written.context().to_text());
    Ok(json(StatusCode::OK, &PresenceWritten { group, member: request.member, context }))
}

/// Say that a member goes.
#[utoipa::path(
    post, path = "/v1/presence/{name}/leave", tag = "crdt", operation_id = "leavePresence",
    params(NameParameter, NamespaceParameter), request_body = PresenceLeave,
    responses((status = 200, description = "It is known here, also if it wasn't there", body = PresenceWritten))
)]
pub async fn leave(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::PresenceLeave, request);
    let outcome = left(&exchange, body).await;
    exchange.end(outcome)
}

async fn left(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: PresenceLeave = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    let presence = &crdt::opened(exchange).await?.presence;
    let written = presence.leave(name.namespace(), name.key(), &request.member).await?;
    let (group, context) = (name.key().into(), written.context().to_text());
    Ok(json(StatusCode::OK, &PresenceWritten { group, member: request.member, context }))
}

/// Who is there, as far as this replica has heard.
///
/// A page may have fewer members than asked for, and still not be the last.
#[utoipa::path(
    get, path = "/v1/presence/{name}", tag = "crdt", operation_id = "getPresence",
    params(NameParameter, NamespaceParameter, SeenParameters, PageParameters),
    responses((status = 200, description = "As of now; nobody if nothing was heard", body = PresenceList))
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::Presence, request);
    exchange.waits = true;
    let outcome = looked_at(&exchange).await;
    exchange.end(outcome)
}

async fn looked_at(exchange: &Exchange) -> Result<Response, Problem> {
    let known = [&Read::PARAMETERS[..], &["limit", "cursor"]].concat();
    let (name, parameters) = exchange.name_and(NAME, &known)?;
    let (limit, cursor) = parameters.page()?;
    let after = crdt::place(cursor)?.map(String::from_utf8).transpose();
    let after =
        after.ok().filter(|after| !after.as_ref().is_some_and(|after| after.contains('\0'))).ok_or_else(
            || Problem::invalid("cursor", "cursor must be a nextCursor of an earlier page, unchanged"),
        )?;
    let read = Read::of(name, &parameters)?;
    let (opened, _place) = read.begin(exchange).await?;
    let name = &read.name;
    let reading = opened.presence.members(name.namespace(), name.key(), after.as_deref(), limit);
    let members = reading
        .value
        .members
        .into_iter()
        .map(|member| PresenceMember { member: member.name, alive_for_millis: millis(member.alive_for) });
    let list = PresenceList {
        group: name.key().into(),
        members: members.collect(),
        context: reading.context.to_text(),
        next_cursor: reading.value.next.map(|next| opaque::text(next.as_bytes())),
    };
    Ok(json(StatusCode::OK, &list))
}
