//! From a store's URL to the store.

use crate::contract::Store;
use crate::embedded::{Embedded, OpenError, Options};
use std::path::Path;
use std::sync::Arc;

/// What [`open`] understands.
pub const SUPPORTED: &str = "embedded:";

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
}

/// Opens the store that `url` names; `embedded:` keeps its files in `data_dir`. Blocks while an embedded store
/// reads its data.
pub fn open(url: &str, data_dir: &Path) -> Result<Arc<dyn Store>, OpenStoreError> {
    match url.split_once(':') {
        Some(("embedded", "")) => Ok(Arc::new(Embedded::open(data_dir, Options::default())?)),
        Some((scheme, _)) => Err(OpenStoreError::Unsupported { url: format!("{scheme}:…") }),
        None => Err(OpenStoreError::Unsupported { url: url.into() }),
    }
}
