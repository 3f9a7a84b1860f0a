//! One connection: made, prepared, driven by a task of its own that ends with it; and how its failures are sorted.

use super::target::Target;
use super::{Unopened, describe, schema};
use crate::contract::{Reason, StoreError};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// Everything that is asked of the server is answered within this time, or given up: below the engine's own 2 s.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// How long a connection waits for a restored schema to be brought up to date, by itself or by another.
const MIGRATED_WITHIN: Duration = Duration::from_secs(60);

/// Finding the primary among the hosts of a URL and logging in there takes at most this long.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// What a server says that will be there in a while: it starts, stops, crashed, or has all the connections it may.
const NOT_YET: [&str; 4] = ["57P03", "57P01", "57P02", "53300"];

/// The server gives up on a statement of ours earlier than we do: then it is known not to have happened.
const STATEMENT_MAX_MS: u32 = 1200;

/// READ COMMITTED is what commits and charges rest on. Plans are made once, for tables of any size: always by index.
/// `off` would mean that what was acknowledged may be lost; that much is decided here.
const SETTINGS: &str = "\
    SET default_transaction_isolation = 'read committed';\
    SET search_path = pg_catalog;\
    SET client_min_messages = warning;\
    SET jit = off;\
    SET plan_cache_mode = force_generic_plan;\
    SET enable_seqscan = off;\
    SET enable_bitmapscan = off;\
    SET enable_hashjoin = off;\
    SET enable_mergejoin = off;\
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// The task that moves a connection's bytes. Dropping it closes the connection.
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    /// Until the connection has gone.
    pub async fn ended(&mut self) {
        // Also an aborted one has ended.
        (&mut self.0).await.ok();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects, and hands every message that the server sends by itself to `heard`.
pub(super) async fn connect(
    target: &Target,
    mut heard: impl FnMut(tokio_postgres::AsyncMessage) + Send + 'static,
) -> Result<(Client, Driver), Unopened> {
    let connecting = tokio::time::timeout(CONNECT_MAX, target.config.connect(target.tls.clone()));
    let connected = connecting
        .await
        .map_err(|_| Unopened::Unreachable(format!("not connected within {CONNECT_MAX:?}")))?;
    let (client, mut connection) = connected.map_err(|error| unopened(&error))?;
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if is_unreplicated(&message) {
                tracing::warn!(
                    "a wait for synchronous standbys was called off: what was committed may get lost"
                );
                break;
            }
            heard(message);
        }
    });
    let driver = Driver(driver);
    let settings = format!("SET statement_timeout = {STATEMENT_MAX_MS};{SETTINGS}");
    answered(client.batch_execute(&settings)).await?;
    Ok((client, driver))
}

/// Whether the server gave up waiting for a standby and is going to say all the same that it has committed. It says so just
/// before that: a connection that ends here leaves everybody on it without an answer, as one that breaks does.
fn is_unreplicated(message: &tokio_postgres::AsyncMessage) -> bool {
    // By where it comes from: its text is in the server's language, and its code any warning's.
    matches!(message, tokio_postgres::AsyncMessage::Notice(notice) if notice.routine() == Some("SyncRepWaitForLSN"))
}

/// An answer to something that may be asked again.
pub(super) async fn answered<T>(
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Unopened> {
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(answer) => answer.map_err(|error| unopened(&error)),
        Err(_) => Err(Unopened::Unreachable(format!("no answer within {ANSWER_MAX:?}"))),
    }
}

/// Whether a server may be there later: one that isn't there, starts, stops or has no more room for us; not one that says no.
fn unopened(error: &tokio_postgres::Error) -> Unopened {
    let detail = describe(error);
    let passes = match error.code() {
        Some(code) => NOT_YET.contains(&code.code()),
        None => {
            let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
            // What isn't understood, as a certificate, will not be understood later.
            let is_io = cause.is_some_and(|cause| cause.kind() != io::ErrorKind::InvalidData);
            error.is_closed() || (is_io && !detail.contains("certificate"))
        }
    };
    if passes { Unopened::Unreachable(detail) } else { Unopened::Refused(detail) }
}

/// A connection that commits, charges, reads and scans.
pub(super) struct Session {
    pub client: Client,
    pub commit: Statement,
    pub charge: Statement,
    pub read: Statement,
    pub scan: Statement,
    pub due: Statement,
    pub collect: Statement,
    driver: AbortHandle,
    discarded: AtomicBool,
    /// Statements sent and not answered.
    pub waiting: AtomicUsize,
    /// How many answers have come: one that makes progress is slow, not dead.
    answers: AtomicU64,
}

impl Session {
    pub async fn start(target: &Target) -> Result<(Self, Driver), Unopened> {
        let (client, driver) = connect(target, |message| {
            if let tokio_postgres::AsyncMessage::Notice(notice) = message {
                tracing::warn!(code = notice.code().code(), "the server says: {}", notice.message());
            }
        })
        .await?;
        let name = &target.schema;
        let prepare = async |sql: &str| answered(client.prepare(&sql.replace("@schema@", name))).await;
        // Of the newest version. It isn't there where an older schema was restored under running nodes.
        let newest = COMMIT.replace("@schema@", name);
        let commit = match tokio::time::timeout(ANSWER_MAX, client.prepare(&newest)).await {
            Ok(Ok(commit)) => commit,
            Ok(Err(error)) if error.code() == Some(&SqlState::UNDEFINED_FUNCTION) => {
                let migrated =
                    tokio::time::timeout(MIGRATED_WITHIN, schema::migrate_restored(&client, target));
                migrated.await.map_err(|_| {
                    Unopened::Unreachable(format!("no new schema within {MIGRATED_WITHIN:?}"))
                })??;
                prepare(COMMIT).await?
            }
            Ok(Err(error)) => return Err(unopened(&error)),
            Err(_) => return Err(Unopened::Unreachable(format!("no answer within {ANSWER_MAX:?}"))),
        };
        let session = Self {
            commit,
            charge: prepare(CHARGE).await?,
            read: prepare(READ).await?,
            scan: prepare(SCAN).await?,
            due: prepare("SELECT part, name FROM @schema@.due_names($1)").await?,
            collect: prepare("SELECT part, name, removed FROM @schema@.collect_records($1, $2, $3)").await?,
            client,
            driver: driver.0.abort_handle(),
            discarded: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            answers: AtomicU64::new(0),
        };
        Ok((session, driver))
    }

    /// Closes it: whoever waits for an answer hears so at once, and a new one takes its place.
    pub fn discard(&self) {
        self.discarded.store(true, Ordering::Relaxed);
        self.driver.abort();
    }

    /// Whether nothing more should be sent over it.
    pub fn is_over(&self) -> bool {
        self.discarded.load(Ordering::Relaxed) || self.client.is_closed()
    }

    /// One statement, one round trip.
    pub async fn query(
        &self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let _waiting = Waiting::on(self);
        let before = self.answers.load(Ordering::Relaxed);
        let query = self.client.query(statement, parameters);
        let Ok(answer) = tokio::time::timeout(ANSWER_MAX, query).await else {
            self.discard_if_silent(before);
            return Err(Failure::Silent(format!("no answer within {ANSWER_MAX:?}")));
        };
        self.answers.fetch_add(1, Ordering::Relaxed);
        answer.map_err(|error| sort(&error, self))
    }

    /// Closes it if nothing was answered since `answers` were: it may be a connection to nobody.
    fn discard_if_silent(&self, answers: u64) {
        if self.answers.load(Ordering::Relaxed) == answers {
            self.discard();
        }
    }
}

/// How a statement failed.
pub(super) enum Failure {
    /// It was never sent, or the server said that it did nothing.
    Refused(StoreError),
    /// It was sent, and that is all we know.
    Silent(String),
}

impl Failure {
    /// For what changes nothing and may be asked again.
    pub fn of_a_read(self) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Silent(detail) => StoreError::NotApplied { reason: Reason::Unavailable, detail },
        }
    }

    /// For what may have happened.
    pub fn of_a_commit(self) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Silent(detail) => StoreError::Unknown { detail },
        }
    }
}

/// Counts a statement as waiting until it is answered or given up.
struct Waiting<'a>(&'a Session);

impl<'a> Waiting<'a> {
    fn on(session: &'a Session) -> Self {
        session.waiting.fetch_add(1, Ordering::Relaxed);
        Self(session)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An ERROR undoes its transaction. A FATAL may come while a commit waits for its standby: it is as silent as a
/// connection that broke.
fn sort(error: &tokio_postgres::Error, session: &Session) -> Failure {
    let detail = describe(error);
    let Some(answer) = error.as_db_error().filter(|answer| answer.parsed_severity() == Some(Severity::Error))
    else {
        return Failure::Silent(detail);
    };
    let code = answer.code();
    let reason = match *code {
        SqlState::DISK_FULL => Reason::Full,
        SqlState::PROGRAM_LIMIT_EXCEEDED => Reason::Invalid,
        _ => Reason::Unavailable,
    };
    // Others than these may be about what was prepared: another server behind the address, a restored schema.
    let passing = ["40", "53", "54", "57"].iter().any(|class| code.code().starts_with(class));
    if !passing {
        session.discard();
    }
    Failure::Refused(StoreError::NotApplied { reason, detail })
}

const COMMIT: &str = "SELECT place, value, created, revision, touches, left_us \
    FROM @schema@.commit_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

const CHARGE: &str =
    "SELECT turn, repeated, answer FROM @schema@.charge_meters($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// One statement is one snapshot, and one reading of the clock. A row comes also when nothing is asked for.
const READ: &str = "\
    WITH clock AS MATERIALIZED (SELECT @schema@.clock_us() AS now_us) \
    SELECT clock.now_us, r.name IS NOT NULL, r.value, r.created, r.revision, r.touches, \
        r.expires_us - clock.now_us \
    FROM clock LEFT JOIN unnest($1::smallint[], $2::bytea[]) WITH ORDINALITY AS asked (part, name, turn) ON true \
    LEFT JOIN @schema@.records AS r ON r.part = asked.part AND r.name = asked.name \
        AND (r.expires_us IS NULL OR r.expires_us > clock.now_us) \
    ORDER BY asked.turn";

/// From ($1, $2) to below ($3, $4): a range of the primary key, which compares names byte by byte.
const SCAN: &str = "\
    WITH clock AS MATERIALIZED (SELECT @schema@.clock_us() AS now_us) \
    SELECT clock.now_us, found.name IS NOT NULL, found.value, found.created, found.revision, found.touches, \
        found.expires_us - clock.now_us, found.name \
    FROM clock LEFT JOIN LATERAL (\
        SELECT * FROM @schema@.records AS r \
        WHERE (r.part, r.name) >= ($1::smallint, $2::bytea) AND (r.part, r.name) < ($3::smallint, $4::bytea) \
        AND (r.expires_us IS NULL OR r.expires_us > clock.now_us) \
        ORDER BY r.part, r.name LIMIT $5::bigint\
    ) AS found ON true \
    ORDER BY found.part, found.name";
