//! The bodies of `/v1/counters`, `/v1/sets`, `/v1/registers`, `/v1/maps` and `/v1/presence` (D1, D7, D9, D12).
//!
//! # Layout
//! - `counter`, `set`, `register`, `map`, `presence`: one file a path
//! - `amount`: what is added to a counter

mod amount;
mod counter;
mod map;
mod presence;
mod register;
mod set;

pub use amount::{Amount, EXACT_MAX};
pub use counter::{CounterState, CounterTotal, CounterWrite};
pub use map::{MapChange, MapField, MapPage, MapSetWrite, MapWrite, MapWritten};
pub use presence::{PresenceLeave, PresenceList, PresenceMember, PresenceRefresh, PresenceWritten};
pub use register::{RegisterState, RegisterWrite};
pub use set::{SetChange, SetPage, SetWrite, SetWritten};

use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// Changes in one write: all of them happen, or none.
pub const EDITS_MAX: usize = 40;
/// Bytes of a set's element.
pub const ELEMENT_BYTES: std::ops::RangeInclusive<usize> = 1..=1024;
/// Bytes of a register's value, as JSON.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a context as text.
pub const CONTEXT_BYTES: std::ops::RangeInclusive<usize> = 1..=128 * 1024;
/// Bytes of a request's body: as many changes as may be, with a context.
pub const WRITE_BYTES_MAX: usize = 512 * 1024;
/// Milliseconds for which a read waits until what it is to have seen is there.
pub const WAIT_MILLIS: std::ops::RangeInclusive<u64> = 0..=30_000;
/// The same, if nothing is said.
pub const WAIT_MILLIS_DEFAULT: u64 = 5_000;

/// What something is, and how it merges. Part of its name: a counter and a grow-only counter of one name are two things.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CrdtKind {
    /// Can be added to and taken from.
    Counter,
    /// Can only be added to.
    GrowCounter,
    /// Elements; an add wins over a removal that hasn't seen it.
    Set,
    /// The last write wins.
    Register,
    /// Keeps what was written concurrently.
    MultiValue,
}

impl CrdtKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Counter, Self::GrowCounter, Self::Set, Self::Register, Self::MultiValue];

    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::GrowCounter => "grow-counter",
            Self::Set => "set",
            Self::Register => "register",
            Self::MultiValue => "multi-value",
        }
    }
}

/// Something that there is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ObjectName {
    /// What it is called.
    pub name: String,
    /// What it is; absent in a list of maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<CrdtKind>,
}

/// A page of a list. It may have fewer than were asked for, and still not be the last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ObjectList {
    /// In the order of names.
    pub names: Vec<ObjectName>,
    /// For the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Something was removed: as much of it as was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RemovedResponse {
    /// Always `REMOVED`, also if there was nothing.
    pub status: String,
    /// What was removed.
    pub name: String,
    /// For `after`: who has seen this has seen the removal.
    pub context: String,
    /// It had been done before, and was only answered again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replayed: bool,
}

/// Who writes, what it calls the request, and what it has seen.
fn check_write(
    writer: Option<&String>,
    request_id: Option<&String>,
    context: Option<&String>,
) -> Result<(), ErrorBody> {
    if let Some(writer) = writer {
        limits::check_text("writer", writer, limits::OWNER_BYTES)?;
    }
    if let Some(id) = request_id {
        limits::check_text("requestId", id, limits::REQUEST_ID_BYTES)?;
    }
    match context {
        Some(context) => limits::check_text("context", context, CONTEXT_BYTES),
        None => Ok(()),
    }
}

fn check_edits(field: &str, edits: usize) -> Result<(), ErrorBody> {
    if (1..=EDITS_MAX).contains(&edits) {
        return Ok(());
    }
    let message = format!("one write must have 1 to {EDITS_MAX} changes, not {edits}");
    Err(ErrorBody::invalid(field, message))
}

/// An element may be any text: it stands in JSON only.
fn check_element(field: &str, element: &str) -> Result<(), ErrorBody> {
    let (bytes, min, max) = (element.len(), ELEMENT_BYTES.start(), ELEMENT_BYTES.end());
    if ELEMENT_BYTES.contains(&bytes) {
        return Ok(());
    }
    Err(ErrorBody::invalid(field, format!("an element must have {min} to {max} bytes, not {bytes}")))
}

/// Elements to add and to remove; none of them both.
fn check_elements(field: &str, add: &[String], remove: &[String]) -> Result<(), ErrorBody> {
    let name = |list: &str| if field.is_empty() { list.to_owned() } else { format!("{field}.{list}") };
    for (list, elements) in [("add", add), ("remove", remove)] {
        for element in elements {
            check_element(&name(list), element)?;
        }
    }
    if remove.iter().any(|element| add.contains(element)) {
        let message = "an element must not be added and removed in one write";
        return Err(ErrorBody::invalid(name("remove"), message));
    }
    Ok(())
}

fn check_value(field: &str, value: &str) -> Result<(), ErrorBody> {
    if value.len() <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{field} must have at most {VALUE_BYTES_MAX} bytes as JSON, not {}", value.len());
    Err(ErrorBody::invalid(field, message))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}
