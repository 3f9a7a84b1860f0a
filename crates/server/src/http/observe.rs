//! Following an election: who leads, and every change of it, as server-sent events (E6).

use super::Shared;
use super::answer::Problem;
use super::events::{self, Source};
use super::exchange::Exchange;
use super::input::{self, Parameters};
use super::parameters::{AfterParameter, NameParameter, NamespaceParameter};
use crate::metrics::Route;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::election::{ElectionEvent, ElectionEventKind};
use baton_core::Revision;
use baton_core::lock::{FencingToken, LockName};
use baton_engine::election::{Leader, Observation, Observed};
use bytes::Bytes;
use std::sync::Arc;

/// Follow an election.
///
/// The first event says at once how things are: `leader`, or `vacant` if nobody leads. Then comes each change, in the order
/// of epochs. The data is an ElectionEvent, the id its epoch. After `afterEpoch`, or after hints got lost, `past` says who
/// led meanwhile, as far as the history remembers.
#[utoipa::path(
    get, path = "/v1/elections/{name}/observe", tag = "elections", operation_id = "observeElection",
    params(NameParameter, NamespaceParameter, AfterParameter),
    responses((status = 200, description = "Events as they happen", body = String, content_type = "text/event-stream"))
)]
pub async fn observe(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::Observe, request);
    exchange.waits = true;
    let outcome = observed(&exchange);
    exchange.end(outcome)
}

fn observed(exchange: &Exchange) -> Result<Response, Problem> {
    let name = input::name(&exchange.uri, "name")?;
    let parameters = Parameters::read(&exchange.uri, &["namespace", "afterEpoch"])?;
    let election = LockName::election(parameters.namespace()?, &name);
    let after = match parameters.get("afterEpoch") {
        Some(_) => Some(parameters.number("afterEpoch", 0, 0..=Revision::MAX.0)?),
        // A browser that reconnects by itself says it so. Whatever else it says, it is not of this stream.
        None => exchange.last_event_id.as_ref().and_then(|id| id.to_str().ok()?.parse().ok()),
    };
    events::follow(exchange, || Following {
        observation: exchange.server.engine.observe(&election, after.map(FencingToken)),
        election: election.key().into(),
    })
}

struct Following {
    observation: Observation,
    election: String,
}

impl Source for Following {
    async fn next(&mut self) -> Option<Bytes> {
        let event = match self.observation.next().await? {
            Observed::Leads(leader) => self.event(ElectionEventKind::Leader, leader),
            Observed::Led(leader) => self.event(ElectionEventKind::Past, leader),
            Observed::Vacant { epoch } => ElectionEvent {
                event: ElectionEventKind::Vacant,
                election: self.election.clone(),
                leader: None,
                epoch: epoch.map(|epoch| epoch.0),
                value: None,
                since: None,
            },
        };
        Some(events::event(event.event.as_str(), event.epoch, &event))
    }
}

impl Following {
    fn event(&self, event: ElectionEventKind, leader: Leader) -> ElectionEvent {
        ElectionEvent {
            event,
            election: self.election.clone(),
            leader: Some(leader.id.as_ref().into()),
            epoch: Some(leader.epoch.0),
            value: leader.value.and_then(|bytes| serde_json::from_slice(&bytes).ok()),
            since: Some(leader.since.0),
        }
    }
}
