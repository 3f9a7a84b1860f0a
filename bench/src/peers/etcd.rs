//! etcd and its lock service, as its own clients use it: a lease for each client, the lock bound to the lease.
//!
//! The messages are the few fields that are needed of etcd's published protocol, so that nothing is generated.

use crate::load::Client;
use anyhow::Context;
use baton_testkit::servers::etcd::Etcd;
use http::uri::PathAndQuery;
use std::time::{Duration, Instant};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const LEASE_SECONDS: i64 = 3600;

/// An etcd of one member, that runs.
pub async fn start() -> anyhow::Result<Etcd> {
    let mut etcd = Etcd::new(1)?;
    etcd.start().await?;
    Ok(etcd)
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnlockResponse {}

/// One user of one lock, on a connection of its own, with a lease of its own.
pub struct LockUser {
    grpc: Grpc<Channel>,
    name: Vec<u8>,
    lease: i64,
}

impl LockUser {
    /// Connects, and gets its lease.
    pub async fn connect(etcd: &Etcd, name: &str) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{}", etcd.endpoints()))?.tcp_nodelay(true);
        let grpc = Grpc::new(endpoint.connect().await?);
        let mut user = Self { grpc, name: name.into(), lease: 0 };
        let asked = LeaseGrantRequest { ttl: LEASE_SECONDS, id: 0 };
        let granted: LeaseGrantResponse = user.call("/etcdserverpb.Lease/LeaseGrant", asked).await?;
        user.lease = granted.id;
        Ok(user)
    }

    /// Waits for the lock; gives the key that holds it.
    pub async fn lock(&mut self) -> anyhow::Result<Vec<u8>> {
        let asked = LockRequest { name: self.name.clone(), lease: self.lease };
        let locked: LockResponse = self.call("/v3lockpb.Lock/Lock", asked).await?;
        Ok(locked.key)
    }

    /// Gives it up.
    pub async fn unlock(&mut self, key: Vec<u8>) -> anyhow::Result<()> {
        let UnlockResponse {} = self.call("/v3lockpb.Lock/Unlock", UnlockRequest { key }).await?;
        Ok(())
    }

    async fn call<Asked, Answered>(&mut self, path: &'static str, asked: Asked) -> anyhow::Result<Answered>
    where
        Asked: prost::Message + Default + 'static,
        Answered: prost::Message + Default + 'static,
    {
        self.grpc.ready().await.context("etcd isn't ready")?;
        let path = PathAndQuery::from_static(path);
        let codec = ProstCodec::<Asked, Answered>::default();
        Ok(self.grpc.unary(tonic::Request::new(asked), path, codec).await?.into_inner())
    }
}

/// Lock and unlock, over and over.
pub struct Pairs(LockUser);

impl Pairs {
    /// So many of them, each with a lock of its own.
    pub async fn connect(etcd: &Etcd, clients: usize) -> anyhow::Result<Vec<Self>> {
        let mut users = Vec::with_capacity(clients);
        for client in 0..clients {
            users.push(Self(LockUser::connect(etcd, &format!("pair:{client}")).await?));
        }
        Ok(users)
    }
}

impl Client for Pairs {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let key = self.0.lock().await?;
        self.0.unlock(key).await?;
        Ok(began.elapsed())
    }
}
