//! `/v1/jobs:preview`: when a schedule would be due, and how it reads (J11, J14).

use super::Shared;
use super::answer::{Problem, failed, json};
use super::exchange::Exchange;
use super::job_definition::{movable, policy};
use super::parameters::NamespaceParameter;
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::limits::BODY_BYTES_MAX;
use baton_api::preview::{
    COUNT_DEFAULT, DstPolicy, PreviewRequest, PreviewResponse, PreviewedTime, TouchedBy,
};
use baton_api::{ErrorBody, Position};
use baton_core::cron::{Closures, Dst, Schedule, ScheduleError, Touched, Zone, full_name};
use baton_core::job::Timetable;
use baton_core::{Name, WallTime};
use baton_engine::Failure;
use hyper::StatusCode;
use std::sync::Arc;

/// Show when a schedule would be due.
///
/// Nothing is stored. Times that a change of clocks touches are marked. What isn't a schedule is refused with the position
/// of the fault in it.
#[utoipa::path(
    post, path = "/v1/jobs:preview", tag = "jobs", operation_id = "previewSchedule",
    params(NamespaceParameter), request_body = PreviewRequest,
    responses(
        (status = 200, description = "The next times, or that there are none", body = PreviewResponse),
        (status = 404, description = "CALENDAR_NOT_FOUND", body = ErrorBody),
        (status = 400, description = "INVALID_ARGUMENT: `field` says what is at fault, and for a schedule `position` says where in it", body = ErrorBody),
    )
)]
pub async fn preview_schedule(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::JobsPreview, request);
    let outcome = previewed(&exchange, body).await;
    exchange.end(outcome)
}

async fn previewed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let namespace = exchange.namespace()?;
    let request: PreviewRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    let _place = exchange.enter(Class::Work)?;
    let now = match request.from {
        Some(from) => WallTime(from),
        None => exchange.server.engine.now().map_err(failed)?,
    };
    let mut closed = Vec::new();
    for used in &request.calendars {
        let found = exchange.server.engine.calendar(&Name::new(&namespace, &used.name)).await?;
        let days = found.calendar.days().map_err(|_| failed(Failure::Internal))?;
        closed.push((policy(used.policy), days));
    }
    Ok(json(StatusCode::OK, &preview(&request, &namespace, Closures(closed), now)?))
}

/// The same without a server: also the command line answers with this. `closures` are the request's calendars.
pub fn preview(
    request: &PreviewRequest,
    namespace: &str,
    closures: Closures,
    now: WallTime,
) -> Result<PreviewResponse, ErrorBody> {
    request.check()?;
    let name = request.name.as_deref().map(|name| full_name(namespace, name));
    let schedule =
        Schedule::parse(&request.schedule, name.as_deref().unwrap_or_default()).map_err(refused)?;
    if schedule.is_hashed() && name.is_none() {
        let message = "name is needed: H in a schedule is a hash of the job's name";
        return Err(ErrorBody::invalid("name", message));
    }
    movable(&schedule, &request.calendars)?;
    let zone = Zone::parse(request.time_zone.as_deref().unwrap_or("UTC"))
        .map_err(|error| ErrorBody::invalid("timeZone", format!("timeZone: {error}")))?;
    let dst = request.dst.unwrap_or_default();
    let clocks = match dst {
        DstPolicy::Vixie => Dst::Vixie,
        DstPolicy::Literal => Dst::Literal,
    };
    let from = request.from.map_or(now, WallTime);
    let count = request.count.unwrap_or(COUNT_DEFAULT) as usize;
    let reading = schedule.reading();
    let timetable = Timetable::new(schedule, zone, clocks, closures, Vec::new());
    let next = upcoming(&timetable, from, count);
    Ok(PreviewResponse {
        schedule: request.schedule.clone(),
        reading,
        time_zone: timetable.zone().name().into(),
        dst,
        never_fires: next.iter().all(|time| time.excluded) && timetable.next_after(from).is_none(),
        next,
    })
}

/// What comes and what is left out, in order.
fn upcoming(timetable: &Timetable, from: WallTime, count: usize) -> Vec<PreviewedTime> {
    let left_out = timetable.left_out();
    let (mut next, mut after) = (Vec::new(), from);
    while next.len() < count {
        let kept = timetable.next_occurrence(after);
        let closed = left_out.as_ref().and_then(|left_out| left_out.next_occurrence(after));
        let is_closed = closed.is_some_and(|closed| kept.is_none_or(|kept| closed.at < kept.at));
        let Some(found) = (if is_closed { closed } else { kept }) else { break };
        next.push(PreviewedTime {
            at: found.at.0,
            local: timetable.zone().local(found.at).unwrap_or_default(),
            touched_by: found.touched.map(touched_by),
            excluded: is_closed,
            moved_from: if is_closed { None } else { timetable.moved_from(found.at) },
        });
        after = found.at;
    }
    next
}

fn touched_by(touched: Touched) -> TouchedBy {
    match touched {
        Touched::MovedFromGap => TouchedBy::MovedFromGap,
        Touched::Repeated => TouchedBy::Repeated,
        Touched::RepeatSkipped => TouchedBy::RepeatSkipped,
    }
}

/// What isn't a schedule, and where.
pub(super) fn refused(error: ScheduleError) -> ErrorBody {
    let place = |byte: usize| u16::try_from(byte).unwrap_or(u16::MAX);
    let position = Position { start: place(error.at.start), end: place(error.at.end) };
    ErrorBody { position: Some(position), ..ErrorBody::invalid("schedule", format!("schedule, {error}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::cron::{DaySet, Policy};

    const NOW: WallTime = WallTime(1_767_225_600_000);

    fn asked(schedule: &str) -> PreviewRequest {
        PreviewRequest::new(schedule)
    }

    #[test]
    fn a_schedule_is_shown_with_its_reading_and_its_next_times() {
        let request = PreviewRequest {
            time_zone: Some("europe/berlin".into()),
            count: Some(2),
            from: Some(1_774_652_400_000),
            ..asked("30 2 * * *")
        };
        let shown = preview(&request, "default", Closures::default(), NOW).unwrap();
        assert_eq!(
            (shown.time_zone.as_str(), shown.reading.as_str()),
            ("Europe/Berlin", "at 02:30 every day")
        );
        let next: Vec<_> = shown.next.iter().map(|time| (time.local.as_str(), time.touched_by)).collect();
        let expected = [
            ("2026-03-28T02:30:00+01:00", None),
            ("2026-03-29T03:00:00+02:00", Some(TouchedBy::MovedFromGap)),
        ];
        assert_eq!(next, expected);
        assert!(!shown.never_fires);
        let now = preview(&asked("* * * * *"), "default", Closures::default(), NOW).unwrap();
        assert_eq!(
            (now.next.len(), now.next[0].at, now.next[0].local.as_str()),
            (10, NOW.0 + 60_000, "2026-01-01T00:01:00+00:00")
        );
    }

    #[test]
    fn what_calendars_leave_out_or_move_is_marked() {
        let mut days = DaySet::default();
        days.add("2026-01-03..2026-01-04").unwrap();
        let shown = |policy| {
            let request = PreviewRequest { count: Some(4), ..asked("0 9 2-4 1 *") };
            let shown = preview(&request, "default", Closures(vec![(policy, days.clone())]), NOW).unwrap();
            let row =
                |time: &PreviewedTime| (time.local[..10].to_owned(), time.excluded, time.moved_from.clone());
            shown.next.iter().take(3).map(row).collect::<Vec<_>>()
        };
        let row =
            |day: &str, excluded, from: Option<&str>| (day.to_owned(), excluded, from.map(str::to_owned));
        let second = row("2026-01-02", false, None);
        let closed = ["2026-01-03", "2026-01-04"].map(|day| row(day, true, None));
        assert_eq!(shown(Policy::Exclude), [std::slice::from_ref(&second), &closed[..]].concat());
        let moved = row("2026-01-05", false, Some("2026-01-03"));
        assert_eq!(shown(Policy::MoveToNext)[..2], [second, moved]);
    }

    #[test]
    fn what_never_comes_is_an_answer() {
        let shown = preview(&asked("0 0 30 2 *"), "default", Closures::default(), NOW).unwrap();
        assert!(shown.never_fires && shown.next.is_empty());
        let literal = PreviewRequest {
            time_zone: Some("Europe/Berlin".into()),
            dst: Some(DstPolicy::Literal),
            ..asked("30 2 * 3 0L")
        };
        assert!(preview(&literal, "default", Closures::default(), NOW).unwrap().never_fires);
    }

    #[test]
    fn what_is_at_fault_is_named_with_its_place() {
        let error = preview(&asked("0 25 * * *"), "default", Closures::default(), NOW).unwrap_err();
        assert_eq!(
            (error.field.as_deref(), error.position),
            (Some("schedule"), Some(Position { start: 2, end: 4 }))
        );
        assert_eq!(error.message, "schedule, hour: \"25\" is not allowed; allowed are 0 to 23");
        let zone = PreviewRequest { time_zone: Some("Berlin".into()), ..asked("@daily") };
        assert_eq!(
            preview(&zone, "default", Closures::default(), NOW).unwrap_err().field.as_deref(),
            Some("timeZone")
        );
        let many = PreviewRequest { count: Some(101), ..asked("@daily") };
        assert_eq!(
            preview(&many, "default", Closures::default(), NOW).unwrap_err().field.as_deref(),
            Some("count")
        );
    }

    #[test]
    fn a_hash_needs_the_job_s_name_and_differs_by_namespace() {
        assert_eq!(
            preview(&asked("H H * * *"), "default", Closures::default(), NOW).unwrap_err().field.as_deref(),
            Some("name")
        );
        let named = PreviewRequest { name: Some("report".into()), ..asked("H H * * *") };
        let (one, other) = (
            preview(&named, "a", Closures::default(), NOW).unwrap(),
            preview(&named, "b", Closures::default(), NOW).unwrap(),
        );
        assert_ne!(one.next, other.next);
    }
}
