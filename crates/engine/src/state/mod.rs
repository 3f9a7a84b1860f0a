//! What a node keeps on a disk of its own, for when the store is away: what it owes the store, and what it last knew of limits.
//!
//! # Layout
//! - `frames`: how these files are written
//! - `spool`: what was admitted without the store
//! - `copy`: definitions of limits, as they were last known
//!
//! The directory is made when there is something to keep. Nodes may share one: each writes a spool of its own, and whoever starts
//! takes over those whose node is gone.

mod copy;
mod frames;
mod spool;

pub(crate) use copy::Copied;
pub(crate) use spool::{Left, Line, Owed, Spool, SpoolError};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Why a state directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It can't be read.
    #[error("the state directory {path} can't be read: {error}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file in it was written by a newer version.
    #[error(
        "{path} has format {found}, this version of Baton reads up to format {supported}: use a newer one, or another --state"
    )]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its format.
        found: u8,
        /// What this version knows.
        supported: u8,
    },
}

/// A state directory, as it was found. Cheap to clone.
#[derive(Clone)]
pub struct State(Arc<Found>);

struct Found {
    directory: PathBuf,
    /// What nodes that are gone have left. Taken by the first engine that is started with it.
    left: Mutex<Vec<Left>>,
    copied: Option<Copied>,
}

impl State {
    /// Looks at a directory, which needn't be there. What a newer version has written is refused.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        let unreadable = |error| StateError::Unreadable { path: directory.into(), error };
        let names = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries
                .and_then(|entries| {
                    entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()
                })
                .map_err(unreadable)?,
        };
        let names: Vec<_> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
        Ok(Self(Arc::new(Found {
            directory: directory.into(),
            left: Mutex::new(spool::left(directory, &names)?),
            copied: copy::read(directory)?,
        })))
    }

    /// What is owed by nodes that are gone; only once.
    pub(crate) fn take_left(&self) -> Vec<Left> {
        std::mem::take(&mut *self.0.left.lock().expect("no panic while held"))
    }

    /// The definitions that were last known.
    pub(crate) fn copied(&self) -> Option<&Copied> {
        self.0.copied.as_ref()
    }

    /// A spool of one's own; `name` is nobody else's.
    pub(crate) fn spool(&self, name: u64) -> Spool {
        Spool::new(self.0.directory.clone(), name)
    }

    /// Writes down what definitions are known; `name` is nobody else's.
    pub(crate) fn copy(&self, name: u64, copied: &Copied) -> io::Result<()> {
        copy::write(&self.0.directory, name, copied)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("State").field(&self.0.directory).finish()
    }
}

/// Makes names in a directory durable.
fn sync_names(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}
