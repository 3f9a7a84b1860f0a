//! Removes what has expired: a few at a time, by whichever node comes first.

use super::pool::Pool;
use super::rows::key_latch;
use super::session::Failure;
use super::target::Target;
use crate::watch::{Change, Hub};
use baton_core::{Group, Key};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;

/// So many locks one removal takes at most, and so long it keeps others from these names: not long.
const BATCH_MAX: i32 = 128;

const PAUSE: Duration = Duration::from_secs(1);

/// Runs until the store has gone.
pub(super) async fn run(pool: Arc<Pool>, target: Arc<Target>, expirations: Arc<Hub>) {
    loop {
        match collect(&pool, &target).await {
            Ok((collected, more)) => {
                expirations.publish(collected.into_iter().map(|key| Change::Expired { key }));
                if more {
                    tokio::task::yield_now().await;
                    continue;
                }
            }
            Err(failure) => tracing::debug!("expired records stay for now: {}", failure.of_a_read()),
        }
        // Nodes that were started together look at different moments.
        let dice = getrandom::u32().unwrap_or_default() % 1000;
        tokio::time::sleep(PAUSE / 2 + PAUSE * dice / 1000).await;
    }
}

/// What was removed, and whether there may be more.
async fn collect(pool: &Pool, target: &Target) -> Result<(Vec<Key>, bool), Failure> {
    let due = pool.query(|session| &session.due, &[&BATCH_MAX]).await?;
    if due.is_empty() {
        return Ok((Vec::new(), false));
    }
    let keys: Vec<_> = due.iter().map(key).collect();
    let latches: Vec<_> = keys.iter().map(|key| key_latch(target, key)).collect();
    let groups: Vec<_> = keys.iter().map(|key| i16::from(key.group.0)).collect();
    let names: Vec<_> = keys.iter().map(|key| &key.name[..]).collect();
    let done = pool.query(|session| &session.collect, &[&latches, &groups, &names]).await?;
    let full = due.len() == usize::try_from(BATCH_MAX).unwrap_or_default();
    // If others hold all of them, looking again at once would only turn the wheel.
    let more = full && !done.is_empty();
    Ok((done.iter().filter(|row| row.get(2)).map(key).collect(), more))
}

fn key(row: &Row) -> Key {
    let group = u8::try_from(row.get::<_, i16>(0)).unwrap_or_default();
    Key::new(Group(group), row.get::<_, &[u8]>(1))
}
