//! `/v1/runs`: what became of one time of a job, and calling it off (J9, J10).

use super::Shared;
use super::answer::{Problem, json};
use super::exchange::Exchange;
use super::input;
use super::parameters::RunIdParameter;
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::job::{CancelRunRequest, Run, RunState as WireState};
use baton_api::limits::BODY_BYTES_MAX;
use baton_core::WallTime;
use baton_core::job::{Progress, RunId};
use baton_engine::job::{JobError, RunState};
use hyper::StatusCode;
use std::sync::Arc;

/// What the id in the path is called.
pub(super) const ID: &str = "runId";

/// What became of a run, or is becoming.
#[utoipa::path(
    get, path = "/v1/runs/{runId}", tag = "jobs", operation_id = "getRun",
    params(RunIdParameter),
    responses(
        (status = 200, description = "As it stands", body = Run),
        (status = 404, description = "RUN_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Run, request);
    let outcome = looked_up(&exchange).await;
    exchange.end(outcome)
}

async fn looked_up(exchange: &Exchange) -> Result<Response, Problem> {
    let id = id(exchange)?;
    let _place = exchange.enter(Class::Work)?;
    Ok(json(StatusCode::OK, &shown(&exchange.server.engine.run(id).await?)))
}

/// Call a run off. Whoever runs it finds its lease gone; a request or a command of a node is stopped: at once if it is the node that is
/// asked, else within two seconds.
#[utoipa::path(
    post, path = "/v1/runs/{runId}/cancel", tag = "jobs", operation_id = "cancelRun",
    params(RunIdParameter), request_body = CancelRunRequest,
    responses(
        (status = 200, description = "It is over, now or since it was called off before", body = Run),
        (status = 404, description = "RUN_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "RUN_ENDED: otherwise", body = ErrorBody),
    )
)]
pub async fn cancel(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::RunCancel, request);
    let outcome = called_off(&exchange, body).await;
    exchange.end(outcome)
}

async fn called_off(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let id = id(exchange)?;
    let CancelRunRequest {} = exchange.read(body, BODY_BYTES_MAX).await?;
    let _place = exchange.enter(Class::Work)?;
    Ok(json(StatusCode::OK, &shown(&exchange.server.engine.cancel_run(id).await?)))
}

/// The run that the path names. What no run was ever called is none that is there.
pub(super) fn id(exchange: &Exchange) -> Result<RunId, Problem> {
    let text = input::name(&exchange.uri, ID)?;
    exchange.no_parameters()?;
    Ok(RunId::parse(&text).ok_or(JobError::RunNotFound)?)
}

/// As it is shown.
pub(super) fn shown(state: &RunState) -> Run {
    let (run, place) = (&state.run, state.id.place);
    let time = |time: Option<WallTime>| time.map(|time| time.0);
    let end = run.end();
    Run {
        run_id: state.id.text(),
        job: run.job.clone(),
        namespace: run.namespace.clone(),
        trigger: place.trigger.as_str().into(),
        scheduled_at: place.nominal.0,
        due_at: run.due.0,
        state: match run.progress {
            Progress::Queued => WireState::Queued,
            Progress::Ready => WireState::Ready,
            Progress::Waiting(_) => WireState::Waiting,
            Progress::Running => WireState::Running,
            Progress::Ended(_) => WireState::Ended,
        },
        attempt: run.attempt,
        started_at: time(run.started_at),
        next_attempt_at: match run.progress {
            Progress::Waiting(until) => Some(until.0),
            _ => None,
        },
        ended_at: end.map(|end| end.at.0),
        outcome: end.map(|end| end.outcome.as_str().into()),
        reason: end.and_then(|end| end.reason).map(|reason| reason.as_str().into()),
        fencing_token: state.lease.map(|(token, _)| token.0),
        lease_expires_at: state.lease.map(|(_, at)| at.0),
        runner: run.runner.clone(),
        message: run.message.clone(),
        output: String::from_utf8_lossy(&run.output).into_owned(),
        first_scheduled_at: run.stands_for.map(|(first, _)| first.0),
        times: run.stands_for.map(|(_, count)| count),
    }
}
