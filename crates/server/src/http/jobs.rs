//! `/v1/jobs`: defining jobs, looking at them, and what people ask of them (J1, J9, J10).

use super::Shared;
use super::answer::{Problem, failed, json};
use super::exchange::Exchange;
use super::input::Parameters;
use super::job_definition as definition;
use super::parameters::{ListParameters, NameParameter, NamespaceParameter, PageParameters};
use super::runs;
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::job::{
    BackfillRequest, BackfillResponse, JobCounts, JobDefinition, JobList, JobStatus, PauseJobRequest,
    RemoveJobResponse, ResumeJobRequest, RunJobRequest, RunJobResponse, RunList,
};
use baton_api::limits::{BODY_BYTES_MAX, JOB_BYTES_MAX};
use baton_api::{ErrorBody, ErrorCode};
use baton_core::WallTime;
use baton_core::job::{BACKFILL_MAX, Put};
use baton_engine::job::{JobError, JobState};
use hyper::StatusCode;
use std::sync::Arc;

/// What the name in the path is called.
const NAME: &str = "name";

/// Define a job, or change it while it is scheduled.
///
/// An edit keeps the job's number and how far its schedule was decided, so no time fires twice. Another schedule counts from
/// its edit on.
#[utoipa::path(
    put, path = "/v1/jobs/{name}", tag = "jobs", operation_id = "putJob",
    params(NameParameter, NamespaceParameter), request_body = JobDefinition,
    responses(
        (status = 200, description = "It is defined like this now", body = JobStatus),
        (status = 404, description = "CALENDAR_NOT_FOUND: it names a calendar that isn't there", body = ErrorBody),
    )
)]
pub async fn put(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Job, request);
    let outcome = defined(&exchange, body).await;
    exchange.end(outcome)
}

async fn defined(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let said: JobDefinition = exchange.read(body, JOB_BYTES_MAX).await?;
    said.check()?;
    let definition = definition::read(&name, said)?;
    let _place = exchange.enter(Class::Work)?;
    let (put, state) = exchange.server.engine.put_job(&name, definition).await?;
    let status = match put {
        Put::Made => "MADE",
        Put::Changed => "CHANGED",
        Put::Same => "UNCHANGED",
    };
    Ok(said_of(&state, status))
}

/// A job, and how far it is.
#[utoipa::path(
    get, path = "/v1/jobs/{name}", tag = "jobs", operation_id = "getJob",
    params(NameParameter, NamespaceParameter),
    responses(
        (status = 200, description = "As it stands", body = JobStatus),
        (status = 404, description = "JOB_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Job, request);
    let outcome = looked_up(&exchange).await;
    exchange.end(outcome)
}

async fn looked_up(exchange: &Exchange) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let _place = exchange.enter(Class::Work)?;
    Ok(json(StatusCode::OK, &shown(&exchange.server.engine.job(&name).await?)))
}

/// Remove a job, and what is known of its runs. Whoever runs an attempt of it finds that it was called off.
#[utoipa::path(
    delete, path = "/v1/jobs/{name}", tag = "jobs", operation_id = "removeJob",
    params(NameParameter, NamespaceParameter),
    responses(
        (status = 200, description = "It is gone", body = RemoveJobResponse),
        (status = 403, description = "FORBIDDEN: a web page of another site sent it", body = ErrorBody),
        (status = 404, description = "JOB_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn remove(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Job, request);
    let outcome = removed(&exchange).await;
    exchange.end(outcome)
}

async fn removed(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.same_site()?;
    let name = exchange.name(NAME)?;
    let _place = exchange.enter(Class::Work)?;
    exchange.server.engine.remove_job(&name).await?;
    Ok(json(StatusCode::OK, &RemoveJobResponse { status: "REMOVED".into(), name: name.key().into() }))
}

/// Jobs of a namespace.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "listJobs",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page", body = JobList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Jobs, request);
    let outcome = listed(&exchange).await;
    exchange.end(outcome)
}

async fn listed(exchange: &Exchange) -> Result<Response, Problem> {
    let parameters = Parameters::of_list(&exchange.uri)?;
    let (namespace, prefix, limit, cursor) = parameters.list()?;
    let _place = exchange.enter(Class::Work)?;
    let page = exchange.server.engine.list_jobs(namespace, prefix, limit, cursor).await?;
    let jobs = page.jobs.iter().map(shown).collect();
    Ok(json(StatusCode::OK, &JobList { jobs, next_cursor: page.next_cursor }))
}

/// Run a job now: once for each `requestId`. It waits for what runs, unless the job says to run beside it or to cancel it.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/run", tag = "jobs", operation_id = "runJob",
    params(NameParameter, NamespaceParameter), request_body = RunJobRequest,
    responses(
        (status = 200, description = "It is under way, or waits", body = RunJobResponse),
        (status = 404, description = "JOB_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn run(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::JobRun, request);
    let outcome = asked(&exchange, body).await;
    exchange.end(outcome)
}

async fn asked(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: RunJobRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Work)?;
    let run = exchange.server.engine.run_job(&name, request.request_id).await?;
    Ok(json(StatusCode::OK, &RunJobResponse { name: name.key().into(), run_id: run.text() }))
}

/// Pause a job: its schedule doesn't count until it is resumed. What runs goes on.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/pause", tag = "jobs", operation_id = "pauseJob",
    params(NameParameter, NamespaceParameter), request_body = PauseJobRequest,
    responses(
        (status = 200, description = "It is paused, now or since before", body = JobStatus),
        (status = 404, description = "JOB_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn pause(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::JobPause, request);
    let outcome = paused(&exchange, body).await;
    exchange.end(outcome)
}

async fn paused(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let PauseJobRequest {} = exchange.read(body, BODY_BYTES_MAX).await?;
    let _place = exchange.enter(Class::Work)?;
    Ok(said_of(&exchange.server.engine.pause_job(&name).await?, "PAUSED"))
}

/// Resume a job. What passed meanwhile is missed: `missed` says what happens to it, or else the job does.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/resume", tag = "jobs", operation_id = "resumeJob",
    params(NameParameter, NamespaceParameter), request_body = ResumeJobRequest,
    responses(
        (status = 200, description = "Its schedule counts", body = JobStatus),
        (status = 404, description = "JOB_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn resume(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::JobResume, request);
    let outcome = resumed(&exchange, body).await;
    exchange.end(outcome)
}

async fn resumed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: ResumeJobRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    let _place = exchange.enter(Class::Work)?;
    let missed = request.missed.map(definition::missed);
    Ok(said_of(&exchange.server.engine.resume_job(&name, missed).await?, "RESUMED"))
}

/// Run the times of a range that has passed or is to come, one after the other; `to` isn't in it. A time that was backfilled before,
/// and whose run is kept, isn't run again.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/backfill", tag = "jobs", operation_id = "backfillJob",
    params(NameParameter, NamespaceParameter), request_body = BackfillRequest,
    responses(
        (status = 200, description = "They are going to run", body = BackfillResponse),
        (status = 404, description = "JOB_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn backfill(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::JobBackfill, request);
    let outcome = backfilled(&exchange, body).await;
    exchange.end(outcome)
}

async fn backfilled(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: BackfillRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Work)?;
    let (from, to) = (WallTime(request.from), WallTime(request.to));
    let times = exchange.server.engine.backfill_job(&name, from, to).await? as u64;
    Ok(json(StatusCode::OK, &BackfillResponse { name: name.key().into(), times }))
}

/// What became of a job's times, the newest first.
#[utoipa::path(
    get, path = "/v1/jobs/{name}/runs", tag = "jobs", operation_id = "listRuns",
    params(NameParameter, NamespaceParameter, PageParameters),
    responses(
        (status = 200, description = "A page", body = RunList),
        (status = 404, description = "JOB_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn history(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::JobRuns, request);
    let outcome = recounted(&exchange).await;
    exchange.end(outcome)
}

async fn recounted(exchange: &Exchange) -> Result<Response, Problem> {
    let (name, parameters) = exchange.name_and(NAME, &["namespace", "limit", "cursor"])?;
    let (limit, cursor) = parameters.page()?;
    let _place = exchange.enter(Class::Work)?;
    let page = exchange.server.engine.list_runs(&name, limit, cursor).await?;
    let list = RunList { runs: page.runs.iter().map(runs::shown).collect(), next_cursor: page.next_cursor };
    Ok(json(StatusCode::OK, &list))
}

fn said_of(state: &JobState, status: &str) -> Response {
    json(StatusCode::OK, &JobStatus { status: Some(status.into()), ..shown(state) })
}

fn shown(job: &JobState) -> JobStatus {
    let (state, counts) = (&job.state, &job.state.counts);
    let time = |time: Option<WallTime>| time.map(|time| time.0);
    JobStatus {
        name: job.name.clone(),
        definition: definition::shown(&job.definition),
        uid: format!("{:032x}", job.definition.uid.0),
        version: job.version.0,
        changed_at: job.definition.changed_at.0,
        status: None,
        paused_at: time(state.paused_at),
        next_at: time(state.next.map(|next| next.nominal)),
        decided_until: state.mark.0,
        last_success_at: time(state.last_success_at),
        overdue: state.is_overdue,
        active: state.active.len() as u64,
        queued: state.queue.len() as u64,
        catching_up: state.spans.iter().map(|span| u64::from(span.left)).sum(),
        counts: JobCounts {
            started: counts.started,
            succeeded: counts.succeeded,
            failed: counts.failed,
            skipped: counts.skipped,
            unknown: counts.unknown,
            untold: counts.untold,
        },
    }
}

impl From<JobError> for Problem {
    fn from(error: JobError) -> Self {
        let of = |code, field: &str, message: String| {
            ErrorBody { field: Some(field.into()), ..ErrorBody::new(code, message) }.into()
        };
        match error {
            JobError::Failed(failure) => failed(failure).into(),
            JobError::NotFound { job } => {
                let message = format!("there is no job {job:?}; PUT /v1/jobs/{{name}} defines one");
                of(ErrorCode::JobNotFound, NAME, message)
            }
            JobError::CalendarNotFound { calendar } => {
                let message =
                    format!("there is no calendar {calendar:?}; PUT /v1/calendars/{{name}} defines one");
                ErrorBody::new(ErrorCode::CalendarNotFound, message).into()
            }
            JobError::CalendarInUse { calendar, job } => {
                let message = format!(
                    "calendar {calendar:?} is used, by job {job:?} among others perhaps; edit the jobs first"
                );
                of(ErrorCode::CalendarInUse, NAME, message)
            }
            JobError::RunNotFound => {
                let message = "there is no run of this id, or it isn't kept any more".into();
                of(ErrorCode::RunNotFound, runs::ID, message)
            }
            JobError::RunLost => {
                let message = "this attempt isn't running any more: its lease ran out, or it was called off; nothing was \
                               changed";
                ErrorBody::new(ErrorCode::RunLost, message).into()
            }
            JobError::RunEnded { outcome } => {
                let message = format!("this run had ended before: {outcome}");
                ErrorBody::new(ErrorCode::RunEnded, message).into()
            }
            JobError::Full => {
                let message =
                    "as many runs or ranges of this job wait as may; try again when some have ended";
                ErrorBody::new(ErrorCode::QueueFull, message).into()
            }
            JobError::NoSchedule => {
                Self::invalid(NAME, "this job has no schedule, and so no times in a range")
            }
            JobError::TooManyTimes => {
                Self::invalid("to", format!("at most {BACKFILL_MAX} times at once; ask for a shorter range"))
            }
            JobError::BadCursor => {
                Self::invalid("cursor", "cursor must be a nextCursor of an earlier page, unchanged")
            }
        }
    }
}
