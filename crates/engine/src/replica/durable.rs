//! What is on the disk, in memory: what readers see.

use super::Page;
use baton_core::crdt::{Context, Row, RowKey};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Hashes that replicas compare: rows are spread over as many buckets.
pub const BUCKETS: usize = 1024;

/// A row, and its hash.
struct Kept {
    row: Row,
    hash: u64,
}

pub(super) struct Durable {
    rows: BTreeMap<RowKey, Kept>,
    buckets: Vec<Bucket>,
    pub context: Arc<Context>,
}

#[derive(Clone, Default)]
struct Bucket {
    keys: BTreeSet<RowKey>,
    /// The sum of its rows' hashes.
    hash: u64,
}

/// What a replica has, in short: equal digests mean equal rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Digest {
    /// All that was seen. Not younger than the hashes, so it may be joined once all buckets that differ were compared.
    pub context: Arc<Context>,
    /// One for each bucket.
    pub hashes: Vec<u64>,
}

pub(super) fn bucket_of(key: &RowKey) -> usize {
    (key.hash() % BUCKETS as u64) as usize
}

impl Durable {
    pub fn new(context: Context) -> Self {
        Self { rows: BTreeMap::new(), buckets: vec![Bucket::default(); BUCKETS], context: Arc::new(context) }
    }

    pub fn put(&mut self, key: RowKey, row: Row) {
        let bucket = &mut self.buckets[bucket_of(&key)];
        if row.is_empty() {
            if let Some(gone) = self.rows.remove(&key) {
                bucket.hash = bucket.hash.wrapping_sub(gone.hash);
                bucket.keys.remove(&key);
            }
            return;
        }
        let hash = row.hash(&key);
        bucket.hash = bucket.hash.wrapping_add(hash);
        if let Some(known) = self.rows.get_mut(&key) {
            bucket.hash = bucket.hash.wrapping_sub(known.hash);
            *known = Kept { row, hash };
        } else {
            bucket.keys.insert(key.clone());
            self.rows.insert(key, Kept { row, hash });
        }
    }

    pub fn row(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key).map(|kept| &kept.row)
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Rows in order from `from`, or from after it.
    pub fn rows_from(&self, from: Bound<&RowKey>) -> impl Iterator<Item = (&RowKey, &Row)> {
        self.rows.range((from, Bound::Unbounded)).map(|(key, kept)| (key, &kept.row))
    }

    /// The first row whose name isn't before these bytes.
    pub fn first_from(&self, from: &[u8]) -> Option<(&RowKey, &Row)> {
        self.rows_from(Bound::Included(&RowKey::place(from))).next()
    }

    pub fn digest(&self) -> Digest {
        Digest {
            context: self.context.clone(),
            hashes: self.buckets.iter().map(|bucket| bucket.hash).collect(),
        }
    }

    /// The rows of a bucket, in order, after one: as many as fit in about so many bytes.
    pub fn page(&self, bucket: usize, after: Option<RowKey>, bytes_max: usize) -> Page {
        let mut page = Page { bucket, after, rows: Vec::new(), to: None };
        let from = page.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut bytes = 0;
        for key in self.buckets[bucket].keys.range((from, Bound::Unbounded)) {
            let row = &self.rows[key].row;
            bytes += key.bytes().len() + row.size();
            if bytes > bytes_max && !page.rows.is_empty() {
                page.to = page.rows.last().map(|(key, _): &(RowKey, Row)| key.clone());
                break;
            }
            page.rows.push((key.clone(), row.clone()));
        }
        page
    }

    /// The names of this replica's rows in what a page covers.
    pub fn keys_in(&self, page: &Page) -> Vec<RowKey> {
        let from = page.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let to = page.to.as_ref().map_or(Bound::Unbounded, Bound::Included);
        self.buckets[page.bucket].keys.range((from, to)).cloned().collect()
    }
}
