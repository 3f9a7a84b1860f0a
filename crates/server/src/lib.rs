//! Baton over HTTP and gRPC: parses, bounds, answers. Knows HTTP, no rules.
//!
//! # Layout
//! - [`config`]: what can be set
//! - [`run()`]: from a configuration to a served store, until a signal
//! - `opening`: opening the store, or starting without it
//! - [`server`]: listening, connections, draining
//! - [`http`]: the paths; one file a primitive, and what they share
//! - [`grpc`], `http2`: Envoy's rate limit service, and the connections it comes on
//! - `limits_file`: limits that are defined in a file
//! - `peers`: other nodes
//! - `replica`: this node's own copy of what needs no agreement, opened when it is used; [`replication`]: the others
//! - [`gate`]: bulkheads, so that waiting never starves releasing
//! - [`metrics`]: what is counted about requests
//! - [`targets`]: what the server runs itself when a job is due; [`jobs_file`]: a file of jobs, for the command line
//! - [`telemetry`]: log lines, and what requests are called in them
//!
//! # What it promises
//! Whatever a client sends is answered with a stable code and the field at fault, or takes effect; a client that
//! goes away takes its call with it; nothing here grows without a bound.

pub mod config;
pub mod gate;
pub mod grpc;
pub mod http;
mod http2;
pub mod jobs_file;
mod limits_file;
pub mod metrics;
mod opening;
mod peers;
mod replica;
pub mod replication;
mod run;
pub mod server;
mod socket;
pub mod targets;
pub mod telemetry;

pub use config::{Config, ConfigError};
pub use limits_file::LimitsFileError;
pub use run::{RunError, run};
pub use server::Server;
