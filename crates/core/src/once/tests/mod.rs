//! The rules of once: tables for each answer, and a random walk for what must always hold.

mod answers;
mod random;
mod world;
