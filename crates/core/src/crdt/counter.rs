//! A counter: for each slot the total that went through it, and the sum over all slots.
//!
//! An actor's adds replace its own slot's entry, so a row has an entry for each actor, however often it was added to. Where two
//! entries say something of one slot, the higher total is the later one, since totals only grow.
//!
//! A counter that is removed (a map's field) loses the entries that the removal has seen. One that its actor replaced
//! concurrently stays, with its whole total and not only what was added since: an add wins. After the removal was seen, a slot
//! begins again at zero.

use super::delta::Change;
use super::dot::{Actor, Dot};
use super::kind::RowKey;
use super::row::{Entry, Row};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Why a counter didn't change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It only grows.
    GrowsOnly,
    /// A total would not fit in 63 bits.
    Overflow,
    /// Too many slots in one counter: see [`super::ROW_ENTRIES_MAX`].
    TooManySlots,
}

/// The largest total of a slot: the difference of two still has a sign.
pub const TOTAL_MAX: u64 = i64::MAX as u64;

/// Adds to the actor's own slot.
pub fn add(row: &Row, key: &RowKey, dot: Dot, amount: i64) -> Result<Change, Refused> {
    if amount < 0 && key.kind() == super::Kind::GrowCounter {
        return Err(Refused::GrowsOnly);
    }
    let (added, taken) = totals(row).remove(&dot.actor).unwrap_or_default();
    let by = amount.unsigned_abs();
    let (added, taken) = if amount < 0 { (added, sum(taken, by)?) } else { (sum(added, by)?, taken) };
    put(row, key, dot, dot.actor, (added, taken))
}

/// Sets a writer's own slot to its totals so far. What isn't more than is known changes nothing, so a writer may send its
/// totals to any replica, and again. They are totals for good: if the counter is removed, the next report brings all of it back.
pub fn report(
    row: &Row,
    key: &RowKey,
    dot: Dot,
    writer: Actor,
    reported: (u64, u64),
) -> Result<Option<Change>, Refused> {
    if reported.1 > 0 && key.kind() == super::Kind::GrowCounter {
        return Err(Refused::GrowsOnly);
    }
    if reported.0.max(reported.1) > TOTAL_MAX {
        return Err(Refused::Overflow);
    }
    let known = totals(row).remove(&writer).unwrap_or_default();
    let newer = (known.0.max(reported.0), known.1.max(reported.1));
    if newer == known { Ok(None) } else { put(row, key, dot, writer, newer).map(Some) }
}

fn sum(total: u64, by: u64) -> Result<u64, Refused> {
    total.checked_add(by).filter(|total| *total <= TOTAL_MAX).ok_or(Refused::Overflow)
}

fn put(
    row: &Row,
    key: &RowKey,
    dot: Dot,
    slot: Actor,
    (added, taken): (u64, u64),
) -> Result<Change, Refused> {
    let replaced: Vec<_> = row
        .entries()
        .iter()
        .filter(|(_, entry)| matches!(entry, Entry::Tally { slot: of, .. } if *of == slot))
        .map(|(dot, _)| *dot)
        .collect();
    if replaced.is_empty() && row.entries().len() >= super::ROW_SLOTS_MAX {
        return Err(Refused::TooManySlots);
    }
    Ok(Change {
        key: key.clone(),
        added: vec![(dot, Entry::Tally { slot, added, taken })],
        removed: replaced,
    })
}

/// What each slot comes to.
pub(super) fn totals(row: &Row) -> BTreeMap<Actor, (u64, u64)> {
    let mut totals = BTreeMap::new();
    for (_, entry) in row.entries() {
        if let Entry::Tally { slot, added, taken } = entry {
            let known: &mut (u64, u64) = totals.entry(*slot).or_default();
            *known = (known.0.max(*added), known.1.max(*taken));
        }
    }
    totals
}

/// What it counts. Wide enough for as many slots as there may be.
pub fn value(row: &Row) -> i128 {
    if let [(_, Entry::Tally { added, taken, .. })] = row.entries() {
        return i128::from(*added) - i128::from(*taken);
    }
    totals(row).values().map(|(added, taken)| i128::from(*added) - i128::from(*taken)).sum()
}
