//! The servers that are measured, and how a client speaks to each. All durable: synced before they answer.

pub mod bare;
pub mod baton;
pub mod etcd;
pub mod jobs;
pub mod limits;
pub mod postgres;
pub mod redis;
pub mod requests;
pub mod store;
