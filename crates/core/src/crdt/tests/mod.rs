//! The laws of merging, for every kind, over random histories.

mod bytes;
mod clocks;
mod contexts;
mod convergence;
mod heirs;
mod laws;
mod network;
mod outbox;
mod values;
mod world;

use crate::crdt::{Actor, Dot};

fn actor(number: u8) -> Actor {
    Actor([number; 16])
}

fn dot(by: u8, number: u64) -> Dot {
    Dot { actor: actor(by), number }
}
