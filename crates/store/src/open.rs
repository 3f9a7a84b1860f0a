//! From a store's URL to the store.

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
use crate::breaker::Breaker;
use crate::contract::Store;
use crate::embedded::{Embedded, OpenError, Options};
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "etcd")]
#[path = "etcd.rs"]
mod etcd;
#[cfg(feature = "postgres")]
#[path = "postgres.rs"]
mod postgres;
#[cfg(feature = "redis")]
#[path = "redis.rs"]
mod redis;

/// What [`open`] understands.
pub const SUPPORTED: &str = "embedded:, redis://, redis-sentinel://, redis-cluster:// (rediss… with TLS), \
    postgres://, etcd://, etcds://";

/// What a URL names, by its scheme: also where its feature is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Embedded,
    Redis,
    /// Several servers, each of which has some of the groups.
    RedisCluster,
    Postgres,
    Etcd,
}

impl Kind {
    fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "embedded" => Some(Self::Embedded),
            "redis" | "redis-sentinel" | "rediss" | "rediss-sentinel" => Some(Self::Redis),
            "redis-cluster" | "rediss-cluster" => Some(Self::RedisCluster),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "etcd" | "etcds" => Some(Self::Etcd),
            _ => None,
        }
    }

    /// What `url` names, if it is a server.
    pub fn of_server(url: &str) -> Result<Self, OpenStoreError> {
        let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
        let kind = Self::of(scheme).filter(|kind| *kind != Self::Embedded);
        kind.ok_or_else(|| OpenStoreError::Unsupported { url: scheme.into() })
    }

    /// As in `Guarantees`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis | Self::RedisCluster => "redis",
            Self::Postgres => "postgres",
            Self::Etcd => "etcd",
        }
    }

    /// As in `Guarantees`.
    pub fn charge_spans_groups(self) -> bool {
        self != Self::RedisCluster
    }
}

/// Whether the store that `url` names has a thread of its own in this process, which every call waits for.
pub fn has_own_thread(url: &str) -> bool {
    Kind::of(url.split(':').next().unwrap_or(url)) == Some(Kind::Embedded)
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// No store of that kind.
    #[error("no store for {url:?}; supported: {SUPPORTED}")]
    Unsupported {
        /// What was asked for, without what may be a password.
        url: String,
    },
    /// The embedded store refused.
    #[error("can't open the embedded store: {0}")]
    Embedded(#[from] OpenError),
    /// A server can't be reached now: later it may be.
    #[error("can't reach the store: {0}")]
    Unreachable(String),
    /// A server doesn't let us in, or isn't fit to be a store. Trying again is of no use.
    #[error("can't use the store: {0}")]
    Refused(String),
}

/// Why a server couldn't be opened, sorted where it was seen.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
#[derive(Clone, Debug, thiserror::Error)]
enum Unopened {
    /// It may be there later.
    #[error("{0}")]
    Unreachable(String),
    /// It says no, or what was asked of it can't be.
    #[error("{0}")]
    Refused(String),
}

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
impl Unopened {
    /// What counts of several: that one said no.
    #[cfg(feature = "redis")]
    fn or(self, other: Self) -> Self {
        if matches!(self, Self::Refused(_)) { self } else { other }
    }

    /// The same, as the reason for something.
    #[cfg(feature = "redis")]
    fn because(self, what: &str) -> Self {
        match self {
            Self::Unreachable(detail) => Self::Unreachable(format!("{what}: {detail}")),
            Self::Refused(detail) => Self::Refused(format!("{what}: {detail}")),
        }
    }

    /// The same, said by this server.
    fn said_by(self, server: &str) -> OpenStoreError {
        match self {
            Self::Unreachable(detail) => OpenStoreError::Unreachable(format!("{server}: {detail}")),
            Self::Refused(detail) => OpenStoreError::Refused(format!("{server}: {detail}")),
        }
    }
}

/// What wasn't sorted is a matter of settings.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
impl From<String> for Unopened {
    fn from(detail: String) -> Self {
        Self::Refused(detail)
    }
}

/// Opens the store that `url` names; `embedded:` keeps its files in `data_dir`. Takes as long as an embedded store
/// needs to read its data, or as it takes to reach a server. A server comes with a breaker around it.
pub async fn open(url: &str, data_dir: &Path) -> Result<Arc<dyn Store>, OpenStoreError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match Kind::of(scheme) {
        Some(Kind::Embedded) if rest.is_empty() => {
            let data_dir = data_dir.to_owned();
            let opening = tokio::task::spawn_blocking(move || Embedded::open(&data_dir, Options::default()));
            let interrupted = |_| OpenStoreError::Refused("interrupted".into());
            Ok(Arc::new(opening.await.map_err(interrupted)??))
        }
        #[cfg(feature = "redis")]
        Some(Kind::Redis | Kind::RedisCluster) => Ok(Breaker::new(redis::open(url).await?)),
        #[cfg(feature = "postgres")]
        Some(Kind::Postgres) => Ok(Breaker::new(postgres::open(url).await?)),
        #[cfg(feature = "etcd")]
        Some(Kind::Etcd) => Ok(Breaker::new(etcd::open(url).await?)),
        _ if rest.is_empty() => Err(OpenStoreError::Unsupported { url: scheme.into() }),
        _ => Err(OpenStoreError::Unsupported { url: format!("{scheme}:…") }),
    }
}
