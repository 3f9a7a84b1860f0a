//! Who is there (D7): members say so again and again, and each observer counts from when it heard them.
//!
//! A group is a map that callers of maps can't name, and a member's refresh a write of its register there: its value is the time to live. The
//! observer listens to all that becomes durable in its replica, local and merged, and notes when. Whoever has been away for three times its time to
//! live is removed from the map, as far as it was seen: a refresh that comes meanwhile stays.
//!
//! After a restart nobody knows how long ago a refresh came: it counts from the start. So a member that is gone may be
//! shown for one more time to live, and one that lives is never missing.

use crate::replica::{Failure, Reading, Replica, Written};
use baton_core::crdt::kind::Parts;
use baton_core::crdt::presence::Presence;
use baton_core::crdt::{Act, Edit, Hlc, Kind, Object, Row, RowKey, register};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What the names of groups begin with: no name that comes from outside has it.
const GROUP_MARK: char = '\u{1}';
/// Groups that are followed; further ones are when others are gone.
const GROUPS_MAX: usize = 64 * 1024;
/// How often those who are long gone are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Members removed in one write.
const REMOVED_MAX: usize = crate::replica::EDITS_MAX;

/// Somebody who is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Who.
    pub name: String,
    /// For how long still, if nothing more is heard.
    pub alive_for: Duration,
}

/// Some of those who are there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Present {
    /// In the order of names.
    pub members: Vec<Member>,
    /// After whom to go on; nothing if these were the last.
    pub next: Option<String>,
}

/// Follows who is there. Dropping it ends that.
pub struct Observer {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    replica: Arc<Replica>,
    groups: Mutex<HashMap<GroupName, Presence>>,
    began: Instant,
}

/// Namespace and marked name.
type GroupName = (Box<str>, Box<str>);

impl Observer {
    /// Begins to follow.
    pub fn start(replica: Arc<Replica>) -> Self {
        let changes = replica.changes();
        let shared = Arc::new(Shared { replica, groups: Mutex::default(), began: Instant::now() });
        // What is there already counts from now on.
        shared.hear_all();
        let task = tokio::spawn(follow(shared.clone(), changes));
        Self { shared, task }
    }

    /// A member says that it is there, and will say so again within `ttl`.
    pub async fn refresh(
        &self,
        namespace: &str,
        group: &str,
        member: &str,
        ttl: Duration,
    ) -> Result<Written, Failure> {
        let object = Object::field(namespace, &marked(group), member);
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let edit = Edit::put(&object, Kind::Register, &ttl_ms.to_be_bytes());
        self.shared.replica.write(&[edit], None).await
    }

    /// A member says that it goes.
    pub async fn leave(&self, namespace: &str, group: &str, member: &str) -> Result<Written, Failure> {
        let key = Object::field(namespace, &marked(group), member).row(Kind::Register);
        self.shared.replica.write(&[Edit { key, act: Act::Remove(None) }], None).await
    }

    /// Who is there, in the order of names after one of them. At most `limit` are looked at.
    pub fn members(
        &self,
        namespace: &str,
        group: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Reading<Present> {
        let name = marked(group);
        let after = after.map(|member| Object::field(namespace, &name, member).row(Kind::Register));
        let Reading { value, context } = self.shared.replica.map(namespace, &name, after.as_ref(), limit);
        let last = value.items.last().filter(|_| value.more);
        let next = last.and_then(|(key, _)| key.parts().field.map(ToOwned::to_owned));
        let members = value.items.iter().filter_map(|(key, row)| self.shared.alive(key, row)).collect();
        Reading { value: Present { members, next }, context }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn marked(group: &str) -> String {
    format!("{GROUP_MARK}{group}")
}

/// Whether rows of a map of this name are a group's members.
pub fn is_group(map: &str) -> bool {
    map.starts_with(GROUP_MARK)
}

/// The member that a row is about, if it is one's.
fn member_of(key: &RowKey) -> Option<(Parts<'_>, &str)> {
    let parts = key.parts();
    let member = parts.field.filter(|_| is_group(parts.name) && parts.kind == Kind::Register)?;
    Some((parts, member))
}

async fn follow(
    shared: Arc<Shared>,
    mut changes: tokio::sync::broadcast::Receiver<Arc<crate::replica::Told>>,
) {
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            told = changes.recv() => match told {
                Ok(told) => told.delta.changes.iter().for_each(|change| shared.hear(&change.key)),
                Err(RecvError::Lagged(_)) => shared.hear_all(),
                Err(RecvError::Closed) => return,
            },
            _ = sweep.tick() => shared.sweep().await,
        }
    }
}

impl Shared {
    fn groups(&self) -> MutexGuard<'_, HashMap<GroupName, Presence>> {
        self.groups.lock().expect("no panic while held")
    }

    /// A row changed: if it is a member's, its newest refresh was heard now.
    fn hear(&self, key: &RowKey) {
        if member_of(key).is_some()
            && let Some((found, row)) = self.replica.first_row_from(key.bytes())
            && found == *key
        {
            self.alive(key, &row);
        }
    }

    /// Takes in a member's newest refresh, and says whether it is alive.
    fn alive(&self, key: &RowKey, row: &Row) -> Option<Member> {
        let (parts, member) = member_of(key)?;
        let (refreshed, ttl) = newest(row)?;
        let now = self.began.elapsed();
        let group = (parts.namespace.into(), parts.name.into());
        let mut groups = self.groups();
        if !groups.contains_key(&group) && groups.len() >= GROUPS_MAX {
            return None;
        }
        let presence = groups.entry(group).or_default();
        presence.refresh(member.as_bytes(), refreshed, ttl, now);
        let alive_for = presence.alive_for(member.as_bytes(), now)?;
        Some(Member { name: member.into(), alive_for })
    }

    /// Looks at all members of all groups: at the start, and when changes were missed.
    fn hear_all(&self) {
        let mut at = Object::map_prefix("", "");
        at.truncate(1);
        while let Some((key, row)) = self.replica.first_row_from(&at) {
            self.alive(&key, &row);
            let parts = key.parts();
            at = if is_group(parts.name) {
                [&key.bytes()[..], &[0]].concat()
            } else {
                // Groups come before all other names of a namespace: go on with the next namespace.
                let mut next = Object::map_prefix(parts.namespace, "");
                next.truncate(next.len() - 2);
                next.push(1);
                next
            };
        }
    }

    /// Removes those who have been gone for long, as far as they were seen. What can't be removed is tried again with the next.
    async fn sweep(&self) {
        let now = self.began.elapsed();
        let due: Vec<_> = {
            let groups = self.groups();
            let due = groups.iter().filter(|(_, presence)| presence.forgettable(now).next().is_some());
            due.map(|(name, _)| name.clone()).collect()
        };
        for group in due {
            let gone = self.gone(&group, now);
            let mut is_done = gone.len() < REMOVED_MAX;
            if !gone.is_empty() {
                is_done &= self.replica.write(&gone, None).await.is_ok();
            }
            if is_done {
                let mut groups = self.groups();
                if let Some(presence) = groups.get_mut(&group) {
                    presence.forget(now);
                    if presence.is_empty() {
                        groups.remove(&group);
                    }
                }
            }
        }
    }

    /// Removals of those of a group who have been gone for long and of whom nothing newer has come.
    fn gone(&self, (namespace, name): &GroupName, now: Duration) -> Vec<Edit> {
        // Before the rows are looked at: what comes later isn't in it.
        let seen = self.replica.context();
        let groups = self.groups();
        let Some(presence) = groups.get(&(namespace.clone(), name.clone())) else { return Vec::new() };
        let is_still = |key: &RowKey, refreshed: Hlc| {
            let found = self.replica.first_row_from(key.bytes());
            found.is_some_and(|(found, row)| {
                found == *key && newest(&row).is_none_or(|(newest, _)| newest == refreshed)
            })
        };
        let keys = presence.forgettable(now).filter_map(|(member, refreshed)| {
            let member = std::str::from_utf8(member).ok()?;
            let key = Object::field(namespace, name, member).row(Kind::Register);
            is_still(&key, refreshed).then_some(key)
        });
        keys.take(REMOVED_MAX).map(|key| Edit { key, act: Act::Remove(Some((*seen).clone())) }).collect()
    }
}

/// When a member was last refreshed, and for how long that is good.
fn newest(row: &Row) -> Option<(Hlc, Duration)> {
    let (refreshed, value) = register::latest(row)?;
    let ttl_ms = <[u8; 8]>::try_from(&value[..]).ok()?;
    Some((refreshed, Duration::from_millis(u64::from_be_bytes(ttl_ms))))
}
