//! `/v1/nodes`, `/v1/ring`, `/v1/hotkeys`, and where other nodes forward to (M3).

use super::Shared;
use super::answer::{Problem, json};
use super::exchange::Exchange;
use crate::gate::Class;
use crate::metrics::Route;
use crate::peers::{self, wire};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::cluster::{HotKeyList, HotKeyStatus, NodeList, NodeStatus, RingNode, RingStatus};
use baton_api::limits::{self, check_name, check_text};
use baton_api::{ErrorBody, ErrorCode};
use baton_core::Group;
use baton_core::lock::NodeId;
use baton_engine::limit::HotLimitKey;
use hyper::StatusCode;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Forwarded checks that one request may have.
const CHECKS_MAX: usize = 1_000;

/// The nodes that share the store, as far as this one knows.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "operations", operation_id = "getNodes",
    responses((status = 200, description = "Those that live", body = NodeList))
)]
pub async fn nodes(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Nodes, request);
    let outcome = listed(&exchange);
    exchange.end(outcome)
}

fn listed(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    let _place = exchange.enter(Class::Work)?;
    let engine = &exchange.server.engine;
    let ring = engine.ring();
    let status = |(node, session): (NodeId, Arc<baton_core::cluster::Session>)| NodeStatus {
        node_id: id(node),
        address: address(session.address.as_deref()),
        version: session.version.to_string(),
        started_at: session.started.0,
        leaving: session.is_leaving,
        this: node == engine.node(),
        dedicated: session.is_dedicated,
        owns: ring.owners().iter().filter(|owner| **owner == node).count() as u64,
    };
    Ok(json(StatusCode::OK, &NodeList { nodes: engine.members().into_iter().map(status).collect() }))
}

/// Which node owns which keys, for clients and proxies that send a check straight to its owner.
#[utoipa::path(
    get, path = "/v1/ring", tag = "operations", operation_id = "getRing",
    responses((status = 200, description = "As this node sees it", body = RingStatus))
)]
pub async fn ring(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Ring, request);
    let outcome = shown(&exchange);
    exchange.end(outcome)
}

fn shown(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    let _place = exchange.enter(Class::Work)?;
    let engine = &exchange.server.engine;
    let ring = engine.ring();
    let owning: Vec<_> = ring.owners().iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let members = engine.members();
    let node = |node: &NodeId| {
        let session = members.iter().find(|(other, _)| other == node).map(|(_, session)| session);
        RingNode {
            node_id: id(*node),
            address: address(session.and_then(|session| session.address.as_deref())),
        }
    };
    let place = |owner: &NodeId| owning.binary_search(owner).unwrap_or_default() as u64;
    let status = RingStatus {
        revision: format!("{:016x}", ring.revision()),
        partitions: Group::all().count() as u64,
        nodes: owning.iter().map(node).collect(),
        owners: ring.owners().iter().map(place).collect(),
    };
    Ok(json(StatusCode::OK, &status))
}

/// The keys that are checked far more than others at this node.
#[utoipa::path(
    get, path = "/v1/hotkeys", tag = "operations", operation_id = "getHotKeys",
    responses((status = 200, description = "Hottest first, over the last 5 to 10 s", body = HotKeyList))
)]
pub async fn hot_keys(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::HotKeys, request);
    let outcome = hottest(&exchange);
    exchange.end(outcome)
}

fn hottest(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    let _place = exchange.enter(Class::Work)?;
    let status = |found: HotLimitKey| {
        let mitigation = exchange.server.engine.mitigation_of(&found.label.0);
        let (limit, key) = found.label;
        HotKeyStatus {
            namespace: limit.namespace().into(),
            limit: limit.key().into(),
            key,
            checks_per_second: found.uses.saturating_mul(1000) / found.over_ms,
            per_mille: found.uses.saturating_mul(1000) / found.all.max(1),
            mitigation: mitigation.map(|mitigation| mitigation.as_str().into()),
        }
    };
    let hot_keys = exchange.server.engine.hot_keys().into_iter().map(status).collect();
    Ok(json(StatusCode::OK, &HotKeyList { hot_keys }))
}

fn id(node: NodeId) -> String {
    format!("{:016x}", node.0)
}

fn address(address: Option<&str>) -> Option<String> {
    address.filter(|address| !address.is_empty()).map(str::to_owned)
}

/// Decides what another node has forwarded. Between nodes only, and so not in the description.
pub async fn forwarded(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let proof = request.headers().get(peers::PROOF).and_then(|proof| proof.to_str().ok()).map(str::to_owned);
    let (exchange, body) = Exchange::begin(server, Route::Forwarded, request);
    let outcome = decided(&exchange, proof.as_deref(), body).await;
    exchange.end(outcome)
}

async fn decided(exchange: &Exchange, proof: Option<&str>, body: Body) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    let engine = &exchange.server.engine;
    // Before anything of the body is read: a stranger is not worth the memory.
    if !proof.is_some_and(|proof| engine.is_peer(proof)) {
        let message = "only nodes of the same cluster forward to each other; send checks to /v1/limits";
        return Err(ErrorBody::new(ErrorCode::Forbidden, message).into());
    }
    let checks: wire::Checks = exchange.read(body, peers::BODY_BYTES_MAX).await?;
    let (ring, calls) = (checks.ring, checks.into_calls());
    if calls.len() > CHECKS_MAX {
        return Err(Problem::invalid("checks", format!("at most {CHECKS_MAX} checks")));
    }
    for call in &calls {
        check_text("namespace", call.limit.namespace(), limits::NAMESPACE_BYTES)?;
        check_name("limit", call.limit.key())?;
        check_text("key", &call.key, limits::KEY_BYTES)?;
        limits::check_number("cost", call.cost, limits::COST)?;
    }
    let _place = exchange.enter(Class::Work)?;
    let verdicts = engine.check_for_peer(ring, &calls).await.into_iter().map(Into::into).collect();
    Ok(json(StatusCode::OK, &wire::Verdicts { verdicts }))
}
