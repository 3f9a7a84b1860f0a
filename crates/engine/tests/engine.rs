//! The engine on a real store, and several of it on a simulated one.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

mod engine {
    mod approximate;
    mod asleep;
    mod audit;
    mod bundles;
    mod counting;
    mod elections;
    mod gossip;
    mod holds;
    mod hot_keys;
    mod inherit;
    mod job_looks;
    mod job_stores;
    mod jobs;
    mod lease_log;
    mod leases;
    mod limits;
    mod locks;
    mod modes;
    mod nodes;
    mod orphans;
    mod outages;
    mod overflow;
    mod owned;
    mod owned_outage;
    mod presence;
    mod promptly;
    mod replica;
    mod replica_crash;
    mod replica_flush;
    mod replica_gaps;
    mod replica_merge;
    mod replica_wide;
    mod replication;
    mod sessions;
    mod shares;
    mod stopping;
}
