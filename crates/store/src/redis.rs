//! Redis: one script a commit, one a charge, on the server's clock. A single server, one that Sentinel names, or a cluster.
//!
//! # Layout
//! - `url`: from a URL to which servers, and how
//! - `link`, `routes`: connections that come back by themselves, and which server has which group
//! - `line`: commits that come together go together
//! - `commit.lua`, `read.lua`, `due.lua`, `collect.lua`: the rules; `plan`, `codec`: their arguments and answers
//! - `charge.lua`: how meters are charged; `charge`: its arguments and answers
//! - `hints`, `collector`: what runs beside the commits
//! - `settings`: what the servers' settings allow us to promise
//!
//! # Promises
//! - A commit is one command or a part of one, and a charge is one. It is sent once; only what surely wasn't begun (another
//!   script or server was needed, or another's commit was refused) is sent again.
//! - A charge is decided where the meters are, so however many charge one at once, none is turned away by another. Meters
//!   of several groups can be charged together unless the server is a cluster: there only what shares a slot can be.
//! - Revisions: one more than the group's last, than any this process has seen, or the server's clock in
//!   microseconds, whichever is highest. So a failover that lost the tail doesn't repeat a number, unless clocks
//!   disagree by more than the failover took and nobody who saw the lost number is left.
//! - As durable as the server's settings make it; `guarantees` says which ones weaken it.

#[path = "redis/charge.rs"]
mod charge;
#[path = "redis/codec.rs"]
mod codec;
#[path = "redis/collector.rs"]
mod collector;
#[path = "redis/hints.rs"]
mod hints;
#[path = "redis/line.rs"]
mod line;
#[path = "redis/link.rs"]
mod link;
#[path = "redis/plan.rs"]
mod plan;
#[path = "redis/routes.rs"]
mod routes;
#[path = "redis/settings.rs"]
mod settings;
#[path = "redis/url.rs"]
mod url;

use super::{OpenStoreError, Unopened};
use crate::charge::Charge;
use crate::contract::{Guarantees, Page, Range, Reading, Store, StoreError, StoreFuture, Usage};
use crate::valid::validate;
use crate::watch::{Hub, Watch};
use ::redis::{Cmd, Script, Value, cmd};
use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Group, Key, Outcome, Record, Revision};
use codec::{Answer, Names, Terms};
use line::Lines;
use link::{CALL_MAX, Link, Trouble};
use routes::Routes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use url::{Target, Topology};

/// Opening takes at most this long.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// Before what was refused for now is sent again.
const AGAIN: Duration = Duration::from_millis(20);
/// Records of a scan that are read together.
const SCAN_BATCH: usize = 512;

/// A script, and the hash it goes by.
struct Source {
    text: &'static str,
    script: Script,
}

impl Source {
    fn new(text: &'static str) -> Self {
        Self { text, script: Script::new(text) }
    }
}

static COMMIT: LazyLock<Source> = LazyLock::new(|| Source::new(include_str!("redis/commit.lua")));
static CHARGE: LazyLock<Source> = LazyLock::new(|| Source::new(include_str!("redis/charge.lua")));
static READ: LazyLock<Source> = LazyLock::new(|| Source::new(include_str!("redis/read.lua")));
static DUE: LazyLock<Source> = LazyLock::new(|| Source::new(include_str!("redis/due.lua")));
static COLLECT: LazyLock<Source> = LazyLock::new(|| Source::new(include_str!("redis/collect.lua")));

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>, OpenStoreError> {
    let target = Target::parse(url).map_err(OpenStoreError::Refused)?;
    match tokio::time::timeout(OPEN_MAX, Redis::open(target)).await {
        Ok(Ok(store)) => Ok(Arc::new(store)),
        Ok(Err(trouble)) => Err(trouble.said_by("Redis")),
        Err(_) => Err(OpenStoreError::Unreachable(format!("Redis: not open within {OPEN_MAX:?}"))),
    }
}

/// What calls and background tasks share.
struct Shared {
    routes: Routes,
    lines: Lines,
    channel: String,
    /// Only this node hears it; who is subscribed to it is subscribed to the other one too. Nothing on a cluster, where a
    /// server doesn't know who listens at the others.
    own_channel: Option<String>,
    /// The highest revision seen.
    floor: AtomicU64,
    hub: Hub,
    expirations: Hub,
}

struct Redis {
    shared: Arc<Shared>,
    warnings: Vec<String>,
    /// Ends with the store.
    _tasks: JoinSet<()>,
}

impl Redis {
    async fn open(target: Target) -> Result<Self, Unopened> {
        // An error means that the process has one already.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let channel = format!("{}:hints:{}", target.prefix, target.settings.db());
        let is_cluster = target.topology == Topology::Cluster;
        let own = getrandom::u64().ok().filter(|_| !is_cluster);
        let own_channel = own.map(|number| format!("{channel}:{number:016x}"));
        let lines = Lines::new(!is_cluster, target.wait > 0);
        let routes = Routes::find(target).await?;
        for link in routes.all() {
            link.reach().await?;
        }
        let warnings = settings::inspect(&routes).await?;
        let (hub, expirations) = (Hub::default(), Hub::default());
        let floor = AtomicU64::new(0);
        let shared = Arc::new(Shared { routes, lines, channel, own_channel, floor, hub, expirations });
        let mut tasks = JoinSet::new();
        tasks.spawn(hints::hear(shared.clone()));
        tasks.spawn(collector::collect(shared.clone()));
        Ok(Self { shared, warnings, _tasks: tasks })
    }
}

fn evaluate(source: &Source, whole: bool) -> Cmd {
    if whole {
        let mut command = cmd("EVAL");
        command.arg(source.text);
        command
    } else {
        let mut command = cmd("EVALSHA");
        command.arg(source.script.get_hash());
        command
    }
}

impl Shared {
    fn saw(&self, revision: Revision) {
        self.floor.fetch_max(revision.0.min(Revision::MAX.0 - 1), Ordering::AcqRel);
    }

    fn saw_record(&self, record: &Option<Record>) {
        if let Some(record) = record {
            self.saw(record.revision);
        }
    }

    async fn script(
        &self,
        link: &Link,
        source: &Source,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
        until: Instant,
    ) -> Result<Value, Trouble> {
        let command = |whole| {
            let mut command = evaluate(source, whole);
            command.arg(keys.len()).arg(keys).arg(arguments);
            command
        };
        match link.call(&command(false), until).await {
            Err(trouble) if trouble.is_refusal("NOSCRIPT") => link.call(&command(true), until).await,
            answer => answer,
        }
    }

    async fn charge(&self, charge: Charge) -> Result<Charged, StoreError> {
        charge.validate(self.spans_groups())?;
        let group = charge.keys().next().map_or(Group(0), |key| key.group);
        let add = |command: &mut Cmd, terms: &Terms<'_>| charge::encode(command, &charge, terms);
        let (value, acknowledged) = self.run(&CHARGE, group, add).await.map_err(Trouble::sorted)?;
        let answer = codec::answer(value).ok_or_else(codec::strange)?;
        self.saw(answer.revision);
        acknowledged?;
        charge::charged(answer)
    }

    /// Whether all groups are at one server.
    fn spans_groups(&self) -> bool {
        self.routes.target.topology != Topology::Cluster
    }

    /// Runs a script that writes: sent once, and again only what surely wasn't begun. Gives its answer, and whether the
    /// replicas that were to have it do.
    async fn run(
        &self,
        source: &Source,
        group: Group,
        add: impl Fn(&mut Cmd, &Terms<'_>),
    ) -> Result<(Value, Result<(), StoreError>), Trouble> {
        let until = Instant::now() + CALL_MAX;
        let answer = self.routed(group, until, false, |link| {
            let add = &add;
            async move {
                match self.send(&link, source, add, until, false).await {
                    Err(trouble) if trouble.is_refusal("NOSCRIPT") => {
                        self.send(&link, source, add, until, true).await
                    }
                    answer => answer,
                }
            }
        });
        let (value, acknowledged) = answer.await?;
        let wanted = self.routes.target.wait;
        let missing = (acknowledged < wanted).then(|| StoreError::Unknown {
            detail: format!("{acknowledged} replicas have it instead of {wanted}"),
        });
        Ok((value, missing.map_or(Ok(()), Err)))
    }

    async fn send(
        &self,
        link: &Link,
        source: &Source,
        add: impl Fn(&mut Cmd, &Terms<'_>),
        until: Instant,
        whole: bool,
    ) -> Result<(Value, u32), Trouble> {
        let target = &self.routes.target;
        let floor = self.floor.load(Ordering::Acquire);
        let (prefix, mark, is_one) = (&target.prefix, target.wait > 0, self.spans_groups());
        let terms = Terms { floor, channel: &self.channel, prefix, mark, is_one };
        let mut command = evaluate(source, whole);
        add(&mut command, &terms);
        match target.wait {
            0 => Ok((link.call(&command, until).await?, 0)),
            replicas => link.call_and_wait(&command, replicas, target.wait_max, until).await,
        }
    }

    /// Reads from the server of the first key's group.
    async fn read_together(&self, keys: &[Key]) -> Result<(Vec<Option<Record>>, u64), StoreError> {
        let until = Instant::now() + CALL_MAX;
        let group = keys.first().map_or(Group(0), |key| key.group);
        let prefix = &self.routes.target.prefix;
        let names: Vec<_> = keys.iter().map(|key| Names::new(prefix, key.group).record(&key.name)).collect();
        let value = self.routed(group, until, true, |link| {
            let names = &names;
            async move { self.script(&link, &READ, names, &[], until).await }
        });
        let unreadable = || Trouble::Lost("Redis holds something that isn't a record".into()).harmless();
        let Some(Answer { now_us, records, .. }) = codec::answer(value.await.map_err(Trouble::harmless)?)
        else {
            return Err(unreadable());
        };
        let records =
            keys.iter().zip(records).map(|(key, packed)| codec::unpack(key, packed.as_deref(), now_us));
        let records: Vec<_> = records.collect::<Option<_>>().ok_or_else(unreadable)?;
        records.iter().for_each(|record| self.saw_record(record));
        Ok((records, now_us))
    }

    /// Asks the server that has the group; and again, as long as there is time, what surely wasn't begun because that
    /// server isn't the one any more or just hands the group over. What is harmless may have been begun, once.
    async fn routed<T, F: Future<Output = Result<T, Trouble>>>(
        &self,
        group: Group,
        until: Instant,
        harmless: bool,
        ask: impl Fn(Arc<Link>) -> F,
    ) -> Result<T, Trouble> {
        let mut first = true;
        loop {
            let link = self.routes.link(group);
            let trouble = match ask(link.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            if self.routes.target.topology == Topology::Single {
                return Err(trouble);
            }
            let mut moved = false;
            if trouble.is_elsewhere() {
                let refreshed = tokio::time::timeout_at(until, self.routes.refresh()).await;
                moved = matches!(refreshed, Ok(Ok(_))) && !Arc::ptr_eq(&link, &self.routes.link(group));
            }
            let unbegun = !matches!(trouble, Trouble::Lost(_));
            let again = trouble.is_passing()
                || (moved && (unbegun || harmless))
                || (first && harmless && trouble.is_elsewhere());
            if !again || Instant::now() + AGAIN >= until {
                return Err(trouble);
            }
            if !(first && moved) {
                tokio::time::sleep(AGAIN).await;
            }
            first = false;
        }
    }

    async fn read(&self, keys: Vec<Key>) -> Result<Reading, StoreError> {
        if self.routes.target.topology != Topology::Cluster {
            let (records, now_us) = self.read_together(&keys).await?;
            return Ok(Reading { records, now: codec::wall_time(now_us) });
        }
        // A cluster has one moment for each group only.
        let mut records = vec![None; keys.len()];
        let mut now_us = 0;
        let mut left: Vec<usize> = (0..keys.len()).collect();
        loop {
            let group = left.first().map_or(Group(0), |index| keys[*index].group);
            let (now, later): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|index| keys[*index].group == group);
            let together: Vec<_> = now.iter().map(|index| keys[*index].clone()).collect();
            let (found, at_us) = self.read_together(&together).await?;
            now_us = at_us.max(now_us);
            for (index, record) in now.into_iter().zip(found) {
                records[index] = record;
            }
            if later.is_empty() {
                return Ok(Reading { records, now: codec::wall_time(now_us) });
            }
            left = later;
        }
    }

    async fn scan(&self, range: Range, limit: usize) -> Result<Page, StoreError> {
        let index = Names::new(&self.routes.target.prefix, range.group).index();
        let end = after_prefix(&range.prefix);
        let mut from = match &range.after {
            Some(after) if **after >= *range.prefix => [b"(", &after[..]].concat(),
            _ => [b"[", &range.prefix[..]].concat(),
        };
        let mut records = Vec::new();
        loop {
            let mut question = cmd("ZRANGEBYLEX");
            let batch = SCAN_BATCH.min(limit.saturating_sub(records.len()).saturating_add(1));
            question.arg(&index).arg(&from).arg(&end).arg("LIMIT").arg(0).arg(batch);
            let until = Instant::now() + CALL_MAX;
            let answer = self.routed(range.group, until, true, |link| {
                let question = &question;
                async move { link.call(question, until).await }
            });
            let Value::Array(names) = answer.await.map_err(Trouble::harmless)? else {
                return Err(Trouble::Lost("Redis gave no names".into()).harmless());
            };
            let keys: Vec<_> =
                names.into_iter().filter_map(codec::bytes).map(|name| Key::new(range.group, name)).collect();
            let (found, now_us) = self.read_together(&keys).await?;
            records.extend(found.into_iter().flatten());
            let more = records.len() > limit;
            if more || keys.len() < batch {
                records.truncate(limit);
                return Ok(Page { records, more, now: codec::wall_time(now_us) });
            }
            let last = keys.last().expect("a full batch has a last one");
            from = [b"(", &last.name[..]].concat();
        }
    }
}

/// Where names that begin with `prefix` end, as the server wants to hear it.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let Some(place) = prefix.iter().rposition(|byte| *byte != u8::MAX) else { return b"+".to_vec() };
    let mut end = [b"(", &prefix[..=place]].concat();
    *end.last_mut().expect("has at least a byte") += 1;
    end
}

impl Store for Redis {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(async move {
            validate(&commit)?;
            self.shared.decide(commit).await
        })
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(self.shared.read(keys))
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(self.shared.scan(range, limit))
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.shared.hub.subscribe(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.shared.expirations.subscribe(prefix)
    }

    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        Box::pin(self.shared.charge(charge))
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            store: "redis",
            shared: true,
            answers_always: false,
            charge_spans_groups: self.shared.spans_groups(),
            ttl_min: Duration::from_millis(1),
            ttl_granularity: Duration::from_millis(1),
            on_crash: "with appendfsync always nothing acknowledged is lost; leases run on while Redis is down",
            on_failover: "replication is asynchronous: neither exclusion nor unique tokens are promised, and a primary \
                          that doesn't know of it goes on; wait=N narrows that, closely if N is the number of all \
                          replicas, and revisions follow the clock and the highest number seen",
            on_partition: "a primary that is cut off goes on answering whoever reaches it, beside the one that is promoted \
                           meanwhile: two holders are possible, and what the one cut off took is lost. With wait=N, N being \
                           the number of all replicas, it acknowledges nothing; with min-replicas-to-write it refuses, some \
                           seconds late",
            on_clock_step: "leases run on the server's wall clock: a step forward ends them early, one back \
                            late; revisions only grow",
            warnings: self.warnings.clone(),
        }
    }

    fn usage(&self) -> Usage {
        Usage { records: 0, used_bytes: 0, budget_bytes: u64::MAX }
    }
}
