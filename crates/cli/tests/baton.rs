//! The built binary, end to end: a real server, real commands, real signals.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

#[path = "baton/alerts.rs"]
mod alerts;
#[path = "baton/bundle.rs"]
mod bundle;
#[path = "baton/clocks.rs"]
mod clocks;
#[path = "baton/crash.rs"]
mod crash;
#[path = "baton/crashing_limiters.rs"]
mod crashing_limiters;
#[path = "baton/crdt.rs"]
mod crdt;
#[path = "baton/cron.rs"]
mod cron;
#[path = "baton/elect.rs"]
mod elect;
#[path = "baton/failover.rs"]
mod failover;
#[path = "baton/fence.rs"]
mod fence;
#[path = "baton/footprint.rs"]
mod footprint;
#[path = "baton/gossip.rs"]
mod gossip;
#[path = "baton/hand_overs.rs"]
mod hand_overs;
#[path = "baton/hook.rs"]
mod hook;
#[path = "baton/hot_keys.rs"]
mod hot_keys;
#[path = "baton/http.rs"]
mod http;
#[path = "baton/job_clocks.rs"]
mod job_clocks;
#[path = "baton/job_workers.rs"]
mod job_workers;
#[path = "baton/jobs.rs"]
mod jobs;
#[path = "baton/late_commits.rs"]
mod late_commits;
#[path = "baton/lease_traffic.rs"]
mod lease_traffic;
#[path = "baton/limiter.rs"]
mod limiter;
#[path = "baton/limits.rs"]
mod limits;
#[path = "baton/limits_file.rs"]
mod limits_file;
#[path = "baton/lock.rs"]
mod lock;
#[path = "baton/locks.rs"]
mod locks;
#[path = "baton/loss.rs"]
mod loss;
#[path = "baton/modes.rs"]
mod modes;
#[path = "baton/nodes.rs"]
mod nodes;
#[path = "baton/once.rs"]
mod once;
#[path = "baton/outage.rs"]
mod outage;
#[path = "baton/owners.rs"]
mod owners;
#[path = "baton/process.rs"]
mod process;
#[path = "baton/replica_faults.rs"]
mod replica_faults;
#[path = "baton/replicas.rs"]
mod replicas;
#[path = "baton/rolling.rs"]
mod rolling;
#[path = "baton/round_trips.rs"]
mod round_trips;
#[path = "baton/scheduler_kills.rs"]
mod scheduler_kills;
#[path = "baton/server.rs"]
mod server;
#[path = "baton/shared_limits.rs"]
mod shared_limits;
#[path = "baton/simulate.rs"]
mod simulate;
#[path = "baton/store_outages.rs"]
mod store_outages;
#[path = "baton/store_warnings.rs"]
mod store_warnings;
#[path = "baton/stores.rs"]
mod stores;
#[path = "baton/terminal.rs"]
mod terminal;
#[path = "baton/worker.rs"]
mod worker;
