//! The SDK against a scripted server: lost replies, time-outs, slow answers, and who hears what when; and its fences
//! against real databases. What needs a real Baton is tested beside the command line.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

#[path = "client/acquire.rs"]
mod acquire;
#[cfg(feature = "blocking")]
#[path = "client/blocking.rs"]
mod blocking;
#[path = "client/bundle.rs"]
mod bundle;
#[path = "client/database.rs"]
mod database;
#[path = "client/gate.rs"]
mod gate;
#[path = "client/hold.rs"]
mod hold;
#[cfg(feature = "tower")]
#[path = "client/layer.rs"]
mod layer;
#[path = "client/limit.rs"]
mod limit;
#[cfg(feature = "tower")]
#[path = "client/limited.rs"]
mod limited;
#[path = "client/limiter.rs"]
mod limiter;
#[path = "client/scripted.rs"]
mod scripted;
#[path = "client/share.rs"]
mod share;
#[path = "client/sql.rs"]
mod sql;
