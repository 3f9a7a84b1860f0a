//! What is on the disk, in memory: what readers see.

use baton_core::crdt::sync::{BUCKETS, Rows, Shown, bucket_of};
use baton_core::crdt::{Context, Row, RowKey, Seen};
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// A row, and its hash.
struct Kept {
    row: Arc<Row>,
    hash: u64,
}

pub(super) struct Durable {
    rows: HashMap<RowKey, Kept, foldhash::fast::RandomState>,
    /// Their names: most writes are to rows that are there, and leave it as it is.
    order: BTreeSet<RowKey>,
    buckets: Vec<Bucket>,
    seen: Seen,
}

#[derive(Clone, Default)]
struct Bucket {
    keys: BTreeSet<RowKey>,
    /// The sum of its rows' hashes.
    hash: u64,
}

impl Durable {
    pub fn new(seen: Seen) -> Self {
        let buckets = vec![Bucket::default(); BUCKETS];
        Self { rows: HashMap::default(), order: BTreeSet::new(), buckets, seen }
    }

    /// What was seen and may be told of.
    pub fn context(&self) -> &Arc<Context> {
        self.seen.context()
    }

    /// Whether as much was seen, told of or not.
    pub fn has_seen(&self, context: &Context) -> bool {
        self.seen.covers(context)
    }

    /// Dots of rows that nobody is told of.
    pub fn imply(&mut self, dots: &Context) {
        self.seen.imply(dots, || self.rows.values().map(|kept| &*kept.row));
    }

    /// What came by what is durable now.
    pub fn cover(&mut self, covers: &Context) {
        self.seen.adopt(covers);
    }

    pub fn put(&mut self, key: &RowKey, row: Arc<Row>) {
        let bucket = &mut self.buckets[bucket_of(key)];
        if row.is_empty() {
            if let Some(gone) = self.rows.remove(key) {
                bucket.hash = bucket.hash.wrapping_sub(gone.hash);
                bucket.keys.remove(key);
                self.order.remove(key);
            }
            return;
        }
        let hash = row.hash(key);
        bucket.hash = bucket.hash.wrapping_add(hash);
        if let Some(known) = self.rows.get_mut(key) {
            bucket.hash = bucket.hash.wrapping_sub(known.hash);
            *known = Kept { row, hash };
        } else {
            bucket.keys.insert(key.clone());
            self.order.insert(key.clone());
            self.rows.insert(key.clone(), Kept { row, hash });
        }
    }

    pub fn row(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key).map(|kept| &*kept.row)
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Rows in order from `from`, or from after it.
    pub fn rows_from(&self, from: Bound<&RowKey>) -> impl Iterator<Item = (&RowKey, &Row)> {
        self.order.range((from, Bound::Unbounded)).map(|key| (key, &*self.rows[key].row))
    }

    /// The first row whose name isn't before these bytes.
    pub fn first_from(&self, from: &[u8]) -> Option<(&RowKey, &Row)> {
        self.rows_from(Bound::Included(&RowKey::place(from))).next()
    }

    /// The names of this replica's rows in what another has shown, but for those that are the same there.
    pub fn keys_in(&self, shown: &Shown) -> Vec<RowKey> {
        let from = shown.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let to = shown.to.as_ref().map_or(Bound::Unbounded, Bound::Included);
        let keys = self.buckets[shown.bucket].keys.range((from, to));
        keys.filter(|key| !shown.same.contains(*key)).cloned().collect()
    }
}

impl Rows for Durable {
    fn context(&self) -> &Context {
        self.seen.context()
    }

    fn implied(&self) -> &Context {
        self.seen.implied()
    }

    fn bucket(&self, bucket: usize) -> u64 {
        self.buckets[bucket].hash
    }

    fn rows<'a>(
        &'a self,
        bucket: usize,
        after: Option<&'a RowKey>,
    ) -> impl Iterator<Item = (&'a RowKey, &'a Row, u64)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.buckets[bucket].keys.range((from, Bound::Unbounded)).map(|key| {
            let kept = &self.rows[key];
            (key, &*kept.row, kept.hash)
        })
    }
}
