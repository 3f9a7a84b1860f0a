//! The built binary, end to end: a real server, real commands, real signals.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

#[path = "baton/crash.rs"]
mod crash;
#[path = "baton/http.rs"]
mod http;
#[path = "baton/lock.rs"]
mod lock;
#[path = "baton/locks.rs"]
mod locks;
#[path = "baton/loss.rs"]
mod loss;
#[path = "baton/process.rs"]
mod process;
#[path = "baton/server.rs"]
mod server;
#[path = "baton/terminal.rs"]
mod terminal;
