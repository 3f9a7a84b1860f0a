//! What needs no agreement: counters, sets, registers, maps and presence, answered by one node from its own replica.
//!
//! A write is known again only by the node that may have done it. So a write that may have been applied is retried there and nowhere else, and if
//! that node stays away the error [is unknown](crate::Error::is_unknown). What never left goes to another node. A [`Tally`] is exact at any of them.
//!
//! # Layout
//! - `object`: what all of them have in common: paths, contexts, reads, writes
//! - `counter`, `tally`, `set`, `register`, `map`, `presence`: one file each

mod counter;
mod map;
mod object;
mod presence;
mod register;
mod set;
mod tally;

pub use counter::Counter;
pub use map::Map;
pub use presence::Presence;
pub use register::Register;
pub use set::Set;
pub use tally::Tally;

pub(crate) use object::list;
