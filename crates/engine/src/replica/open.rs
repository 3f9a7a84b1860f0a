//! From a directory to a replica.

use super::ahead::Ahead;
use super::durable::Durable;
use super::flush::Flusher;
use super::lineage::Lineage;
use super::memo::{Memo, Memos};
use super::records::{self, Found, Own};
use super::{CHANGES_MAX, Limits, Replica, Shared, held};
use crate::random::Random;
use baton_core::crdt::{Actor, Clock, Context, Row, RowKey, Seen};
use baton_core::{Commit, Outcome, Record, Ttl, Write};
use baton_store::embedded::time::{RealTime, Time};
use baton_store::embedded::{Embedded, Home};
use baton_store::{Store, StoreError};
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};

/// Records read at a time.
const SCAN_MAX: usize = 4096;

/// How a replica is set up.
#[derive(Clone)]
pub struct Options {
    /// How much it takes.
    pub limits: Limits,
    /// Where the wall clock comes from, for registers.
    pub time: Arc<dyn Time>,
    /// Where its actor comes from.
    pub random: Random,
    /// What its directory is known by.
    pub home: Home,
}

impl Default for Options {
    fn default() -> Self {
        let (limits, random, home) = (Limits::default(), Random::system(), Home::default());
        Self { limits, time: Arc::new(RealTime::default()), random, home }
    }
}

/// Why a replica can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The node has stopped.
    #[error("the node has stopped")]
    Gone,
    /// Its directory can't be opened.
    #[error("the replica's directory: {0}")]
    Directory(#[from] baton_store::embedded::OpenError),
    /// The file system doesn't say which directory it is.
    #[error("the replica's directory can't be looked at: {0}")]
    Home(std::io::Error),
    /// Its records can't be read or written.
    #[error("the replica's records: {0}")]
    Store(#[from] StoreError),
    /// A record was written by a newer version, or is damaged.
    #[error("the replica's record {name} was written by a newer version of Baton, or is damaged")]
    Unreadable {
        /// Which.
        name: String,
    },
}

impl Replica {
    /// Opens the replica in `directory`, which is made if it isn't there. A new run begins: it has an actor that never was.
    pub async fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        let full_bytes = 4 * options.limits.bytes_max as u64;
        let store = baton_store::embedded::Options {
            budget_bytes: 2 * options.limits.bytes_max as u64,
            full_bytes,
            ..baton_store::embedded::Options::default()
        };
        let store = Embedded::open(directory, store)?;
        let home = Home::of(directory).map_err(OpenError::Home)?;
        Self::open_on(store, Options { home, ..options }).await
    }

    /// Opens the replica in a store that nobody else uses. It must have room for several times what the limits allow: a replica
    /// whose store refuses a commit is broken.
    pub async fn open_on(store: Embedded, options: Options) -> Result<Self, OpenError> {
        let mut found = load(&store).await?;
        let actor = Actor(options.random.bytes());
        let wrote = found.own.as_ref().filter(|before| !before.context.is_empty());
        let lineage =
            std::mem::take(&mut found.lineage).follow(options.home, wrote.map(|before| before.actor));
        begin(&store, actor, &found, &lineage).await?;
        if let Some(before) = &found.own {
            found.context.join(&before.context);
        }
        let mut seen = Seen::new(found.context, options.limits.gaps_max);
        let written = Context::clone(seen.context());
        seen.found(found.rows.iter().map(|(_, row)| &**row));
        let holds = Arc::new(Notify::new());
        let mut ahead =
            Ahead::new(actor, seen.clone(), found.clock, found.memos, options.limits, holds.clone());
        found.rows.iter().for_each(|(key, row)| ahead.found(key, row));
        let mut durable = Durable::new(seen);
        found.rows.into_iter().for_each(|(key, row)| durable.put(&key, row));
        let shared = Arc::new(Shared {
            store: store.appender(),
            time: options.time,
            batches: AtomicUsize::new(0),
            flusher: Mutex::new(Flusher::new(written, actor)),
            ahead: Mutex::new(ahead),
            durable: RwLock::new(durable),
            lineage: Mutex::new(lineage),
            callers: Handle::current(),
            holds,
            grown: watch::Sender::new(0),
            changes: broadcast::Sender::new(CHANGES_MAX),
        });
        tokio::spawn(held::keep(Arc::downgrade(&shared), shared.holds.clone()));
        Ok(Self { shared, store })
    }
}

#[derive(Default)]
struct Loaded {
    rows: Vec<(RowKey, Arc<Row>)>,
    context: Context,
    own: Option<Own>,
    lineage: Lineage,
    clock: Clock,
    memos: Memos,
}

async fn load(store: &Embedded) -> Result<Loaded, OpenError> {
    let mut loaded = Loaded::default();
    let mut after = None;
    loop {
        let page = store.scan(records::range(after), SCAN_MAX).await?;
        for record in &page.records {
            loaded
                .take(record)
                .map_err(|_| OpenError::Unreadable { name: record.key.name.escape_ascii().to_string() })?;
        }
        after = page.records.last().map(|record| record.key.name.clone());
        if !page.more {
            return Ok(loaded);
        }
    }
}

impl Loaded {
    fn take(&mut self, record: &Record) -> Result<(), baton_core::codec::Unreadable> {
        match records::found(&record.key.name)? {
            Found::Row(key) => {
                let row = Row::decode(&record.value, key.kind())?;
                self.rows.push((key, Arc::new(row)));
            }
            Found::Own => {
                let own = Own::decode(&record.value)?;
                self.clock.observe(own.highest);
                self.own = Some(own);
            }
            Found::Shard => self.context.join(&Context::decode_own(&record.value)?),
            Found::Lineage => self.lineage = Lineage::decode(&record.value)?,
            Found::Memo { lane, slot } => self.memos.load(Memo::decode(&record.value, lane, slot)?)?,
        }
        Ok(())
    }
}

/// A new run's record takes the place of the last one's, whose dots join those of all others.
async fn begin(store: &Embedded, actor: Actor, found: &Loaded, lineage: &Lineage) -> Result<(), OpenError> {
    let own = Own { actor, highest: found.clock.highest(), context: Context::default() };
    let put = |key, value| Write::Put { key, value, ttl: Ttl::Forever };
    let mut writes = vec![put(records::own(), own.encode()), put(records::lineage(), lineage.encode())];
    if let Some(before) = &found.own {
        let number = records::shard_of(before.actor);
        let mut shard = found.context.only(|actor| records::shard_of(actor) == number);
        shard.join(&before.context);
        writes.push(put(records::shard(number), shard.encode()));
    }
    match store.commit(Commit { checks: Vec::new(), writes }).await? {
        Outcome::Committed { .. } => Ok(()),
        Outcome::Conflict { .. } => unreachable!("nothing was checked"),
    }
}
