//! Limits at a node: definitions are known, meters are charged at the store, or decided here out of what was debited there.
//!
//! # Layout
//! - [`calls`]: what can be asked, and what is answered
//! - `definitions`: what is known of definitions, and how it stays fresh
//! - `absent`: which names have none
//! - `manage`: putting, removing and listing definitions
//! - `log`: writing down what was decided; `audit`: before it is answered
//! - `keys`: how many keys a limit has, so that there is an end to their meters
//! - `check`: one check, or several together
//! - `charging`: the way to the store
//! - `leasing`: decided here, out of what was debited at the store; `held`: a key's, `purses`: where they are
//! - `owned`, `forward`: decided at the node that owns the key, and how checks get there
//! - `gossip`: decided here, by counts that spread between nodes
//! - `hot`: keys that are used far more than others
//! - `returning`: giving back what was leased and isn't needed, and everything before the node stops
//! - `lend`: leases for those who decide in a process of their own
//! - `fallback`: what happens when the store can't decide
//! - `holding`: several that the store can't charge in one step
//! - `book`: reservations, and what is given back
//! - `inspect`: usage, leases and the bound
//! - `overshoot`: how much more than it may a meter has

pub(crate) mod absent;
mod audit;
mod book;
pub mod calls;
mod charging;
mod check;
pub(crate) mod definitions;
pub(crate) mod fallback;
pub(crate) mod forward;
pub(crate) mod gossip;
mod held;
pub(crate) mod holding;
pub(crate) mod hot;
mod inspect;
pub(crate) mod keys;
mod leasing;
mod lend;
pub(crate) mod log;
mod manage;
pub(crate) mod overshoot;
mod owned;
pub(crate) mod purses;
pub(crate) mod returning;

pub use calls::{
    Answered, Booked, CheckCall, Checked, Denial, LeaseState, Lent, LentSlack, LimitError, LimitPage,
    LimitState, LogPage, LogPosition, Overshoot, ReserveCall, Source, UsageState,
};
pub use check::Wanted;
pub use gossip::{Opening, ReplicaSource};
pub use hot::HotLimitKey;
pub use lend::LendCall;
