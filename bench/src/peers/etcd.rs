//! etcd and its lock service, as its own clients use it: a lease for each client, the lock bound to the lease.
//!
//! The messages are the few fields that are needed of etcd's published protocol, so that nothing is generated.

use crate::load::Client;
use crate::machine::Place;
use crate::process::{Process, free_address};
use anyhow::Context;
use http::uri::PathAndQuery;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const LEASE_SECONDS: i64 = 3600;

/// An etcd of one member.
pub struct Etcd {
    /// The process.
    pub process: Process,
    _directory: tempfile::TempDir,
}

impl Etcd {
    /// Starts one on an empty directory.
    pub async fn start(place: &Place) -> anyhow::Result<Self> {
        let directory = place.directory()?;
        let address = free_address()?;
        let (client, peer) = (format!("http://{address}"), format!("http://{}", free_address()?));
        let data = directory.path().join("data");
        let cluster = format!("default={peer}");
        let arguments = [
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
            "--initial-cluster",
            &cluster,
            "--logger",
            "zap",
            "--log-level",
            "error",
            "--data-dir",
        ];
        let arguments = arguments.iter().map(AsRef::as_ref).chain([data.as_os_str()]);
        let process = Process::start("etcd", Path::new("etcd"), arguments, address, directory.path())?;
        let process = process.listening(directory.path()).await?;
        let etcd = Self { process, _directory: directory };
        // It listens before it has elected itself.
        LockUser::connect(etcd.process.address, "first").await?;
        Ok(etcd)
    }
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
    pub async fn connect(address: SocketAddr, name: &str) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
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
pub struct Pairs(pub LockUser);

impl Client for Pairs {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let key = self.0.lock().await?;
        self.0.unlock(key).await?;
        Ok(began.elapsed())
    }
}
