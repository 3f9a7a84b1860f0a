//! How an embedded store is set up.

use super::time::{RealTime, Time};
use std::sync::Arc;

/// What an embedded store may use, and what it does when its disk fails.
#[derive(Clone)]
pub struct Options {
    /// Memory above which what is only remembered is remembered for a shorter time.
    pub budget_bytes: u64,
    /// Memory above which commits that would add to it are refused.
    pub full_bytes: u64,
    /// Bytes of a log segment. A commit that doesn't fit in one is refused; above 1 MiB all do.
    pub segment_bytes: u64,
    /// Log bytes that make a snapshot worthwhile, unless the last snapshot was larger.
    pub snapshot_bytes: u64,
    /// Calls that may wait for the writer; further ones are refused.
    pub queue_max: usize,
    /// Bytes of calls that may wait for the writer; further ones are refused.
    pub queue_bytes_max: usize,
    /// Called when the log can't be written or synced: nobody knows then what is on the disk. It should end the
    /// process; if it returns, the store answers nothing but errors.
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
    /// Where the time comes from.
    pub time: Arc<dyn Time>,
}

/// The exit status of a process whose disk failed: `EX_IOERR`.
pub const EXIT_DISK_FAILED: i32 = 74;

impl Default for Options {
    fn default() -> Self {
        let budget_bytes = 256 << 20;
        Self {
            budget_bytes,
            full_bytes: 4 * budget_bytes,
            segment_bytes: 64 << 20,
            snapshot_bytes: 64 << 20,
            queue_max: 16 << 10,
            queue_bytes_max: 64 << 20,
            on_fatal: Arc::new(|why| {
                tracing::error!(why, "the store can't go on: ending the process");
                std::process::exit(EXIT_DISK_FAILED);
            }),
            time: Arc::new(RealTime::default()),
        }
    }
}
