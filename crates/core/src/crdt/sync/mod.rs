//! How two replicas find out what one of them has missed, and send little else (D3).
//!
//! # Layout
//! - [`message`]: what is asked and answered, as bytes
//! - [`answer()`]: the side that is asked
//! - [`repair`]: the side that asks
//! - [`proof`]: that both are of the same cluster
//! - [`coalesce`]: what is told as it happens, put together
//!
//! # How
//! Rows are spread over buckets, and every bucket has a hash, the sum of its rows'. One hash over everything ends most exchanges at
//! once. Where it differs, the asking side gets the other's context and the hashes of groups of buckets, then of the buckets in groups
//! that differ, and then for these sends its own rows' hashes: back come the rows that it hasn't got like that, and which of
//! its own the other doesn't have.
//!
//! # Why it is sound
//! The context is the first thing that the asked side shows, so everything that follows is as old or younger: a dot that the context covers
//! and a later row doesn't have was removed. It is adopted in the end. Rows that are looked at later are compared by the context of that
//! moment, which comes with them if it has grown: else a write that came meanwhile would be taken in without what it replaced. All that holds within one run of the asked replica only, since a directory may be put
//! back to an older copy between two runs: every question names the run it is for, and another run refuses it.

pub mod answer;
pub mod coalesce;
pub mod message;
pub mod proof;
pub mod repair;

pub use answer::answer;
pub use coalesce::Outbox;
pub use message::{Answer, Ask, Page, Range, Reply, Request};
pub use repair::{Adoption, Next, Repair, Shown};

use super::context::Context;
use super::kind::RowKey;
use super::row::Row;

/// Hashes that replicas compare: rows are spread over as many buckets.
pub const BUCKETS: usize = 1024;
/// Buckets that are compared together first.
pub const GROUP_BUCKETS: usize = 32;
/// As many groups there are.
pub const GROUPS: usize = BUCKETS / GROUP_BUCKETS;
/// Bytes of rows in one answer, about; one row may be more.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// The most bytes of a request or an answer: what is larger isn't read.
pub const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Which bucket a row is in.
pub fn bucket_of(key: &RowKey) -> usize {
    (key.hash() % BUCKETS as u64) as usize
}

/// A replica's rows, as it shows them to others.
pub trait Rows {
    /// All that was seen and may be told of.
    fn context(&self) -> &Context;
    /// What was seen besides, and only rows speak for.
    fn implied(&self) -> &Context;
    /// The hash of a bucket: the sum of its rows' hashes.
    fn bucket(&self, bucket: usize) -> u64;
    /// The rows of a bucket after a name, in order, with their hashes.
    fn rows<'a>(
        &'a self,
        bucket: usize,
        after: Option<&'a RowKey>,
    ) -> impl Iterator<Item = (&'a RowKey, &'a Row, u64)>;
}

/// One hash over everything: equal means equal rows and contexts.
pub fn whole(rows: &impl Rows) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.update(&rows.context().encode());
    (0..BUCKETS).for_each(|bucket| hasher.update(&rows.bucket(bucket).to_le_bytes()));
    hasher.digest()
}

/// A hash of a context, that all who have seen the same agree on.
pub fn context_hash(context: &Context) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&context.encode())
}

/// The hash of a group of buckets.
pub fn group(rows: &impl Rows, group: usize) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    buckets_of(group).for_each(|bucket| hasher.update(&rows.bucket(bucket).to_le_bytes()));
    hasher.digest()
}

/// The buckets of a group.
pub fn buckets_of(group: usize) -> core::ops::Range<usize> {
    group * GROUP_BUCKETS..(group + 1) * GROUP_BUCKETS
}
