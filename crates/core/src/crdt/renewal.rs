//! Runs that are over leave rows: what they made is written again under new dots, and their totals become their heir's.
//!
//! To *renew* is to say the same under other dots, so anybody may do it, also several at once. To *fold* is to move totals from the
//! slots of old runs to a slot of one's own: done twice, they would count twice. So it is for one heir only, which [`super::heirs`] sees
//! to, and renewing leaves counters alone: a slot is written by nobody but its own run, and ended by nobody but its heir.

use super::counter::TOTAL_MAX;
use super::delta::Change;
use super::dot::{Actor, Dot};
use super::kind::RowKey;
use super::row::{Entry, Row};
use alloc::vec::Vec;

/// The change that puts the entries whose dots are of `old` actors under new dots, which `mint` gives. A dot is used once, so
/// each entry gets its own; elements of sets need only one.
pub fn renew(
    row: &Row,
    key: &RowKey,
    old: impl Fn(Actor) -> bool,
    mut mint: impl FnMut() -> Dot,
) -> Option<Change> {
    let (removed, entries): (Vec<_>, Vec<_>) =
        row.entries().iter().filter(|(dot, _)| old(dot.actor)).cloned().unzip();
    let added = match entries.first()? {
        Entry::Tally { .. } => return None,
        Entry::Member => alloc::vec![(mint(), Entry::Member)],
        Entry::Value { .. } => entries.into_iter().map(|entry| (mint(), entry)).collect(),
    };
    Some(Change { key: key.clone(), added, removed })
}

/// The change that moves the totals in slots of `old` runs to the slot of the dot's own actor. What it says doesn't change, and whoever
/// has seen it has seen that the old slots are gone: there is no order in which both count. Nothing if there are none, or if
/// the sum is more than a slot may hold: then they stay.
pub fn fold(row: &Row, key: &RowKey, old: impl Fn(Actor) -> bool, dot: Dot) -> Option<Change> {
    let totals = super::counter::totals(row);
    if !totals.keys().any(|slot| old(*slot)) {
        return None;
    }
    let is_moved = |slot: Actor| slot == dot.actor || old(slot);
    let (mut added, mut taken) = (0_u64, 0_u64);
    for (_, (more, less)) in totals.iter().filter(|(slot, _)| is_moved(**slot)) {
        added = added.checked_add(*more).filter(|total| *total <= TOTAL_MAX)?;
        taken = taken.checked_add(*less).filter(|total| *total <= TOTAL_MAX)?;
    }
    let is_in = |entry: &Entry| matches!(entry, Entry::Tally { slot, .. } if is_moved(*slot));
    let removed = row.entries().iter().filter(|(_, entry)| is_in(entry)).map(|(dot, _)| *dot).collect();
    let tally = Entry::Tally { slot: dot.actor, added, taken };
    Some(Change { key: key.clone(), added: alloc::vec![(dot, tally)], removed })
}
