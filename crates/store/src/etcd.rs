//! etcd: one transaction a commit, its own revisions, and its leases for what lives for a time.
//!
//! # Layout
//! - `url`: from a URL to where and how to connect
//! - `wire`, `client`: the few messages that are used; calls with deadlines, and how failures are sorted
//! - `keys`, `value`: a record as a key and a value of etcd
//! - `lease`, `tally`: times to live; how many records have one in common
//! - `plan`, `commit`: a commit as a transaction; what is not known is guessed, and read when the guess was wrong
//! - `group`: transactions that come together go together
//! - `turns`: charges of one meter, one after the other
//! - `follow`: hints, from one watch
//!
//! # Promises
//! - A commit is one transaction of etcd, after the lease it needs was granted: at most two round trips, one more
//!   for each wrong guess, all within one deadline. Nobody waits for company, but who comes while others are under way
//!   goes together with who else does.
//! - Revisions are etcd's, which only grow. A commit that changes nothing puts a mark, to have one. Commits without a
//!   key in common may have the same.
//! - etcd's leader decides expiry. No lease is granted before the call that needs it. Calls that come together may share
//!   one: it ends for all of them at the time that they asked for. What may live longer (`AtLeast`) may join later.
//! - `now`, and what is left of a time to live, are by nodes' wall clocks: etcd's answers carry no time.

#[path = "etcd/client.rs"]
mod client;
#[path = "etcd/commit.rs"]
mod commit;
#[path = "etcd/follow.rs"]
mod follow;
#[path = "etcd/group.rs"]
mod group;
#[path = "etcd/keys.rs"]
mod keys;
#[path = "etcd/lease.rs"]
mod lease;
#[path = "etcd/plan.rs"]
mod plan;
#[path = "etcd/tally.rs"]
mod tally;
#[path = "etcd/turns.rs"]
mod turns;
#[path = "etcd/url.rs"]
mod url;
#[path = "etcd/value.rs"]
mod value;
#[path = "etcd/wire.rs"]
mod wire;

use super::{OpenStoreError, Unopened};
use crate::charge::{Charge, by_commit};
use crate::contract::{Guarantees, Page, Range, Reading, Reason, Store, StoreError, StoreFuture, Usage};
use crate::watch::{Hub, Watch};
use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Key, Outcome};
use client::{CALL_MAX, Client, Failure, RANGE, TXN};
use follow::Follower;
use group::Group;
use keys::{Keys, after_prefix};
use lease::{Leases, now};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use turns::Turns;
use value::Stored;
use wire::{KeyValue, RangeRequest, RangeResponse, TxnRequest, TxnResponse};

/// etcd takes at most 128 operations in a transaction.
const READ_MAX: usize = 128;
/// Commits under way, with those that wait for others; more are refused, because they could not be answered in time.
const COMMITS_MAX: usize = 4096;

struct Etcd {
    client: Arc<Client>,
    keys: Keys,
    leases: Arc<Leases>,
    group: Arc<Group>,
    commits: Semaphore,
    hub: Arc<Hub>,
    expirations: Arc<Hub>,
    members: usize,
    turns: Turns,
    follower: JoinHandle<()>,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>, OpenStoreError> {
    let target = url::parse(url).map_err(OpenStoreError::Refused)?;
    let client = Arc::new(Client::new(&target).map_err(OpenStoreError::Refused)?);
    let keys = Keys::under(&target.prefix);
    let asked = RangeRequest { key: keys.mark(), ..RangeRequest::default() };
    let answer: RangeResponse =
        client.again(RANGE, &asked, Instant::now() + CALL_MAX).await.map_err(|failure| {
            let may_pass = matches!(failure, Failure::Unsent(_) | Failure::Unknown(_));
            let detail = failure.of_read().to_string();
            if may_pass { Unopened::Unreachable(detail) } else { Unopened::Refused(detail) }.said_by("etcd")
        })?;
    let next = answer.header.map_or(0, |header| header.revision) + 1;
    let (hub, expirations) = (Arc::new(Hub::default()), Arc::new(Hub::default()));
    let follower = Follower {
        client: client.clone(),
        keys: keys.clone(),
        hub: hub.clone(),
        expirations: expirations.clone(),
        next,
    };
    let follower = tokio::spawn(follower.run());
    let leases = Arc::new(Leases::new(client.clone()));
    let group = Arc::new(Group::new(client.clone(), keys.mark()));
    let (commits, members) = (Semaphore::new(COMMITS_MAX), target.endpoints.len());
    let turns = Turns::default();
    Ok(Arc::new(Etcd { client, keys, leases, group, commits, hub, expirations, members, turns, follower }))
}

impl Etcd {
    fn stored(&self, kv: &KeyValue) -> Result<Stored, StoreError> {
        let stored = self.keys.decode(&kv.key).and_then(|key| Stored::read(key, kv));
        stored.ok_or_else(|| StoreError::NotApplied {
            reason: Reason::Unavailable,
            detail: format!("{:?} in etcd isn't a record of this version", kv.key.escape_ascii().to_string()),
        })
    }

    async fn read_all(&self, keys: Vec<Key>) -> Result<Reading, StoreError> {
        let until = Instant::now() + CALL_MAX;
        let (mut records, mut revision) = (Vec::with_capacity(keys.len()), 0);
        for some in keys.chunks(READ_MAX) {
            let success = some.iter().map(|key| plan::range(&self.keys, key, revision)).collect();
            let asked = TxnRequest { success, ..TxnRequest::default() };
            let answer: TxnResponse =
                self.client.again(TXN, &asked, until).await.map_err(Failure::of_read)?;
            // What doesn't fit into one transaction is read as of the first one.
            if revision == 0 {
                revision = answer.header.map_or(0, |header| header.revision);
            }
            let found = self.found(some.to_vec(), answer.responses)?;
            let now = now();
            let record = |key| found.get(key).and_then(Option::as_ref).map(|stored| stored.record(now));
            records.extend(some.iter().map(record));
        }
        Ok(Reading { records, now: now() })
    }

    async fn scan_some(&self, range: Range, limit: usize) -> Result<Page, StoreError> {
        let until = Instant::now() + CALL_MAX;
        let group = self.keys.group(range.group);
        let prefix = [&group[..], &range.prefix].concat();
        let range_end = after_prefix(&prefix);
        let key = match &range.after {
            Some(after) => [&group[..], after, &[0]].concat().max(prefix),
            None => prefix,
        };
        // For etcd no limit is 0.
        let mut asked_for = i64::try_from(limit).unwrap_or(i64::MAX).max(1);
        let answer = loop {
            let asked = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: asked_for,
                revision: 0,
            };
            match self.client.again(RANGE, &asked, until).await {
                Err(Failure::TooLarge) if asked_for > 1 => asked_for = (asked_for / 4).clamp(1, 1000),
                answer => break answer.map_err(Failure::of_read)?,
            }
        };
        let answer: RangeResponse = answer;
        let now = now();
        let records = answer.kvs.iter().take(limit).map(|kv| Ok(self.stored(kv)?.record(now)));
        let records = records.collect::<Result<Vec<_>, StoreError>>()?;
        let more = answer.more || answer.kvs.len() > records.len();
        Ok(Page { records, more, now })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Store for Etcd {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(self.commit_once(commit))
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(self.read_all(keys))
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(self.scan_some(range, limit))
    }

    /// By the later of this node's wall clock and what the meter has seen: etcd has no clock to ask.
    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        Box::pin(async move {
            charge.validate(true)?;
            // Who is going to change the same meter at this node waits for it, instead of losing to it again and again.
            let _turns = self.turns.of(charge.keys()).await;
            let read = |keys| -> StoreFuture<'_, Reading> { Box::pin(self.read_all(keys)) };
            let commit = |commit| -> StoreFuture<'_, Outcome> { Box::pin(self.commit_anywhere(commit)) };
            by_commit(charge, read, commit).await
        })
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.hub.subscribe(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.expirations.subscribe(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        let alone = "only one etcd endpoint is named: if that member stops, this node has no store";
        Guarantees {
            store: "etcd",
            shared: true,
            answers_always: false,
            charge_spans_groups: true,
            ttl_min: Duration::from_secs(2),
            ttl_granularity: Duration::from_secs(3),
            on_crash: "nothing acknowledged is lost: a majority of the members has synced it",
            on_failover: "nothing acknowledged is lost and revisions only grow; a new leader starts all leases anew \
                          with their full length, so they end later, never earlier; a restored snapshot takes revisions back, \
                          and tokens repeat, unless it is restored with --bump-revision",
            on_partition: "a member that is cut off from the majority refuses, also if it was the leader; the majority goes on. A \
                           lease that its holder can't renew there ends in its time",
            on_clock_step: "leases run on the leader's monotonic clock; displayed times, and what is left of a time to \
                            live, are by the nodes' wall clocks",
            warnings: if self.members == 1 { vec![alone.into()] } else { Vec::new() },
        }
    }

    fn usage(&self) -> Usage {
        Usage { records: 0, used_bytes: 0, budget_bytes: u64::MAX }
    }
}
