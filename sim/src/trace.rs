//! Everything that happened, a line each: what the store did and what clients and nodes did, in one order.

use crate::world::Records;
use baton_core::lock::LockName;
use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::{Check, Commit, Key, Write};
use baton_testkit::simulated::{Happening, What};
use std::fmt::Write as _;
use std::time::Duration;

/// The trace of a run.
pub fn text(history: &[Happening], records: &Records) -> String {
    let mut text = String::new();
    let mut notes = records.notes.iter().peekable();
    for (index, happening) in history.iter().enumerate() {
        while let Some((_, at, line)) = notes.next_if(|(before, _, _)| *before <= index) {
            put(&mut text, *at, line);
        }
        put(&mut text, happening.at, &line(happening));
    }
    for (_, at, line) in notes {
        put(&mut text, *at, line);
    }
    text
}

fn put(text: &mut String, at: Duration, line: &str) {
    // Writing to a string can't fail.
    let _done = writeln!(text, "{:>9.3} {line}", at.as_secs_f64());
}

fn line(happening: &Happening) -> String {
    let (node, call) = (happening.node, happening.call);
    match &happening.what {
        What::Committed { revision, commit } => {
            format!("store: {} by call {call} of node {node}: {}", revision.0, shown(commit))
        }
        What::Conflict { commit } => {
            format!("store: conflict, call {call} of node {node}: {}", shown(commit))
        }
        What::NeverArrived { commit } => {
            format!("store: never, call {call} of node {node}: {}", shown(commit))
        }
        What::ToldUnknown => format!("store: node {node} doesn't know what became of call {call}"),
        What::Died => format!("store: node {node} is cut off"),
        What::Collected { key } => format!("store: collected {}", name(key)),
    }
}

fn shown(commit: &Commit) -> String {
    let checks = commit.checks.iter().map(|check| match check {
        Check::Absent(key) => format!("no {}", name(key)),
        Check::Created(key, revision) => format!("{} made {}", name(key), revision.0),
        Check::At(key, revision) => format!("{} at {}", name(key), revision.0),
    });
    let writes = commit.writes.iter().map(|write| match write {
        Write::Put { key, value, .. } => format!("put {}{}", name(key), detail(key, value)),
        Write::Touch { key, ttl } => format!("touch {} {ttl:?}", name(key)),
        Write::Delete { key } => format!("delete {}", name(key)),
    });
    let (checks, writes): (Vec<_>, Vec<_>) = (checks.collect(), writes.collect());
    format!("{} => {}", checks.join(", "), writes.join(", "))
}

/// What a record says, for those that a reader of traces asks for first.
fn detail(key: &Key, value: &[u8]) -> String {
    if Kind::of_name(&key.name) != Some(Kind::Roster) {
        return String::new();
    }
    let Ok(roster) = Roster::decode(value) else { return String::new() };
    let holders = roster
        .holders
        .iter()
        .map(|holder| (holder.id, holder.hold, holder.count, holder.replayed, holder.closed));
    format!(" [{:?}, {} wait]", holders.collect::<Vec<_>>(), roster.waiting)
}

fn name(key: &Key) -> String {
    let parts = Kind::of_name(&key.name)
        .and_then(|kind| LockName::of_record(kind, &key.name).map(|(lock, suffix)| (kind, lock, suffix)));
    let Some((kind, lock, suffix)) = parts else { return format!("{key:?}") };
    let kind = format!("{kind:?}").to_lowercase();
    let digits = if suffix.len() == 8 { &suffix[4..] } else { &suffix[..suffix.len().min(4)] };
    let suffix: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{kind} {} {suffix}", lock.key()).trim_end().to_owned()
}
