//! The tables and functions, by version: made or brought up to date by whichever node comes first.

use super::Unopened;
use super::rows::schema_latch;
use super::session::answered;
use super::target::Target;
use tokio_postgres::Client;

/// In order; the version of a schema is how many of them it has. What was released is never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("schema-1.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
    include_str!("schema-4.sql"),
];

/// Brings the schema to this binary's version. One that is newer is refused. A role that may not create anything can use
/// a schema that is up to date.
pub(super) async fn migrate(client: &Client, target: &Target) -> Result<(), Unopened> {
    let newest = MIGRATIONS.len();
    if version(client, &target.schema).await? == newest {
        return Ok(());
    }
    // All of it happens, or nothing. Who comes second waits here, and looks again.
    answered(client.batch_execute("BEGIN; SET LOCAL statement_timeout = 0")).await?;
    let migrated = migrate_alone(client, target).await;
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = answered(client.batch_execute(end)).await;
    migrated.and(ended)
}

/// The same for a schema that an older one was restored in the place of, while nodes run on it. One that isn't there is not made
/// anew: what was in it may be on its way back.
pub(super) async fn migrate_restored(client: &Client, target: &Target) -> Result<(), Unopened> {
    match version(client, &target.schema).await? {
        0 => Ok(()),
        _ => migrate(client, target).await,
    }
}

async fn migrate_alone(client: &Client, target: &Target) -> Result<(), Unopened> {
    let schema = &target.schema;
    // As long as another node's migration takes: the caller has a limit for all of it.
    let alone = client.execute("SELECT pg_advisory_xact_lock($1)", &[&schema_latch(target)]).await;
    alone.map_err(|error| super::describe(&error))?;
    let mut present = version(client, schema).await?;
    if present == 0 {
        let begin = format!(
            "CREATE SCHEMA IF NOT EXISTS {schema};\
             CREATE TABLE {schema}.schema_version (version integer NOT NULL);\
             INSERT INTO {schema}.schema_version VALUES (0)"
        );
        execute(client, &begin).await?;
    }
    while let Some(migration) = MIGRATIONS.get(present) {
        present += 1;
        // A plain identifier, see `Target`: it needs no quotes.
        execute(client, &migration.replace("@schema@", schema)).await?;
        execute(client, &format!("UPDATE {schema}.schema_version SET version = {present}")).await?;
        tracing::info!("the schema {schema} is now at version {present}");
    }
    Ok(())
}

async fn execute(client: &Client, statements: &str) -> Result<(), Unopened> {
    let done = client.batch_execute(statements).await;
    done.map_err(|error| format!("can't bring the schema up to date: {}", super::describe(&error)).into())
}

/// 0 for a schema that isn't there.
async fn version(client: &Client, schema: &str) -> Result<usize, Unopened> {
    // Not by to_regclass, which may answer from before the lock was waited for.
    let sql = "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = 'schema_version')";
    let exists = answered(client.query_one(sql, &[&schema])).await?;
    if !exists.get::<_, bool>(0) {
        return Ok(0);
    }
    let row =
        answered(client.query_one(&format!("SELECT version FROM {schema}.schema_version"), &[])).await?;
    let version = usize::try_from(row.get::<_, i32>(0)).map_err(|error| error.to_string())?;
    if version > MIGRATIONS.len() {
        let newest = MIGRATIONS.len();
        return Err(format!(
            "schema {schema} has version {version}; this binary knows up to {newest}: use a newer one"
        )
        .into());
    }
    Ok(version)
}
