//! Limits: how much of something a key may use.
//!
//! A *definition* names an algorithm (what is counted), a mechanism (who decides) and a failure policy (what happens when
//! nobody can). What is counted is in meters (see [`crate::meter`]), one for each key; a definition and a key make the rule
//! that the key's meter is charged by.
//!
//! # Layout
//! - [`definition`]: the record
//! - [`change`]: putting and removing one
//! - [`calendar`]: days and months in a time zone
//! - [`rule`]: from a definition and a key to the rule of its meter
//! - [`gossip`]: counts that spread between nodes, without a store
//! - [`hot`]: keys that are used far more than others
//! - [`log`]: what was decided, and what became of leases
//! - [`metered`]: which meter something was counted on
//! - [`mitigation`]: what is done about a hot key
//! - `names`: choices that are stored as a number
//! - [`narrow`]: numbers in five bytes
//! - [`purse`]: a lease, from its holder's side; [`till`]: what is in it; [`pocket`]: what of it many threads spend from; [`holder`]:
//!   what it does with a check
//! - [`quota`]: what a proxy may let pass by itself
//! - [`slack`]: bounded approximation
//! - [`share`]: what a node admits by itself in an outage
//! - [`receipt`]: what a check is given back with
//! - [`mod@bound`]: how much more than the limit may pass, at worst
//! - [`mod@advise`]: which mechanism to choose; [`demand`]: how often the store is asked, by reckoning

pub mod advise;
pub mod bound;
pub mod calendar;
pub mod change;
pub mod definition;
pub mod demand;
pub mod gossip;
pub mod holder;
pub mod hot;
pub mod log;
pub mod metered;
pub mod mitigation;
pub(crate) mod names;
pub mod narrow;
pub mod pocket;
pub mod purse;
pub mod quota;
pub mod receipt;
pub mod rule;
pub mod share;
pub mod slack;
pub mod till;

#[cfg(test)]
mod tests;

pub use advise::{Advice, Answer, Question, Way, advise};
pub use bound::{Bound, BoundItem, bound};
pub use calendar::{Calendar, CalendarUnit};
pub use change::{Put, put, remove};
pub use definition::{Definition, Mechanism, Override, Policy, Purpose};
pub use log::{Event, Line, Log};
pub use metered::Metered;
pub use mitigation::Mitigation;
pub use receipt::Receipt;
pub use rule::{Defined, overflow_key};
pub use slack::Identity;

use crate::name::{Kind, Name};
use crate::record::{Bytes, Group, Key};
use alloc::string::String;

/// The kind of a definition's record.
pub const DEFINITION: Kind = *b"Qd";
/// The kind of a meter's record.
pub const METER: Kind = *b"Qm";
/// The kind of the memo of a charge.
pub const MEMO: Kind = *b"Qe";

/// Where a definition is.
pub fn definition_key(name: &Name) -> Key {
    name.record(DEFINITION, &[])
}

/// In which group the meter of a limit's key is. Keys are spread over all of them, whatever limit they are of.
pub fn meter_group(name: &Name, key: &str) -> Group {
    Group::of(&[name.path(), key.as_bytes()])
}

/// Where the meter of a limit's key is.
pub fn meter_key(name: &Name, key: &str) -> Key {
    Key::new(meter_group(name, key), [&METER[..], name.path(), &[0], key.as_bytes()].concat())
}

/// What the names of a limit's meters begin with, in every group.
pub fn meter_prefix(name: &Name) -> Bytes {
    [&METER[..], name.path(), &[0]].concat().into()
}

/// Whose meter it is.
pub fn meter_of(name: &Name, record: &[u8]) -> Option<String> {
    let key = record.strip_prefix(&meter_prefix(name)[..])?;
    core::str::from_utf8(key).ok().map(String::from)
}

/// Where a charge is remembered: in the group of its first meter.
pub fn memo_key(first: &Key, id: &[u8; 16]) -> Key {
    Key::new(first.group, [&MEMO[..], id].concat())
}

/// An id made of what a call is about: the same for the same parts, and for no others.
pub fn call_id(parts: &[&[u8]]) -> [u8; 16] {
    crate::lock::name::digest(parts)
}
