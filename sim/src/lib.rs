//! Seeded simulations: the real engine and the real rules, on a simulated store and clock.
//!
//! # Layout
//! - [`scenarios`]: what a seed is about: who is there, how they behave, what goes wrong
//! - [`world`]: one simulation while it runs: nodes, clients' calls, what each of them heard and believes
//! - [`client`]: what a client does
//! - [`nodes`]: one live node at a time, killed or drained and started again on the same records
//! - [`timeline`]: the store's history, told again lock by lock
//! - [`invariants`]: what must hold, one property a file
//! - [`broken`]: stores that leave one kind of check out, so that the invariants can show what they are worth
//! - [`once`]: the same for `once`; [`bundle`]: for several locks at once
//! - [`trace`]: everything that happened, a line each
//! - [`mod@run`]: a seed from its beginning to its verdict
//!
//! Everything runs on one thread and on paused time: the same seed gives the same bytes.

pub mod broken;
pub mod bundle;
pub mod client;
pub mod invariants;
pub mod nodes;
pub mod once;
pub mod run;
pub mod scenarios;
pub mod timeline;
pub mod trace;
pub mod world;

pub use broken::Broken;
pub use run::{Report, run};
