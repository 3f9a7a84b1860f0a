//! Limits that are defined in a file: read at the start, and again whenever it changes.
//!
//! # Layout
//! - [`parse`]: from text to definitions, all of them or none; pure
//! - [`source`]: the file: its text, and whether it is still the same
//! - [`follow`]: putting the definitions into the store, and looking for changes
//!
//! # What it promises
//! A file with anything wrong in it changes nothing, and is told with the limit, the field and the reason. A definition
//! that is no longer in the file stays in the store: another node's file may have it, or a caller may have put it.

mod follow;
mod parse;
mod source;

pub(crate) use follow::LimitsFile;

use parse::Fault;
use std::fmt;
use std::path::PathBuf;

/// Bytes of a file; a longer one is refused.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Definitions in a file; one with more is refused.
const DEFINITIONS_MAX: usize = 10_000;

/// Why a file of limits can't be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitsFileError {
    path: PathBuf,
    fault: Fault,
}

impl fmt::Display for LimitsFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} can't be used: {}", self.path.display(), self.fault)
    }
}

impl std::error::Error for LimitsFileError {}
