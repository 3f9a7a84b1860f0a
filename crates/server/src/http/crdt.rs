//! What counters, sets, registers, maps and presence have in common: the replica, waiting until it has seen enough, and its refusals.

use super::answer::{Problem, json, retry};
use super::exchange::Exchange;
use super::input::Parameters;
use crate::gate::{Class, Place};
use crate::replica::Opened;
use axum::response::Response;
use baton_api::crdt::{
    CONTEXT_BYTES, CrdtKind, ObjectList, ObjectName, RemovedResponse, WAIT_MILLIS, WAIT_MILLIS_DEFAULT,
};
use baton_api::{ErrorBody, ErrorCode, limits};
use baton_core::Name;
use baton_core::crdt::counter::Refused;
use baton_core::crdt::{Act, Context, Edit, EditRefused, Kind, Object, opaque};
use baton_engine::replica::{Failure, Names, Replica, Request, Written};
use hyper::StatusCode;
use serde::Serialize;
use std::time::Duration;

/// What the name in the path is called.
pub(super) const NAME: &str = "name";
/// When to come back, if nothing better is known.
const RETRY_MILLIS: u64 = 1000;

/// The writer of requests that don't name one.
const NOBODY: &str = "";

/// What a read may say besides the name.
pub(super) struct Read {
    pub(super) name: Name,
    after: Option<Context>,
    wait: Duration,
}

impl Read {
    /// The parameters that every read has.
    pub(super) const PARAMETERS: [&'static str; 3] = ["namespace", "after", "waitMillis"];

    pub(super) fn of(name: Name, parameters: &Parameters<'_>) -> Result<Self, Problem> {
        let after = parameters.get("after").map(|text| context("after", text)).transpose()?;
        let wait = parameters.number("waitMillis", WAIT_MILLIS_DEFAULT, WAIT_MILLIS)?;
        Ok(Self { name, after, wait: Duration::from_millis(wait) })
    }

    /// The replica, when it has seen what it is to have seen, and a place for the call.
    pub(super) async fn begin<'a>(&self, exchange: &'a Exchange) -> Result<(&'a Opened, Place), Problem> {
        let opened = opened(exchange).await?;
        if let Some(after) = self.after.as_ref().filter(|after| !opened.replica.has_seen(after)) {
            let _waiting = exchange.enter(Class::Waiting)?;
            self.wait_for(exchange, &opened.replica, after).await?;
        }
        Ok((opened, exchange.enter(Class::Work)?))
    }

    async fn wait_for(&self, exchange: &Exchange, replica: &Replica, after: &Context) -> Result<(), Problem> {
        let mut stopping = exchange.server.stopping.clone();
        let seen = tokio::select! {
            seen = tokio::time::timeout(self.wait, replica.after(after)) => seen.is_ok(),
            _ = stopping.wait_for(|stopping| *stopping) => false,
        };
        if seen {
            return Ok(());
        }
        let missing = replica.context().lacks(after);
        let message = format!(
            "this replica has not seen all of `after` within waitMillis: {missing} changes are missing; try again \
             after retryAfterMillis, or at the replica that gave the context"
        );
        Err(retry(ErrorBody::new(ErrorCode::ReplicaBehind, message), RETRY_MILLIS).into())
    }
}

/// The replica. The first call that needs it makes it.
pub(super) async fn opened(exchange: &Exchange) -> Result<&Opened, Problem> {
    exchange.server.replica.open().await.map_err(|error| {
        tracing::error!(%error, "the replica can't be opened");
        unavailable("this node's replica can't be opened; its log says why", false)
    })
}

/// A context that came from outside.
pub(super) fn context(field: &'static str, text: &str) -> Result<Context, Problem> {
    limits::check_text(field, text, CONTEXT_BYTES)?;
    let unreadable =
        |_| Problem::invalid(field, format!("{field} must be a context of an earlier answer, unchanged"));
    Context::of_text(text).map_err(unreadable)
}

pub(super) fn optional_context(text: Option<&String>) -> Result<Option<Context>, Problem> {
    text.map(|text| context("context", text)).transpose()
}

/// The kind that the query names, one of those; the first if it names none.
pub(super) fn kind(parameters: &Parameters<'_>, kinds: &[CrdtKind]) -> Result<CrdtKind, Problem> {
    let Some(text) = parameters.get("kind") else { return Ok(kinds[0]) };
    let found = kinds.iter().find(|kind| kind.as_str() == text);
    found.copied().ok_or_else(|| {
        let words: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
        Problem::invalid("kind", format!("kind must be {}", words.join(" or ")))
    })
}

pub(super) fn to_core(kind: CrdtKind) -> Kind {
    match kind {
        CrdtKind::Counter => Kind::Counter,
        CrdtKind::GrowCounter => Kind::GrowCounter,
        CrdtKind::Set => Kind::Set,
        CrdtKind::Register => Kind::Register,
        CrdtKind::MultiValue => Kind::MultiValue,
    }
}

pub(super) fn to_wire(kind: Kind) -> CrdtKind {
    match kind {
        Kind::Counter => CrdtKind::Counter,
        Kind::GrowCounter => CrdtKind::GrowCounter,
        Kind::Set => CrdtKind::Set,
        Kind::Register => CrdtKind::Register,
        Kind::MultiValue => CrdtKind::MultiValue,
    }
}

/// The object of a name.
pub(super) fn object(name: &Name) -> Object {
    Object::plain(name.namespace(), name.key())
}

/// Writes, and says why not in the contract's words.
pub(super) async fn write(
    replica: &Replica,
    edits: &[Edit],
    writer: Option<&String>,
    request_id: Option<&String>,
) -> Result<Written, Problem> {
    let writer = writer.map_or(NOBODY, String::as_str);
    let request = request_id.map(|id| Request { writer, id });
    replica.write(edits, request).await.map_err(Into::into)
}

/// Text that was stored as bytes. All of it came in as text.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where a list goes on, from a cursor.
pub(super) fn place(cursor: Option<&str>) -> Result<Option<Vec<u8>>, Problem> {
    let unreadable =
        |_| Problem::invalid("cursor", "cursor must be a nextCursor of an earlier page, unchanged");
    cursor.map(opaque::bytes).transpose().map_err(unreadable)
}

/// A page of names.
pub(super) async fn listed(
    exchange: &Exchange,
    list: impl FnOnce(&Replica, &str, &str, Option<&[u8]>, usize) -> Names,
    shown: impl Fn((String, Kind)) -> ObjectName,
) -> Result<Response, Problem> {
    let parameters = Parameters::of_list(&exchange.uri)?;
    let (namespace, prefix, limit, cursor) = parameters.list()?;
    let from = place(cursor)?;
    let _place = exchange.enter(Class::Work)?;
    let replica = &opened(exchange).await?.replica;
    let names = list(replica, namespace, prefix, from.as_deref(), limit);
    let next_cursor = names.next.map(|next| opaque::text(&next));
    let names = names.items.into_iter().map(shown).collect();
    Ok(json(StatusCode::OK, &ObjectList { names, next_cursor }))
}

pub(super) fn named((name, kind): (String, Kind)) -> ObjectName {
    ObjectName { name, kind: Some(to_wire(kind)) }
}

/// A counter or register as it is here, when it has seen what was asked for.
pub(super) async fn looked_at<S: Serialize>(
    exchange: &Exchange,
    kinds: &[CrdtKind],
    state: fn(&Replica, &Name, CrdtKind) -> S,
) -> Result<Response, Problem> {
    let known = [&Read::PARAMETERS[..], &["kind"]].concat();
    let (name, parameters) = exchange.name_and(NAME, &known)?;
    let kind = kind(&parameters, kinds)?;
    let read = Read::of(name, &parameters)?;
    let (opened, _place) = read.begin(exchange).await?;
    Ok(json(StatusCode::OK, &state(&opened.replica, &read.name, kind)))
}

/// Removes what was seen of an object that has one row: by a context in the query, or else by this replica.
pub(super) async fn removed(exchange: &Exchange, kinds: &[CrdtKind]) -> Result<Response, Problem> {
    exchange.same_site()?;
    let known = ["namespace", "kind", "context", "writer", "requestId"];
    let (name, parameters) = exchange.name_and(NAME, &known)?;
    let kind = to_core(kind(&parameters, kinds)?);
    let seen = parameters.get("context").map(|text| context("context", text)).transpose()?;
    let own = |field: &'static str, bytes| {
        let text = parameters.get(field);
        text.map(|text| limits::check_text(field, text, bytes).map(|()| text.to_owned())).transpose()
    };
    let writer = own("writer", limits::OWNER_BYTES)?;
    let request_id = own("requestId", limits::REQUEST_ID_BYTES)?;
    let _place = exchange.enter(Class::Work)?;
    let replica = &opened(exchange).await?.replica;
    let edit = Edit { key: object(&name).row(kind), act: Act::Remove(seen) };
    let written = write(replica, &[edit], writer.as_ref(), request_id.as_ref()).await?;
    let (status, name, context) = ("REMOVED".into(), name.key().into(), written.context().to_text());
    Ok(json(StatusCode::OK, &RemovedResponse { status, name, context, replayed: written.replayed }))
}

/// Other writes go on.
pub(super) fn partial() -> Problem {
    let message = "this replica has only parts of what another one wrote, and can't remember more of it as removed until it \
                   has compared itself with one that has all; try again after retryAfterMillis, or at another node; if none \
                   has all any more, see docs/replication.md";
    retry(ErrorBody::new(ErrorCode::Overloaded, message), RETRY_MILLIS).into()
}

fn unavailable(message: &str, is_unknown: bool) -> Problem {
    let body = ErrorBody::new(ErrorCode::ReplicaUnavailable, message);
    let outcome = is_unknown.then(|| "unknown".into());
    retry(ErrorBody { outcome, ..body }, RETRY_MILLIS).into()
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refused) => refusal(refused),
            Failure::TooLarge => Self::invalid(
                "body",
                "too much for one write: 40 changes and 256 KiB of names and values at most",
            ),
            Failure::Full => {
                let message = "the replica, or this set or map, has as much as it takes; removing works";
                retry(ErrorBody::new(ErrorCode::StoreFull, message), RETRY_MILLIS).into()
            }
            Failure::Busy => Self::overloaded("writes to the replica"),
            Failure::Partial => partial(),
            Failure::RequestReused => {
                let message = "this requestId came with another write before; use a new one for each write, the same \
                               one only to repeat a write unchanged";
                let body = ErrorBody::new(ErrorCode::RequestIdReused, message);
                ErrorBody { field: Some("requestId".into()), ..body }.into()
            }
            Failure::Unknown => {
                let message = "the replica's disk didn't take the write for certain; send it again to this node, with \
                               the same requestId";
                unavailable(message, true)
            }
            Failure::Broken => unavailable(
                "the replica's disk failed; nothing is written until the node is started again",
                false,
            ),
        }
    }
}

fn refusal(refused: EditRefused) -> Problem {
    let full = |message: &str| ErrorBody::new(ErrorCode::ObjectFull, message).into();
    match refused {
        EditRefused::Counter(Refused::GrowsOnly) => {
            Problem::invalid("add", "a grow-counter can't be taken from; use a counter")
        }
        EditRefused::Counter(Refused::Overflow) => {
            full("the counter's total would not fit in 63 bits; nothing was added")
        }
        EditRefused::Counter(Refused::TooManySlots) => full(
            "the counter has as many slots as it may: one for each writer with a total, and for each run of a replica",
        ),
        EditRefused::TooManyValues => {
            full("the register has as many concurrent values as it may; read it, and write with that context")
        }
        EditRefused::ClockSkew(skewed) => {
            let seconds = skewed.behind.as_secs();
            let message = format!(
                "this node's clock is {seconds} s behind what its replica has seen, so it can't say which write is the last; \
                 set the clock right, or write at another node"
            );
            retry(ErrorBody::new(ErrorCode::ClockSkew, message), RETRY_MILLIS).into()
        }
        EditRefused::TooLarge => Problem::invalid("body", "a name, an element or a value is too large"),
        EditRefused::WrongKind => {
            tracing::error!("an edit didn't fit its row's kind");
            Problem::internal()
        }
    }
}
