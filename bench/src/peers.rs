//! The servers that are measured, and how a client speaks to each. All durable: synced before they answer.

pub mod baton;
pub mod etcd;
pub mod redis;
