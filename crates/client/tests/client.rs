//! The SDK against a scripted server: lost replies, time-outs, slow answers, and who hears what when.
//! What needs a real server is tested beside the command line.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

#[path = "client/acquire.rs"]
mod acquire;
#[path = "client/hold.rs"]
mod hold;
#[path = "client/scripted.rs"]
mod scripted;
#[path = "client/share.rs"]
mod share;
