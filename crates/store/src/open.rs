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
    /// A server can't be reached, or isn't fit to be a store.
    #[error("can't use the store: {0}")]
    Refused(String),
}

/// Opens the store that `url` names; `embedded:` keeps its files in `data_dir`. Takes as long as an embedded store
/// needs to read its data, or as it takes to reach a server. A server comes with a breaker around it.
pub async fn open(url: &str, data_dir: &Path) -> Result<Arc<dyn Store>, OpenStoreError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "embedded" if rest.is_empty() => {
            let data_dir = data_dir.to_owned();
            let opening = tokio::task::spawn_blocking(move || Embedded::open(&data_dir, Options::default()));
            let interrupted = |_| OpenStoreError::Refused("interrupted".into());
            Ok(Arc::new(opening.await.map_err(interrupted)??))
        }
        #[cfg(feature = "redis")]
        "redis" | "redis-sentinel" | "redis-cluster" | "rediss" | "rediss-sentinel" | "rediss-cluster" => {
            Ok(Breaker::new(redis::open(url).await?))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Breaker::new(postgres::open(url).await?)),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => Ok(Breaker::new(etcd::open(url).await?)),
        _ if rest.is_empty() => Err(OpenStoreError::Unsupported { url: scheme.into() }),
        _ => Err(OpenStoreError::Unsupported { url: format!("{scheme}:…") }),
    }
}
