//! Once: the first caller of a key does the work, all others get its result (L18).
//!
//! # The records of a key
//! | record | under | lives | says |
//! |---|---|---|---|
//! | [`state`] | the key | as long as the claim, then as long as the result is kept | who does it, or what came of it |
//! | [`memo`] | the key and a request's id | 10 minutes | that the request's claim was given up, or must not be made |
//!
//! A running claim is put once and then only touched, so **the revision that made it is its fencing token and proves
//! that it is still the same claim, running**. Completing puts the result over it: same creation, another revision. An
//! expired claim is an absent record, and the next caller makes a new one, with a higher token.
//!
//! # The rules
//! [`claim()`] and [`void`] are for those who ask for the key, [`complete`], [`renew`] and [`fail`] for the one who has it.

pub mod claim;
pub mod holder;
pub mod memo;
pub mod state;
pub mod token;

#[cfg(test)]
mod tests;

pub use claim::{Claim, Claimed, claim, void};
pub use holder::{Ended, complete, fail, renew};
pub use state::{Done, Running, State};
pub use token::{ClaimId, ClaimToken};

use crate::name::{Kind, Name};
use crate::record::Key;

/// The kind of [`state`] records.
const STATE: Kind = *b"Os";
/// The kind of [`memo`] records.
const MEMO: Kind = *b"Oe";

/// Where the state of a key is: whoever waits for it watches this.
pub fn state_key(name: &Name) -> Key {
    name.record(STATE, &[])
}

fn memo_key(name: &Name, id: ClaimId) -> Key {
    name.record(MEMO, &id.0)
}
