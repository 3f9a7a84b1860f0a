//! What can be set, and what is refused.

use crate::limits_file::LimitsFileError;
use crate::replication::{ClusterSecret, Peers};
use crate::targets::TargetConfig;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The port that nothing else was known to use.
pub const DEFAULT_PORT: u16 = 7117;

const SYNC_MIN: Duration = Duration::from_millis(10);
const SYNC_MAX: Duration = Duration::from_secs(3600);

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where other nodes reach this one, as host and port; where it listens if that says enough.
    pub advertise: Option<String>,
    /// Where an embedded store keeps its files.
    pub data: PathBuf,
    /// Where this node keeps what has to outlive it when a store that is a server is away, and its replica; in `data` if nothing is said.
    pub state: Option<PathBuf>,
    /// The store's URL.
    pub store: String,
    /// A file that defines limits, and is read again when it changes.
    pub limits: Option<PathBuf>,
    /// Where the other replicas of what needs no agreement are.
    pub peers: Peers,
    /// How often each of them is asked what was missed.
    pub sync: Duration,
    /// What replicas know each other by; the store's own key if nothing is said.
    pub cluster_secret: Option<ClusterSecret>,
    /// Whether an address that others can reach is fine without authentication.
    pub insecure: bool,
    /// What jobs may call and start.
    pub targets: TargetConfig,
    /// How the engine is set up.
    pub engine: baton_engine::Config,
    /// Connections at a time; more are told to come back.
    pub max_connections: usize,
    /// Acquires that may wait at a time, over all locks.
    pub max_waiting: usize,
    /// Calls at a time that neither wait, renew nor release.
    pub max_in_flight: usize,
    /// Renewals and releases at a time. They have room of their own, so that nothing else can starve them (O9).
    pub max_urgent: usize,
    /// Watches at a time.
    pub max_watchers: usize,
    /// A connection on which no request arrives for this long is closed, and so is one whose request is sent slower.
    pub idle: Duration,
    /// A request's body has to arrive within this.
    pub body: Duration,
    /// How long stopping may take.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into(),
            advertise: None,
            data: "baton-data".into(),
            state: None,
            store: "embedded:".into(),
            limits: None,
            peers: Peers::Store,
            sync: baton_engine::replication::SYNC,
            cluster_secret: None,
            insecure: false,
            targets: TargetConfig::default(),
            engine: baton_engine::Config::default(),
            max_connections: 32_768,
            max_waiting: 20_000,
            max_in_flight: 4_096,
            max_urgent: 16_384,
            max_watchers: 1_024,
            idle: Duration::from_secs(75),
            body: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

/// What a configuration is refused with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Others could reach the port, and there is no authentication yet.
    #[error(
        "refusing to listen on {0}: there is no authentication yet, so everybody who reaches that address could \
         take, see and force every lock; listen on a loopback address such as 127.0.0.1, or say --insecure"
    )]
    Exposed(SocketAddr),
    /// Other nodes couldn't reach this one there.
    #[error("--advertise {0:?} is no address: it must be a host and a port, such as 10.0.0.7:7117")]
    Advertise(String),
    /// Replicas that share no store couldn't know each other.
    #[error(
        "--peers needs a secret that all of them know: put the same one, of at least {min} bytes, into a file for \
         --cluster-secret-file, or into BATON_CLUSTER_SECRET", min = baton_core::crdt::sync::proof::SECRET_BYTES_MIN
    )]
    NoSecret,
    /// Replicas would ask each other without a pause, or hardly ever.
    #[error("--sync must be between 10 ms and 1 h")]
    Sync,
    /// The file of limits can't be used.
    #[error(transparent)]
    Limits(#[from] LimitsFileError),
}

impl Config {
    /// Whether the store has a thread of its own in this process, which every call waits for.
    pub fn store_has_own_thread(&self) -> bool {
        baton_store::has_own_thread(&self.store)
    }

    /// Whether it may be served.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(address) = &self.advertise
            && !is_host_and_port(address)
        {
            return Err(ConfigError::Advertise(address.clone()));
        }
        if matches!(&self.peers, Peers::Listed(places) if !places.is_empty()) && self.cluster_secret.is_none()
        {
            return Err(ConfigError::NoSecret);
        }
        if !(SYNC_MIN..=SYNC_MAX).contains(&self.sync) {
            return Err(ConfigError::Sync);
        }
        if self.listen.ip().to_canonical().is_loopback() || self.insecure {
            return Ok(());
        }
        Err(ConfigError::Exposed(self.listen))
    }

    /// Where this node's replica is: what it keeps without any store.
    pub fn replica(&self) -> PathBuf {
        self.state.as_ref().unwrap_or(&self.data).join("replica")
    }

    /// Where other nodes reach this one, which listens at `address`; nothing if nobody knows.
    pub(crate) fn reached_at(&self, address: SocketAddr) -> Option<Arc<str>> {
        let listens = || (!address.ip().is_unspecified()).then(|| address.to_string());
        self.advertise.clone().or_else(listens).map(Into::into)
    }
}

pub(crate) fn is_host_and_port(address: &str) -> bool {
    let is_authority = address.parse::<hyper::http::uri::Authority>();
    is_authority.is_ok_and(|it| it.port_u16().is_some_and(|port| port > 0) && !address.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_nodes_are_told_where_it_listens_unless_that_says_nothing_or_it_is_said_otherwise() {
        let reached_at = |listen: &str, advertise: Option<&str>| {
            let config = Config { advertise: advertise.map(Into::into), insecure: true, ..Config::default() };
            config.check().map(|()| config.reached_at(listen.parse().unwrap()).map(|it| it.to_string()))
        };
        assert_eq!(reached_at("127.0.0.1:7117", None), Ok(Some("127.0.0.1:7117".into())));
        assert_eq!(reached_at("[::1]:7117", None), Ok(Some("[::1]:7117".into())));
        assert_eq!(reached_at("0.0.0.0:7117", None), Ok(None));
        assert_eq!(reached_at("[::]:7117", None), Ok(None));
        assert_eq!(reached_at("0.0.0.0:7117", Some("node-1:7117")), Ok(Some("node-1:7117".into())));
        for wrong in ["", "node-1", "node-1:0", "node-1:port", "http://node-1:7117", "me@node-1:7117"] {
            assert_eq!(reached_at("0.0.0.0:7117", Some(wrong)), Err(ConfigError::Advertise(wrong.into())));
        }
    }

    #[test]
    fn an_address_that_others_can_reach_needs_to_be_asked_for() {
        for (listen, loopback) in [
            ("127.0.0.1:0", true),
            ("127.9.9.9:1", true),
            ("[::1]:0", true),
            ("[::ffff:127.0.0.1]:0", true),
            ("0.0.0.0:0", false),
            ("[::]:0", false),
            ("192.168.1.4:7117", false),
        ] {
            let config = Config { listen: listen.parse().unwrap(), ..Config::default() };
            assert_eq!(config.check().is_ok(), loopback, "{listen}");
            assert!(Config { insecure: true, ..config }.check().is_ok(), "{listen}");
        }
    }
}
