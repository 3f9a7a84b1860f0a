//! The stores, from the outside.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "store/append.rs"]
mod append;
#[path = "store/breaker.rs"]
mod breaker;
#[path = "store/crash.rs"]
mod crash;
#[path = "store/embedded.rs"]
mod embedded;
#[cfg(feature = "etcd")]
#[path = "store/etcd.rs"]
mod etcd;
#[path = "store/kill.rs"]
mod kill;
#[cfg(feature = "postgres")]
#[path = "store/postgres.rs"]
mod postgres;
#[cfg(feature = "postgres")]
#[path = "store/postgres_failover.rs"]
mod postgres_failover;
#[cfg(feature = "postgres")]
#[path = "store/postgres_lean.rs"]
mod postgres_lean;
#[cfg(feature = "postgres")]
#[path = "store/postgres_schema.rs"]
mod postgres_schema;
#[cfg(feature = "redis")]
#[path = "store/redis.rs"]
mod redis;
#[cfg(feature = "redis")]
#[path = "store/redis_charge.rs"]
mod redis_charge;
#[cfg(feature = "redis")]
#[path = "store/redis_failover.rs"]
mod redis_failover;
#[cfg(feature = "redis")]
#[path = "store/redis_together.rs"]
mod redis_together;
#[path = "store/secured.rs"]
mod secured;
#[path = "store/simulated.rs"]
mod simulated;
