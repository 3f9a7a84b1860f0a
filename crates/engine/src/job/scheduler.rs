//! When to look at which group.
//!
//! Who owns a group looks at it (J4). That is no promise to anybody: two that believe to own it, or one that slept, conflict in the
//! store. So ownership decides only who has the work, and needs no record and no epoch of its own; the job's state, at the
//! revision that was decided on, is both.
//!
//! An idle node does nothing for a job that isn't due: all it remembers is a time for each group.

use super::group;
use crate::engine::Node;
use baton_core::job::place::index_time;
use baton_core::{Group, WallTime};
use baton_store::watch::{Change, Watch};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often every group that is owned is looked at, should a hint have got lost.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Looking at all because hints were lost happens at most this often.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// Groups that are looked at at once: a store has to have room for whoever calls, also when a node starts and looks at all of them.
const LOOKS_MAX: usize = 32;
/// How often it is found out who owns what.
const OWNERS_EVERY: Duration = Duration::from_secs(1);

/// Looks at whatever is due, until the node drains.
pub(crate) async fn keep(node: Arc<Node>, mut hints: Watch) {
    let mut looks = JoinSet::new();
    let mut is_looked_at = [false; 256];
    let mut ring = node.members.ring();
    let (mut looked, mut look_at) = (Instant::now(), Instant::now());
    let mut hears = true;
    loop {
        let current = node.members.ring();
        if current.revision() != ring.revision() {
            // Whoever takes over looks at once: the one before it may have left something half done.
            (ring, look_at) = (current, Instant::now());
        }
        let owns = |group: Group| ring.owner(group).is_none_or(|owner| owner == node.id);
        if look_at <= Instant::now() {
            (looked, look_at) = (Instant::now(), Instant::now() + node.random.jittered(LOOK_EVERY));
            Group::all().for_each(|group| node.jobs.agenda.note(group, WallTime(0)));
        }
        let now = node.now();
        let mut next = look_at;
        for group in Group::all().filter(|group| owns(*group)) {
            let is_busy = &mut is_looked_at[usize::from(group.0)];
            let earliest = node.jobs.agenda.earliest(group);
            match earliest.map(|at| node.jobs.agenda.look_at(group, at, group::AHEAD)) {
                Some(at) if at <= now && !*is_busy && looks.len() < LOOKS_MAX => {
                    *is_busy = true;
                    let node = node.clone();
                    looks.spawn(async move {
                        group::look(node, group).await;
                        group
                    });
                }
                Some(at) if at > now => {
                    next = next.min(Instant::now() + Duration::from_millis(at.0 - now.0));
                }
                Some(_) | None => {}
            }
        }
        if node.is_shared {
            next = next.min(Instant::now() + OWNERS_EVERY);
        }
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            Some(done) = looks.join_next(), if !looks.is_empty() => match done {
                Ok(group) => is_looked_at[usize::from(group.0)] = false,
                Err(_) => return tracing::error!("a look at what is due has failed for a bug"),
            },
            change = hints.next(), if hears => match change {
                None => hears = false,
                Some(change) => hear(&node, &mut hints, change, &mut look_at, looked),
            },
            () = node.jobs.agenda.changed.notified() => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// Notes all hints that are there.
fn hear(node: &Node, hints: &mut Watch, first: Change, look_at: &mut Instant, looked: Instant) {
    let mut change = Some(first);
    while let Some(heard) = change {
        match heard {
            Change::Put { key, .. } => {
                if let Some((group, at)) = index_time(&key) {
                    node.jobs.agenda.note(group, at);
                }
            }
            Change::Lost => *look_at = (*look_at).min((looked + LOOK_PAUSE).max(Instant::now())),
            Change::Deleted { .. } | Change::Expired { .. } => {}
        }
        change = hints.try_next();
    }
}
