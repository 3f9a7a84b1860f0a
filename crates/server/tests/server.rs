//! The server as its clients see it: over TCP, on the embedded store.
#![allow(clippy::unwrap_used, reason = "a test that can't go on should say so")]

#[path = "server/batches.rs"]
mod batches;
#[path = "server/bundles.rs"]
mod bundles;
#[path = "server/calendars.rs"]
mod calendars;
#[path = "server/client.rs"]
mod client;
#[path = "server/cluster.rs"]
mod cluster;
#[path = "server/contract.rs"]
mod contract;
#[path = "server/crdt.rs"]
mod crdt;
#[path = "server/elections.rs"]
mod elections;
#[path = "server/envoy.rs"]
mod envoy;
#[path = "server/fences.rs"]
mod fences;
#[path = "server/fuzz.rs"]
mod fuzz;
#[path = "server/gossip.rs"]
mod gossip;
#[path = "server/harness.rs"]
mod harness;
#[path = "server/http2.rs"]
mod http2;
#[path = "server/identities.rs"]
mod identities;
#[path = "server/job_fuzz.rs"]
mod job_fuzz;
#[path = "server/jobs.rs"]
mod jobs;
#[path = "server/limits.rs"]
mod limits;
#[path = "server/limits_file.rs"]
mod limits_file;
#[path = "server/lists.rs"]
mod lists;
#[path = "server/modes.rs"]
mod modes;
#[path = "server/once.rs"]
mod once;
#[path = "server/operations.rs"]
mod operations;
#[path = "server/overload.rs"]
mod overload;
#[path = "server/previews.rs"]
mod previews;
#[path = "server/quotas.rs"]
mod quotas;
#[path = "server/refusals.rs"]
mod refusals;
#[path = "server/stopping.rs"]
mod stopping;
#[path = "server/store_faults.rs"]
mod store_faults;
#[path = "server/waiting.rs"]
mod waiting;
#[path = "server/watches.rs"]
mod watches;
