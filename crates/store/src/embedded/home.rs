//! Which directory a store is in, so that a copy can be told from the original.

use std::path::Path;
use std::time::UNIX_EPOCH;

/// What a directory is known by, that its copies don't have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Home {
    /// Its number at the file system.
    pub number: u64,
    /// When it was made.
    pub made_ms: u64,
}

impl Home {
    /// Of a directory. What the file system doesn't say is left out.
    pub fn of(directory: &Path) -> std::io::Result<Self> {
        let metadata = std::fs::metadata(directory)?;
        let made = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let made_ms = made.map_or(0, |made| u64::try_from(made.as_millis()).unwrap_or(0));
        Ok(Self { number: number(&metadata), made_ms })
    }
}

#[cfg(unix)]
fn number(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn number(_: &std::fs::Metadata) -> u64 {
    0
}
