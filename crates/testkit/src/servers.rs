//! Servers of others, each with a directory and a port of its own.

pub mod baton;
pub mod envoy;
pub mod etcd;
pub mod mariadb;
pub mod nginx;
pub mod postgres;
pub mod redis;
