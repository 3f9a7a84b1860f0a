//! Removes what has expired, a bounded number at a time, and says so to whoever watches for it at this node.

use super::codec::{Names, bytes, ends, record_key};
use super::link::{CALL_MAX, Trouble};
use super::{COLLECT, DUE, Shared};
use crate::watch::Change;
use ::redis::Value;
use baton_core::{Group, Key};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// All groups are looked at in this time.
const ROUND: Duration = Duration::from_secs(2);
/// Groups looked at together, where one command can ask for all of them: nodes do so all the time, whatever is done with locks and limits.
const TOGETHER: usize = 64;
/// The same where each has to be asked for by itself.
const APART: usize = 16;
/// At most so many records of one index are removed together.
const BATCH: usize = 128;
/// As often as that at each look, of what is in one index for all groups: 16,384 a second, also of locks that nobody releases.
const BATCHES: usize = 64;

/// What is due by one index.
type Due = Vec<Vec<u8>>;

/// Runs as long as the store does.
pub(super) async fn collect(shared: Arc<Shared>) {
    let groups: Vec<Group> = Group::all().collect();
    let size = if shared.spans_groups() { TOGETHER } else { APART };
    let pause = ROUND * size as u32 / groups.len() as u32;
    loop {
        for some in groups.chunks(size) {
            tokio::time::sleep(pause).await;
            // A server that doesn't answer now will be asked again.
            if shared.spans_groups() {
                look_together(&shared, some).await;
                continue;
            }
            // At once, or each question would be a round trip, and commits would find the server and this node at work for as long
            // as all of them take.
            let mut looks = JoinSet::new();
            for group in some {
                let (shared, group) = (shared.clone(), *group);
                looks.spawn(async move { look_apart(&shared, group).await });
            }
            looks.join_all().await;
        }
    }
}

/// What has expired of some groups, and of what no list shows of all groups.
async fn look_together(shared: &Shared, groups: &[Group]) -> Option<()> {
    let prefix = &shared.routes.target.prefix;
    let mut indexes: Vec<_> = groups.iter().map(|group| Names::new(prefix, *group).expiry()).collect();
    indexes.push(ends(prefix));
    let mut due = due(shared, groups[0], &indexes).await?;
    let mut unlisted = due.pop()?;
    for (group, due) in groups.iter().zip(due) {
        if let Err(trouble) = remove_listed(shared, *group, due).await {
            go_on_after(&trouble)?;
        }
    }
    for _ in 0..BATCHES {
        let is_all = unlisted.len() < BATCH;
        // What isn't the key of a record was not put there by us.
        let keys = unlisted.iter().filter_map(|key| record_key(prefix, key)).collect();
        remove(shared, Group(0), vec![ends(prefix)], keys).await.ok()?;
        if is_all {
            break;
        }
        unlisted = self::due(shared, Group(0), &[ends(prefix)]).await?.pop()?;
    }
    Some(())
}

/// What has expired of a group, also what no list shows.
async fn look_apart(shared: &Shared, group: Group) -> Option<()> {
    let names = Names::new(&shared.routes.target.prefix, group);
    let due = due(shared, group, &[names.expiry()]).await?.pop()?;
    remove_listed(shared, group, due).await.ok()
}

/// What one group's records are refused for is no reason to leave the others; a server that doesn't answer would be waited for
/// by each of them.
fn go_on_after(trouble: &Trouble) -> Option<()> {
    (!trouble.is_elsewhere()).then_some(())
}

async fn remove_listed(shared: &Shared, group: Group, due: Due) -> Result<(), Trouble> {
    let names = Names::new(&shared.routes.target.prefix, group);
    let keys = due.iter().map(|name| Key::new(group, name.as_slice())).collect();
    remove(shared, group, vec![names.expiry(), names.index()], keys).await
}

/// What is due by each of some indexes, a bounded number, at one moment.
async fn due(shared: &Shared, group: Group, indexes: &[String]) -> Option<Vec<Due>> {
    let link = shared.routes.link(group);
    let names: Vec<_> = indexes.iter().map(|index| index.clone().into_bytes()).collect();
    let until = Instant::now() + CALL_MAX;
    let most = [BATCH.to_string().into_bytes()];
    let Value::Array(found) = shared.script(&link, &DUE, &names, &most, until).await.ok()? else {
        return None;
    };
    let texts = |found| match found {
        Value::Array(texts) => texts.into_iter().map(bytes).collect(),
        _ => None,
    };
    found.into_iter().map(texts).collect::<Option<Vec<Due>>>().filter(|due| due.len() == indexes.len())
}

/// Removes those of some records that have expired, by the first of these indexes.
async fn remove(
    shared: &Shared,
    group: Group,
    indexes: Vec<String>,
    records: Vec<Key>,
) -> Result<(), Trouble> {
    if records.is_empty() {
        return Ok(());
    }
    let link = shared.routes.link(group);
    let until = Instant::now() + CALL_MAX;
    let prefix = &shared.routes.target.prefix;
    let arguments = [indexes.len(), Names::new(prefix, group).length() + 1];
    let arguments = arguments.map(|number| number.to_string().into_bytes());
    let mut names: Vec<_> = indexes.into_iter().map(String::into_bytes).collect();
    names.extend(records.iter().map(|key| Names::new(prefix, key.group).record(&key.name)));
    let removed = shared.script(&link, &COLLECT, &names, &arguments, until).await?;
    let Value::Array(removed) = removed else { return Ok(()) };
    let gone = removed.into_iter().filter_map(|index| match index {
        Value::Int(index) => records.get(usize::try_from(index).ok()?.checked_sub(1)?),
        _ => None,
    });
    let changes = gone.map(|key| Change::Expired { key: key.clone() });
    shared.expirations.publish(changes);
    Ok(())
}
