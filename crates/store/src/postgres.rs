//! PostgreSQL: one function call for the commits, or the charges, that come together, under advisory locks on the names
//! they are about.
//!
//! # Layout
//! - `target`: from a URL to where and how to connect
//! - `session`, `pool`: connections that come back by themselves, and how failures are sorted
//! - `group`, `queue`: commits and charges that wait for a connection, and go together
//! - `schema`, `schema-*.sql`: tables and functions, by version; the rules of a commit are there, and those of a charge once more
//! - `rows`: commits as parameters, rows as records
//! - `charge`: charges as parameters, and their answers
//! - `hints`, `notice`, `others`: what nodes tell each other, beside the commits, if there is somebody to hear it
//! - `collector`: removes what has expired
//! - `settings`: what the server allows us to promise
//!
//! # Promises
//! - A commit is one statement, which it may share with others: one round trip, durable when it answers. So is a charge, of
//!   meters of any groups.
//! - Everything about a name happens under its lock, also before it has a record: a revision is drawn after what
//!   it follows was committed.
//! - Revisions: a sequence, raised above the clock whenever the server or the sequence isn't the one of before. Commits that go
//!   together have no key in common, and the same revision.
//! - Leases run on the server's wall clock.

#[path = "postgres/charge.rs"]
mod charge;
#[path = "postgres/collector.rs"]
mod collector;
#[path = "postgres/group.rs"]
mod group;
#[path = "postgres/hints.rs"]
mod hints;
#[path = "postgres/notice.rs"]
mod notice;
#[path = "postgres/others.rs"]
mod others;
#[path = "postgres/pool.rs"]
mod pool;
#[path = "postgres/queue.rs"]
mod queue;
#[path = "postgres/rows.rs"]
mod rows;
#[path = "postgres/schema.rs"]
mod schema;
#[path = "postgres/session.rs"]
mod session;
#[path = "postgres/settings.rs"]
mod settings;
#[path = "postgres/target.rs"]
mod target;

use super::{OpenStoreError, Unopened};
use crate::charge::Charge;
use crate::contract::{Guarantees, Page, Range, Reading, Store, StoreError, StoreFuture, Usage};
use crate::watch::{Hub, Watch};
use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Key, Outcome};
use group::Group;
use hints::Hints;
use pool::Pool;
use rows::{record, strange, wall_time};
use session::Failure;
use settings::Settings;
use std::sync::Arc;
use std::time::Duration;
use target::Target;
use tokio::task::JoinSet;

/// Opening takes at most this long, migrations included.
const OPEN_MAX: Duration = Duration::from_secs(30);

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>, OpenStoreError> {
    let target = Target::parse(url).map_err(OpenStoreError::Refused)?;
    match tokio::time::timeout(OPEN_MAX, Postgres::open(target)).await {
        Ok(Ok(store)) => Ok(Arc::new(store)),
        Ok(Err(trouble)) => Err(trouble.said_by("PostgreSQL")),
        Err(_) => Err(OpenStoreError::Unreachable(format!("PostgreSQL: not open within {OPEN_MAX:?}"))),
    }
}

struct Postgres {
    target: Arc<Target>,
    pool: Arc<Pool>,
    group: Arc<Group>,
    hints: Arc<Hints>,
    expirations: Arc<Hub>,
    settings: Settings,
    _tasks: JoinSet<()>,
}

impl Postgres {
    async fn open(target: Target) -> Result<Self, Unopened> {
        let (client, driver) = session::connect(&target, drop).await?;
        let settings = Settings::read(&client).await?;
        schema::migrate(&client, &target).await?;
        drop((client, driver));

        let target = Arc::new(target);
        let ear = hints::listen(&target).await?;
        let (hints, told) = Hints::new();
        let group = Arc::new(Group::default());
        let pool = Arc::new(Pool::start(&target, &group, &hints));
        pool.up().await?;
        let expirations = Arc::new(Hub::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(hints::run(hints.clone(), told, ear, pool.clone(), target.clone()));
        tasks.spawn(collector::run(pool.clone(), target.clone(), expirations.clone()));
        Ok(Self { target, pool, group, hints, expirations, settings, _tasks: tasks })
    }

    async fn commit(&self, commit: Commit) -> Result<Outcome, StoreError> {
        crate::valid::validate(&commit)?;
        // Without a connection nobody needs to wait for one.
        self.pool.session()?;
        self.group.commit(commit, &self.target).await
    }

    async fn charge(&self, charge: Charge) -> Result<Charged, StoreError> {
        charge.validate(true)?;
        self.pool.session()?;
        self.group.charge(charge, &self.target).await
    }

    async fn scan(&self, range: Range, limit: usize) -> Result<Page, StoreError> {
        let group = i16::from(range.group.0);
        // The first name after `after` is `after` and a zero byte.
        let after = range.after.map(|after| [&after[..], &[0]].concat()).unwrap_or_default();
        let from = after.max(range.prefix.to_vec());
        let (below_group, below) = below(group, &range.prefix);
        let asked = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&group, &from, &below_group, &below, &asked];
        let rows = self.pool.query(|session| &session.scan, &parameters).await;
        let rows = rows.map_err(Failure::of_a_read)?;
        let mut page = Page { records: Vec::new(), more: false, now: wall_time(0) };
        for row in &rows {
            page.now = wall_time(row.get(0));
            let Some(name) = row.get::<_, Option<&[u8]>>(7) else { continue };
            page.records
                .extend(record(Key::new(range.group, name), row, 1).map_err(|error| strange(&error))?);
        }
        page.more = page.records.len() > limit;
        page.records.truncate(limit);
        Ok(page)
    }
}

/// The first key after all names that begin with `prefix`.
fn below(group: i16, prefix: &[u8]) -> (i16, Vec<u8>) {
    let mut name = prefix.to_vec();
    while let Some(last) = name.pop() {
        if let Some(next) = last.checked_add(1) {
            name.push(next);
            return (group, name);
        }
    }
    (group + 1, name)
}

async fn read(pool: &Pool, keys: &[Key]) -> Result<Reading, StoreError> {
    let groups: Vec<_> = keys.iter().map(|key| i16::from(key.group.0)).collect();
    let names: Vec<_> = keys.iter().map(|key| &key.name[..]).collect();
    let rows = pool.query(|session| &session.read, &[&groups, &names]).await;
    let rows = rows.map_err(Failure::of_a_read)?;
    let now = rows.first().map_or(wall_time(0), |row| wall_time(row.get(0)));
    let records = keys.iter().zip(&rows).map(|(key, row)| record(key.clone(), row, 1));
    let records = records.collect::<Result<_, _>>().map_err(|error| strange(&error))?;
    Ok(Reading { records, now })
}

impl Store for Postgres {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(self.commit(commit))
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(async move { read(&self.pool, &keys).await })
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(self.scan(range, limit))
    }

    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        Box::pin(self.charge(charge))
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.hints.hub.subscribe(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.expirations.subscribe(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        self.settings.guarantees()
    }

    /// The server's disk is not ours to budget.
    fn usage(&self) -> Usage {
        Usage { records: 0, used_bytes: 0, budget_bytes: u64::MAX }
    }
}

/// What went wrong, with what the server or the system said; neither knows the password.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} ({})", answer.message(), answer.code().code());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn a_range_ends_before_what_has_another_prefix() {
        assert_eq!(below(3, b"ab"), (3, b"ac".to_vec()));
        assert_eq!(below(3, b"a\xff\xff"), (3, b"b".to_vec()));
        assert_eq!(below(255, b"\xff"), (256, Vec::new()));
        assert_eq!(below(0, b""), (1, Vec::new()));
    }
}
