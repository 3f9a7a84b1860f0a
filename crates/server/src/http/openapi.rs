//! The description of the API, made from the handlers themselves: a path that is served is a path that is described.
//!
//! What all paths have in common, and what derives can't say, is added here: the answers to bad input and overload,
//! and patterns for text. Lengths are limited in bytes, which JSON Schema can't count; the patterns say it exactly
//! for ASCII, and on the safe side for the rest.

use super::{
    Shared, batch, bundle, calendars, cluster, counters, election, elections, fence, jobs, limit, limit_log,
    limits, lock, maps, observe, once, operations, presence, preview, registers, replication, runs, sets,
    views, watch, workers,
};
use baton_api::batch::{Answer, BatchAnswer};
use baton_api::crdt::{EXACT_MAX, MapChange, SetChange};
use baton_api::election::ElectionEvent;
use baton_api::lock::LockEvent;
use baton_api::{ErrorBody, ErrorCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Baton",
        description = "Coordination for programs that run as many copies. Every answer that isn't a success \
                       has a stable code in `error`; each has a page in the manual.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "locks", description = "Leases with a queue and a fencing token"),
        (name = "elections", description = "One leader at a time, each with a higher epoch"),
        (name = "once", description = "The first caller does the work, all others get its result"),
        (name = "fences", description = "The highest token that a resource was used with"),
        (name = "limits", description = "How much of something a key may use"),
        (name = "jobs", description = "What has to run, when, and how often really"),
        (name = "crdt", description = "What needs no agreement: answered by each node from its own disk"),
        (name = "operations", description = "Running it"),
    ),
    components(schemas(ErrorBody, BatchAnswer, Answer, LockEvent, ElectionEvent, SetChange, MapChange))
)]
struct Described;

/// Every path with its handler.
pub(super) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(lock::acquire))
        .routes(routes!(lock::renew))
        .routes(routes!(lock::release))
        .routes(routes!(lock::force_release))
        .routes(routes!(bundle::acquire_all))
        .routes(routes!(views::lock))
        .routes(routes!(views::list))
        .routes(routes!(views::queue))
        .routes(routes!(views::history))
        .routes(routes!(watch::one))
        .routes(routes!(watch::many))
        .routes(routes!(election::campaign))
        .routes(routes!(election::renew))
        .routes(routes!(election::proclaim))
        .routes(routes!(election::resign))
        .routes(routes!(elections::election))
        .routes(routes!(elections::list))
        .routes(routes!(observe::observe))
        .routes(routes!(once::claim, once::status))
        .routes(routes!(once::complete))
        .routes(routes!(once::renew))
        .routes(routes!(once::fail))
        .routes(routes!(fence::check))
        .routes(routes!(fence::status))
        .routes(routes!(fence::list))
        .routes(routes!(fence::forget))
        .routes(routes!(limits::put, limits::get, limits::remove))
        .routes(routes!(limits::list))
        .routes(routes!(limits::usage))
        .routes(routes!(limits::leases))
        .routes(routes!(limits::bound))
        .routes(routes!(limit_log::audit))
        .routes(routes!(limit_log::leases))
        .routes(routes!(limit::check))
        .routes(routes!(limit::check_all))
        .routes(routes!(limit::refund))
        .routes(routes!(limit::reserve))
        .routes(routes!(limit::lease))
        .routes(routes!(limit::give_back))
        .routes(routes!(jobs::put, jobs::get, jobs::remove))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::run))
        .routes(routes!(jobs::pause))
        .routes(routes!(jobs::resume))
        .routes(routes!(jobs::backfill))
        .routes(routes!(jobs::history))
        .routes(routes!(calendars::put, calendars::get, calendars::remove))
        .routes(routes!(calendars::list))
        .routes(routes!(runs::get))
        .routes(routes!(runs::cancel))
        .routes(routes!(preview::preview_schedule))
        .routes(routes!(workers::claim))
        .routes(routes!(workers::heartbeat))
        .routes(routes!(workers::complete))
        .routes(routes!(workers::fail))
        .routes(routes!(counters::add, counters::get, counters::remove))
        .routes(routes!(counters::list))
        .routes(routes!(counters::watch))
        .routes(routes!(sets::change, sets::get))
        .routes(routes!(sets::list))
        .routes(routes!(sets::watch))
        .routes(routes!(registers::put, registers::get, registers::remove))
        .routes(routes!(registers::list))
        .routes(routes!(registers::watch))
        .routes(routes!(maps::change, maps::get))
        .routes(routes!(maps::list))
        .routes(routes!(maps::watch))
        .routes(routes!(presence::refresh, presence::get))
        .routes(routes!(presence::leave))
        .routes(routes!(batch::batch))
        .routes(routes!(cluster::nodes))
        .routes(routes!(cluster::ring))
        .routes(routes!(cluster::hot_keys))
        .routes(routes!(replication::status))
        .routes(routes!(replication::retire))
        .routes(routes!(operations::health))
        .routes(routes!(operations::ready))
        .routes(routes!(operations::status))
        .routes(routes!(operations::metrics))
        .routes(routes!(operations::openapi))
}

/// The whole description, as it is served.
pub fn document() -> Vec<u8> {
    let (_router, described) = routes().split_for_parts();
    let mut document = serde_json::to_value(described).unwrap_or_default();
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    // As they stand on the wire, which the derive doesn't see.
    document["components"]["schemas"]["ErrorCode"]["enum"] =
        ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let amount = &mut document["components"]["schemas"]["Amount"];
    (amount["minimum"], amount["maximum"]) = ((-EXACT_MAX).into(), EXACT_MAX.into());
    loosen_batch(&mut document);
    for operation in operations(&mut document) {
        complete(operation);
    }
    each_object(&mut document, &mut |object| {
        if let Some(Value::Object(properties)) = object.get_mut("properties") {
            properties.iter_mut().for_each(|(name, schema)| refine(name, schema));
        }
    });
    serde_json::to_vec(&document).unwrap_or_default()
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    paths.filter_map(|(_, item)| item.as_object_mut()).flatten().map(|(_, operation)| operation)
}

/// What every operation may answer, and what its parameters look like.
fn complete(operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        refine(&name, &mut parameter["schema"]);
    }
    let has_body = operation.get("requestBody").is_some();
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let schema = json!({ "$ref": "#/components/schemas/ErrorBody" });
    if has_body {
        let cross_site = "FORBIDDEN: a web page of another site sent it";
        let content = json!({ "application/json": { "schema": schema.clone() } });
        responses.entry("403").or_insert_with(|| json!({ "description": cross_site, "content": content }));
    }
    for (status, description) in [
        ("400", "INVALID_ARGUMENT: `field` says what is at fault"),
        ("500", "INTERNAL: the server's log says more"),
        (
            "503",
            "OVERLOADED, QUEUE_FULL, STORE_FULL or STORE_UNAVAILABLE: try again after `retryAfterMillis`",
        ),
    ] {
        responses.entry(status).or_insert_with(
            || json!({ "description": description, "content": { "application/json": { "schema": schema.clone() } } }),
        );
    }
}

/// Inside a batch, a call's values that aren't allowed are that call's own matter: the batch is still answered 200.
/// So there its schemas are without limits.
fn loosen_batch(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    for name in ["AcquireRequest", "RenewRequest", "ReleaseRequest"] {
        let Some(mut loose) = schemas.get(name).cloned() else { continue };
        for (field, schema) in loose["properties"].as_object_mut().into_iter().flatten() {
            if let Some(schema) = schema.as_object_mut() {
                schema.retain(|key, _| !matches!(key.as_str(), "minLength" | "maxLength"));
                if field.ends_with("Millis") || field == "permits" {
                    schema.insert("minimum".into(), 0.into());
                    schema.insert("maximum".into(), u64::MAX.into());
                }
                schema.insert(EXEMPT.into(), true.into());
            }
        }
        schemas.insert(format!("Batched{name}"), loose);
    }
    if let Some(call) = schemas.get_mut("Call") {
        for variant in call["oneOf"].as_array_mut().into_iter().flatten() {
            variant["additionalProperties"] = false.into();
        }
        each_object(call, &mut |object| {
            if let Some(Value::String(target)) = object.get_mut("$ref") {
                *target = target.replace("/schemas/", "/schemas/Batched");
            }
        });
    }
    let call = &mut schemas["BatchCall"]["properties"];
    call["id"] = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX,
                         "description": "Comes back with the answer. Chosen by the caller." });
    for field in ["lockKey", "namespace"] {
        call[field][EXEMPT] = true.into();
    }
}

/// Marks what [`refine`] leaves alone; taken out by it.
const EXEMPT: &str = "x-exempt";

/// No control characters: the limits of `baton_api::limits`, as patterns.
fn refine(name: &str, schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    if schema.remove(EXEMPT).is_some() {
        return;
    }
    if name == "lockKeys" {
        schema.insert("uniqueItems".into(), true.into());
        schema.get_mut("items").into_iter().for_each(|items| refine("lockKey", items));
        return;
    }
    if name == "then" {
        schema.get_mut("items").into_iter().for_each(|items| refine("name", items));
        return;
    }
    // Numbers may have the same names.
    if !schema.get("type").is_some_and(|kind| *kind == "string" || *kind == json!(["string", "null"])) {
        return;
    }
    let (start, min, max) = match name {
        "lockKey" | "name" | "onceKey" | "queue" | "resource" | "runId" => (r"(?!\.{1,2}$)", 1, 512),
        "namespace" => ("", 1, 128),
        "ownerId" | "candidateId" | "successor" | "writer" | "member" => ("", 1, 256),
        "requestId" => ("", 1, 128),
        "lockToken" | "leaderToken" | "claimToken" => ("", 1, 256),
        "key" | "limit" | "field" => ("", 1, 512),
        "receipt" => ("", 1, 256),
        "note" => ("", 0, 128),
        "timeZone" => ("", 1, 64),
        "reason" => (r"(?=.*\S)", 1, 1024),
        "prefix" => ("", 0, 512),
        _ => return,
    };
    let any = r"[^\x00-\x1f\x7f-\x9f]";
    let pattern = format!("^{start}(?:[ -~]{{{min},{max}}}|{any}{{{min},{}}})$", max / 4);
    schema.insert("pattern".into(), pattern.into());
    schema.insert("minLength".into(), min.into());
    schema.insert("maxLength".into(), max.into());
}

fn each_object(value: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            change(object);
            object.iter_mut().for_each(|(_, inner)| each_object(inner, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| each_object(inner, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Route;

    fn described() -> Value {
        serde_json::from_slice(&document()).unwrap()
    }

    #[test]
    fn every_route_is_described_and_every_description_is_a_route() {
        let document = described();
        let mut paths: Vec<_> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut templates: Vec<_> = Route::ALL.iter().map(|route| route.template()).collect();
        // What speaks gRPC is described by its own protocol, and what nodes say to each other is theirs.
        let others = [
            Route::Unknown,
            Route::ShouldRateLimit,
            Route::StreamRateLimitQuotas,
            Route::Forwarded,
            Route::Replica,
        ];
        let others = others.map(Route::template);
        templates.retain(|template| !others.contains(template));
        paths.sort_unstable();
        templates.sort_unstable();
        assert_eq!(paths, templates);
    }

    #[test]
    fn every_operation_says_how_bad_input_and_overload_are_answered() {
        let mut document = described();
        let codes = document["components"]["schemas"]["ErrorCode"]["enum"].clone();
        assert_eq!(codes[0], "ALREADY_COMPLETED");
        for operation in operations(&mut document) {
            assert!(operation.get("parameters").is_none_or(Value::is_array), "{operation}");
            for status in ["200", "400", "500", "503"] {
                assert!(operation["responses"][status].is_object(), "{status} of {operation}");
            }
        }
    }

    #[test]
    fn text_is_limited_where_it_is_an_error_and_nowhere_else() {
        let document = described();
        let schemas = &document["components"]["schemas"];
        assert_eq!(schemas["AcquireRequest"]["properties"]["ownerId"]["maxLength"], 256);
        assert_eq!(schemas["AcquireRequest"]["additionalProperties"], false);
        let keys = &schemas["AcquireAllRequest"]["properties"]["lockKeys"];
        assert_eq!((&keys["maxItems"], &keys["uniqueItems"]), (&json!(16), &json!(true)));
        assert_eq!(keys["items"]["maxLength"], 512);
        let batched = &schemas["BatchedAcquireRequest"]["properties"];
        assert!(batched["ownerId"]["pattern"].is_null() && batched["ownerId"]["maxLength"].is_null());
        assert!(schemas["BatchCall"]["properties"]["lockKey"]["pattern"].is_null());
        assert_eq!(schemas["Call"]["oneOf"][0]["additionalProperties"], false);
        assert!(!String::from_utf8(super::document()).unwrap().contains(EXEMPT));
    }
}
