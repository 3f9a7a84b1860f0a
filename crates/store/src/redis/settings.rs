//! What the servers' settings allow us to promise: some are refused whenever a server is connected to, some are said at the start.

use super::codec::bytes;
use super::link::{CALL_MAX, Link};
use super::routes::Routes;
use ::redis::{Value, cmd};
use std::collections::HashMap;
use tokio::time::Instant;

/// Looks at every primary; gives one sentence for each thing that weakens the promises.
pub(super) async fn inspect(routes: &Routes) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    for link in routes.all() {
        for warning in one(&link, routes.target.wait).await? {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    Ok(warnings)
}

/// What a server says of itself, each name as a setting's.
pub(super) fn information(answer: Value) -> HashMap<String, String> {
    let text = match answer {
        Value::VerbatimString { text, .. } => text,
        other => String::from_utf8_lossy(&bytes(other).unwrap_or_default()).into_owned(),
    };
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.replace('_', "-"), value.trim().to_owned())).collect()
}

/// Whether a server makes room by forgetting records.
pub(super) fn may_evict(found: &HashMap<String, String>) -> bool {
    let is = |name: &str, wanted: &str| found.get(name).is_some_and(|value| value == wanted);
    found.contains_key("maxmemory") && !is("maxmemory", "0") && !is("maxmemory-policy", "noeviction")
}

async fn one(link: &Link, wait: u32) -> Result<Vec<String>, String> {
    let until = Instant::now() + CALL_MAX;
    let failed = |trouble: super::link::Trouble| trouble.harmless().to_string();
    let mut found = information(link.call(&cmd("INFO"), until).await.map_err(failed)?);
    let mut warnings = Vec::new();
    for pattern in ["append*", "min-replicas-to-write"] {
        let mut question = cmd("CONFIG");
        question.arg("GET").arg(pattern);
        match link.call(&question, until).await {
            Ok(Value::Map(pairs)) => {
                let text = |value| bytes(value).and_then(|bytes| String::from_utf8(bytes).ok());
                found.extend(pairs.into_iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))));
            }
            _ => {
                warnings
                    .push("CONFIG is forbidden: appendfsync and min-replicas-to-write are unknown.".into());
                break;
            }
        }
    }
    let is = |name: &str, wanted: &str| found.get(name).is_some_and(|value| value == wanted);
    if is("appendonly", "no") || is("aof-enabled", "0") {
        warnings.push("appendonly is off: a crash of Redis forgets what was acknowledged.".into());
    } else if found.get("appendfsync").is_some_and(|value| value != "always") {
        warnings.push("appendfsync is not always: a crash of Redis forgets its last second.".into());
    }
    let replicas = found.get("connected-slaves").is_some_and(|count| count != "0");
    if replicas && wait == 0 && is("min-replicas-to-write", "0") {
        warnings.push(
            "Replicas are not waited for (wait=N, min-replicas-to-write): a failover forgets the tail."
                .into(),
        );
    }
    Ok(warnings)
}
