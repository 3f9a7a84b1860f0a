//! What goes over the wire: bodies, limits on them, and error codes, shared by the server and the SDK.
//!
//! # Layout
//! - [`error`]: every error code, with its HTTP status and its CLI exit code
//! - [`limits`]: what input may look like; the checks that both sides run
//! - [`lock`]: the bodies of `/v1/locks`
//! - [`batch`]: several lock calls in one request, answered as they complete
//! - [`status`]: the body of `/v1/status`

pub mod batch;
pub mod error;
pub mod limits;
pub mod lock;
pub mod status;

pub use error::{ErrorBody, ErrorCode};
