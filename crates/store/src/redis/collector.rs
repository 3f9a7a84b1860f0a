//! Removes what has expired, a bounded number at a time, and says so to whoever watches for it at this node.

use super::codec::{Names, bytes};
use super::link::CALL_MAX;
use super::{COLLECT, Shared};
use crate::watch::Change;
use ::redis::{Value, cmd};
use baton_core::{Group, Key};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Groups looked at together.
const GROUPS: usize = 16;
/// From one look to the next; all groups have been looked at after two seconds.
const PAUSE: Duration = Duration::from_millis(125);
/// At most so many records of one group are removed together.
const BATCH: usize = 128;

/// Runs as long as the store does.
pub(super) async fn collect(shared: Arc<Shared>) {
    let groups: Vec<Group> = Group::all().collect();
    loop {
        for some in groups.chunks(GROUPS) {
            tokio::time::sleep(PAUSE).await;
            for group in some {
                // A server that doesn't answer now will be asked again.
                if one(&shared, *group).await.is_none() {
                    break;
                }
            }
        }
    }
}

async fn one(shared: &Shared, group: Group) -> Option<()> {
    let link = shared.routes.link(group);
    let until = Instant::now() + CALL_MAX;
    let names = Names::new(&shared.routes.target.prefix, group);
    let mut question = cmd("ZRANGE");
    question.arg(names.expiry()).arg(0).arg(BATCH - 1).arg("WITHSCORES");
    let Value::Array(pairs) = link.call(&question, until).await.ok()? else { return None };
    if pairs.is_empty() {
        return Some(());
    }
    let Value::Array(time) = link.call(&cmd("TIME"), until).await.ok()? else { return None };
    let mut time =
        time.into_iter().filter_map(|part| String::from_utf8(bytes(part)?).ok()?.parse::<f64>().ok());
    let now = time.next()? * 1e6 + time.next()?;
    let due: Vec<Vec<u8>> = pairs
        .into_iter()
        .filter_map(|pair| match pair {
            Value::Array(pair) => match <[Value; 2]>::try_from(pair).ok()? {
                [Value::BulkString(name), Value::Double(score)] if score <= now => Some(name),
                _ => None,
            },
            _ => None,
        })
        .collect();
    if due.is_empty() {
        return Some(());
    }
    let mut keys = vec![names.index().into_bytes(), names.expiry().into_bytes()];
    keys.extend(due.iter().map(|name| names.record(name)));
    let arguments = [names.length().to_string().into_bytes()];
    let removed = shared.script(&link, &COLLECT, &keys, &arguments, until).await.ok()?;
    let Value::Array(removed) = removed else { return None };
    let gone = removed.into_iter().filter_map(|index| match index {
        Value::Int(index) => due.get(usize::try_from(index).ok()?.checked_sub(1)?),
        _ => None,
    });
    let changes = gone.map(|name| Change::Expired { key: Key::new(group, name.as_slice()) });
    shared.expirations.publish(changes);
    Some(())
}
