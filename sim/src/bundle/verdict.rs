//! What must hold of bundles, whatever went wrong:
//! - who was told that all locks are its own had all of them at one moment, before it was told;
//! - none of them was then taken from it: each ended by its own release, or its lease ran out;
//! - whoever was told so for one request was told of the same grants;
//! - of a request that was refused for certain nothing lives on, and nothing comes;
//! - no two grants of a lock live at the same time.

use super::caller::{Told, What as Heard};
use baton_core::Write;
use baton_core::lock::LockName;
use baton_core::lock::grant::Grant;
use baton_core::lock::name::Kind;
use baton_testkit::simulated::{Happening, What};
use std::collections::BTreeMap;
use std::time::Duration;

/// A grant, from the commit that made it.
struct Life {
    owner: String,
    from: Duration,
    expires: Duration,
    deleted: Option<Duration>,
}

impl Life {
    fn until(&self) -> Duration {
        self.deleted.map_or(self.expires, |deleted| deleted.min(self.expires))
    }
}

type Lives = BTreeMap<(LockName, u64), Life>;

pub(super) fn of(history: &[Happening], told: &[Told]) -> Vec<String> {
    let mut violations = Vec::new();
    let lives = lives(history, &mut violations);
    let mut grants: BTreeMap<&str, &Vec<(LockName, u64)>> = BTreeMap::new();
    for one in told {
        let mut complain = |text: &str| violations.push(format!("{text} ({one:?})"));
        match &one.what {
            Heard::Releases => {}
            Heard::Granted { tokens } => {
                let held: Vec<_> = tokens.iter().filter_map(|token| lives.get(token)).collect();
                let latest = held.iter().map(|life| life.from).max().unwrap_or_default();
                let earliest = held.iter().map(|life| life.until()).min().unwrap_or_default();
                if held.len() < tokens.len() || held.iter().any(|life| life.owner != one.request) {
                    complain("somebody was told of grants that it never had");
                }
                if latest > earliest || latest > one.at {
                    complain("somebody was told of locks that it never had at one moment");
                }
                let releases = |other: &&Told| other.request == one.request && other.what == Heard::Releases;
                let released = told.iter().find(releases).map_or(Duration::MAX, |told| told.at);
                if held.iter().any(|life| life.deleted.is_some_and(|deleted| deleted < released)) {
                    complain("somebody was told of a lock that was taken from it");
                }
                let mut tokens_of = tokens.clone();
                tokens_of.sort();
                let known = grants.entry(&one.request).or_insert(tokens);
                let mut known = known.to_vec();
                known.sort();
                if known != tokens_of {
                    complain("one request was granted twice");
                }
            }
            Heard::Refused => {
                if lives.values().any(|life| life.owner == one.request && life.until() > one.at) {
                    complain("who was refused has something all the same");
                }
            }
        }
    }
    violations
}

/// Every grant, by its lock and token.
fn lives(history: &[Happening], violations: &mut Vec<String>) -> Lives {
    let mut lives = Lives::new();
    // The grant that is there under a name, by its token.
    let mut present: BTreeMap<Vec<u8>, (LockName, u64)> = BTreeMap::new();
    let mut last: BTreeMap<LockName, u64> = BTreeMap::new();
    for happening in history {
        let What::Committed { revision, commit } = &happening.what else { continue };
        // What a commit ends is over before what it makes.
        let (puts, others): (Vec<_>, Vec<_>) =
            commit.writes.iter().partition(|write| matches!(write, Write::Put { .. }));
        for write in others.into_iter().chain(puts) {
            let name = &write.key().name;
            if Kind::of_name(name) != Some(Kind::Grant) {
                continue;
            }
            let Some((lock, _)) = LockName::of_record(Kind::Grant, name) else { continue };
            match write {
                Write::Put { value, ttl, .. } => {
                    let before = last
                        .insert(lock.clone(), revision.0)
                        .and_then(|token| lives.get(&(lock.clone(), token)));
                    if before.is_some_and(|before| before.until() > happening.at) {
                        violations.push(format!("two hold {lock:?} at {:?}", happening.at));
                    }
                    let owner = Grant::decode(value).map(|grant| grant.owner.to_string()).unwrap_or_default();
                    let expires = happening.at + ttl.length().unwrap_or_default();
                    let life = Life { owner, from: happening.at, expires, deleted: None };
                    present.insert(name.to_vec(), (lock.clone(), revision.0));
                    lives.insert((lock, revision.0), life);
                }
                Write::Touch { ttl, .. } => {
                    let life = present.get(&name[..]).and_then(|which| lives.get_mut(which));
                    if let Some(life) = life.filter(|life| life.expires > happening.at) {
                        life.expires = life.expires.max(happening.at + *ttl);
                    }
                }
                Write::Delete { .. } => {
                    let life = present.remove(&name[..]).and_then(|which| lives.get_mut(&which));
                    if let Some(life) = life.filter(|life| life.expires > happening.at) {
                        life.deleted = Some(happening.at);
                    }
                }
            }
        }
    }
    lives
}
