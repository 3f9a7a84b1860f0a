//! The engine on the real embedded store.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

mod engine {
    mod counting;
    mod locks;
}
