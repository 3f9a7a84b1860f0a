//! Nodes that share a store: what they say of themselves, and which of them serves what.
//!
//! Nothing here is about safety. Two nodes that see different members disagree about an owner for a moment; whatever an owner admits was debited
//! at the store before, so that costs a detour and never a token.
//!
//! # Layout
//! - [`Session`]: what a node says of itself, as long as it lives
//! - [`prove`]: what one node shows another
//! - [`Ring`]: which node owns which group of keys

mod proof;
mod ring;
mod session;

pub use proof::{is_proved, prove};
pub use ring::Ring;
pub use session::{SESSION, Session, node_of, session_key};
