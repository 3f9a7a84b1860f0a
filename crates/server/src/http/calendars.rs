//! `/v1/calendars`: days that jobs leave out or move (J13).

use super::Shared;
use super::answer::{Problem, json};
use super::exchange::Exchange;
use super::input::Parameters;
use super::parameters::{ListParameters, NameParameter, NamespaceParameter};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::calendar::{
    CalendarDay, CalendarDefinition, CalendarList, CalendarStatus, RemoveCalendarResponse,
};
use baton_api::limits::CALENDAR_BYTES_MAX;
use baton_api::{ErrorBody, Position};
use baton_core::job::Put;
use baton_core::job::calendar::{Calendar, Entry};
use baton_engine::job::CalendarState;
use hyper::StatusCode;
use std::sync::Arc;

/// What the name in the path is called.
const NAME: &str = "name";

/// Define a calendar, or change it while jobs use it.
///
/// The answer comes when every job that uses it goes by it: what was planned is planned anew, no time that has run runs again, and one
/// that is moved to where the schedule has passed was missed. A call that gets no answer has to be repeated.
#[utoipa::path(
    put, path = "/v1/calendars/{name}", tag = "jobs", operation_id = "putCalendar",
    params(NameParameter, NamespaceParameter), request_body = CalendarDefinition,
    responses((status = 200, description = "It is defined like this now", body = CalendarStatus))
)]
pub async fn put(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Calendar, request);
    let outcome = defined(&exchange, body).await;
    exchange.end(outcome)
}

async fn defined(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let said: CalendarDefinition = exchange.read(body, CALENDAR_BYTES_MAX).await?;
    let entries = read(said)?;
    let _place = exchange.enter(Class::Work)?;
    let (put, state, jobs) = exchange.server.engine.put_calendar(&name, &entries).await?;
    let status = match put {
        Put::Made => "MADE",
        Put::Changed => "CHANGED",
        Put::Same => "UNCHANGED",
    };
    let (status, jobs) = (Some(status.into()), Some(jobs as u64));
    Ok(json(StatusCode::OK, &CalendarStatus { status, jobs, ..shown(&state) }))
}

/// What is stored for a calendar as it came over the wire.
pub(crate) fn read(said: CalendarDefinition) -> Result<Vec<Entry>, ErrorBody> {
    said.check()?;
    let entry = |day: CalendarDay| Entry { days: day.day, note: day.note.unwrap_or_default() };
    let calendar = Calendar { entries: said.days.into_iter().map(entry).collect(), ..Calendar::default() };
    if let Err((place, error)) = calendar.days() {
        let byte = |byte: usize| u16::try_from(byte).unwrap_or(u16::MAX);
        let position = Some(Position { start: byte(error.at.start), end: byte(error.at.end) });
        let field = format!("days[{place}].day");
        let message = format!("{field}: {error}");
        return Err(ErrorBody { position, ..ErrorBody::invalid(&field, message) });
    }
    Ok(calendar.entries)
}

/// A calendar.
#[utoipa::path(
    get, path = "/v1/calendars/{name}", tag = "jobs", operation_id = "getCalendar",
    params(NameParameter, NamespaceParameter),
    responses(
        (status = 200, description = "As it stands", body = CalendarStatus),
        (status = 404, description = "CALENDAR_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Calendar, request);
    let outcome = looked_up(&exchange).await;
    exchange.end(outcome)
}

async fn looked_up(exchange: &Exchange) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let _place = exchange.enter(Class::Work)?;
    Ok(json(StatusCode::OK, &shown(&exchange.server.engine.calendar(&name).await?)))
}

/// Remove a calendar that no job uses.
#[utoipa::path(
    delete, path = "/v1/calendars/{name}", tag = "jobs", operation_id = "removeCalendar",
    params(NameParameter, NamespaceParameter),
    responses(
        (status = 200, description = "It is gone", body = RemoveCalendarResponse),
        (status = 403, description = "FORBIDDEN: a web page of another site sent it", body = ErrorBody),
        (status = 404, description = "CALENDAR_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "CALENDAR_IN_USE", body = ErrorBody),
    )
)]
pub async fn remove(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Calendar, request);
    let outcome = removed(&exchange).await;
    exchange.end(outcome)
}

async fn removed(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.same_site()?;
    let name = exchange.name(NAME)?;
    let _place = exchange.enter(Class::Work)?;
    exchange.server.engine.remove_calendar(&name).await?;
    Ok(json(StatusCode::OK, &RemoveCalendarResponse { status: "REMOVED".into(), name: name.key().into() }))
}

/// Calendars of a namespace.
#[utoipa::path(
    get, path = "/v1/calendars", tag = "jobs", operation_id = "listCalendars",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page", body = CalendarList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Calendars, request);
    let outcome = listed(&exchange).await;
    exchange.end(outcome)
}

async fn listed(exchange: &Exchange) -> Result<Response, Problem> {
    let parameters = Parameters::of_list(&exchange.uri)?;
    let (namespace, prefix, limit, cursor) = parameters.list()?;
    let _place = exchange.enter(Class::Work)?;
    let page = exchange.server.engine.list_calendars(namespace, prefix, limit, cursor).await?;
    let calendars = page.calendars.iter().map(shown).collect();
    Ok(json(StatusCode::OK, &CalendarList { calendars, next_cursor: page.next_cursor }))
}

fn shown(state: &CalendarState) -> CalendarStatus {
    let day = |entry: &Entry| CalendarDay {
        day: entry.days.clone(),
        note: (!entry.note.is_empty()).then(|| entry.note.clone()),
    };
    CalendarStatus {
        name: state.name.clone(),
        days: state.calendar.entries.iter().map(day).collect(),
        version: state.version.0,
        changed_at: state.calendar.changed_at.0,
        status: None,
        jobs: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_cant_be_read_are_refused_with_their_entry_and_their_place_in_it() {
        let day = |day: &str| CalendarDay { day: day.into(), note: None };
        let error = read(CalendarDefinition { days: vec![day("SAT"), day("2026-12-24..25")] }).unwrap_err();
        assert_eq!(
            (error.field.as_deref(), error.position),
            (Some("days[1].day"), Some(Position { start: 12, end: 14 }))
        );
    }
}
