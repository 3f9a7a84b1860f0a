//! Removes what has expired, a bounded number at a time, and says so to whoever watches for it at this node.

use super::codec::{Names, bytes, ends, record_key};
use super::link::CALL_MAX;
use super::{COLLECT, Shared};
use crate::watch::Change;
use ::redis::{Value, cmd};
use baton_core::{Group, Key};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Groups looked at together.
const GROUPS: usize = 16;
/// From one look to the next; all groups have been looked at after two seconds.
const PAUSE: Duration = Duration::from_millis(125);
/// At most so many records of one index are removed together.
const BATCH: usize = 128;
/// As often as that at each look, of what is in one index for all groups.
const BATCHES: usize = 16;

/// Runs as long as the store does.
pub(super) async fn collect(shared: Arc<Shared>) {
    let groups: Vec<Group> = Group::all().collect();
    loop {
        for some in groups.chunks(GROUPS) {
            tokio::time::sleep(PAUSE).await;
            // At once, or each question would be a round trip, and commits would find the server and this node at work for as long
            // as all of them take. A server that doesn't answer now will be asked again.
            let mut looks = JoinSet::new();
            for group in some {
                let (shared, group) = (shared.clone(), *group);
                looks.spawn(async move { listed(&shared, group).await });
            }
            looks.join_all().await;
            if shared.spans_groups() {
                for _ in 0..BATCHES {
                    if unlisted(&shared).await != Some(BATCH) {
                        break;
                    }
                }
            }
        }
    }
}

/// What has expired of a group; on a cluster also what no list shows.
async fn listed(shared: &Shared, group: Group) -> Option<usize> {
    let names = Names::new(&shared.routes.target.prefix, group);
    let keys = |due: &[Vec<u8>]| due.iter().map(|name| Key::new(group, name.as_slice())).collect();
    one(shared, group, vec![names.expiry(), names.index()], keys).await
}

/// What no list shows and has expired, of all groups.
async fn unlisted(shared: &Shared) -> Option<usize> {
    let prefix = &shared.routes.target.prefix;
    // What isn't the key of a record was not put there by us.
    let keys = |due: &[Vec<u8>]| due.iter().filter_map(|key| record_key(prefix, key)).collect();
    one(shared, Group(0), vec![ends(prefix)], keys).await
}

/// Looks at what is due by the first of some indexes; gives how many that were.
async fn one(
    shared: &Shared,
    group: Group,
    indexes: Vec<String>,
    keys: impl Fn(&[Vec<u8>]) -> Vec<Key>,
) -> Option<usize> {
    let link = shared.routes.link(group);
    let until = Instant::now() + CALL_MAX;
    let mut question = cmd("ZRANGE");
    question.arg(&indexes[0]).arg(0).arg(BATCH - 1).arg("WITHSCORES");
    let Value::Array(pairs) = link.call(&question, until).await.ok()? else { return None };
    if pairs.is_empty() {
        return Some(0);
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
        return Some(0);
    }
    let records = keys(&due);
    let prefix = &shared.routes.target.prefix;
    let arguments = [indexes.len(), Names::new(prefix, group).length() + 1];
    let arguments = arguments.map(|number| number.to_string().into_bytes());
    let mut names: Vec<_> = indexes.into_iter().map(String::into_bytes).collect();
    names.extend(records.iter().map(|key| Names::new(prefix, key.group).record(&key.name)));
    let removed = shared.script(&link, &COLLECT, &names, &arguments, until).await.ok()?;
    let Value::Array(removed) = removed else { return None };
    let gone = removed.into_iter().filter_map(|index| match index {
        Value::Int(index) => records.get(usize::try_from(index).ok()?.checked_sub(1)?),
        _ => None,
    });
    let changes = gone.map(|key| Change::Expired { key: key.clone() });
    shared.expirations.publish(changes);
    Some(due.len())
}
