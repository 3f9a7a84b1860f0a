//! Layers for tower, and so for axum (feature `tower`).
//!
//! # Layout
//! - `holder`: routes that only the holder of a lease serves
//! - `limited`: routes that a key may use only so often

mod holder;
mod limited;

pub use holder::{HolderOnly, HolderOnlyService, Holding, LeaseSlot};
pub use limited::{Limited, LimitedService};
