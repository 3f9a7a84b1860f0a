//! What goes over the wire: bodies, limits on them, and error codes, shared by the server and the SDK.
//!
//! # Layout
//! - [`error`]: every error code, with its HTTP status and its CLI exit code
//! - [`limits`]: what input may look like; the checks that both sides run
//! - [`lock`]: the bodies of `/v1/locks`; [`mode`]: how a lock is held
//! - [`bundle`]: the bodies of `/v1/locks:acquireAll`
//! - [`election`]: the bodies of `/v1/elections`
//! - [`once`]: the bodies of `/v1/once`
//! - [`fence`]: the bodies of `/v1/fences`
//! - [`mod@limit`]: the bodies of `/v1/limits`; [`rate_limit`]: the header fields that say what is left
//! - [`job`]: the bodies of `/v1/jobs` and `/v1/runs`; [`worker`]: of `/v1/workers`, and what is said of attempts
//! - [`calendar`]: the bodies of `/v1/calendars`, and how jobs use them
//! - [`preview`]: the bodies of `/v1/jobs:preview`
//! - [`crdt`]: the bodies of `/v1/counters`, `/v1/sets`, `/v1/registers`, `/v1/maps` and `/v1/presence`
//! - [`batch`]: several lock calls in one request, answered as they complete
//! - [`cluster`]: the bodies of `/v1/nodes`, `/v1/ring` and `/v1/hotkeys`
//! - [`replication`]: the body of `/v1/replication`
//! - [`status`]: the body of `/v1/status`

pub mod batch;
pub mod bundle;
pub mod calendar;
pub mod cluster;
pub mod crdt;
pub mod election;
pub mod error;
pub mod fence;
pub mod job;
pub mod limit;
pub mod limits;
pub mod lock;
pub mod mode;
pub mod once;
pub mod preview;
pub mod rate_limit;
pub mod replication;
pub mod status;
pub mod worker;

pub use error::{ErrorBody, ErrorCode, Position};
