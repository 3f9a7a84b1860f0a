//! Five copies of a service start together, and each wants the database's schema to be up to date.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use baton_client::fence::Fenced;
use baton_client::{Baton, secs};
use baton_examples::{copies, unique};
use std::sync::Arc;
use std::time::Duration;

/// The database: its schema's version, and how often the column was added.
#[derive(Default)]
struct Schema {
    version: u32,
    added: u32,
}

/// A migration takes its time, and must not be run twice.
async fn migrate() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn add_column(schema: &mut Schema) {
    schema.added += 1;
    schema.version = 1;
}

async fn without(database: Arc<std::sync::Mutex<Schema>>) -> anyhow::Result<()> {
    let version = database.lock().map_or(0, |schema| schema.version);
    if version == 0 {
        migrate().await;
        database.lock().iter_mut().for_each(|schema| add_column(schema));
    }
    Ok(())
}

async fn with(baton: Baton, key: String, database: Arc<Fenced<Schema>>) -> anyhow::Result<()> {
    let lock = baton.lock(key).ttl(secs(30)).acquire().await?;
    // Looked at under the lock: whoever had it before may have done it.
    if database.read(|schema| schema.version) == 0 {
        migrate().await;
        database.write(lock.fencing_token(), add_column)?;
    }
    Ok(lock.release().await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let database = Arc::<std::sync::Mutex<Schema>>::default();
    copies(5, |_| without(database.clone())).await?;
    let added = database.lock().map_or(0, |schema| schema.added);
    println!("without a lock, 5 copies ran the migration {added} times");

    let (database, key) = (Arc::<Fenced<Schema>>::default(), unique("migration"));
    copies(5, |baton| with(baton, key.clone(), database.clone())).await?;
    let added = database.read(|schema| schema.added);
    println!("with a lock, 5 copies ran the migration {added} times");
    anyhow::ensure!(added == 1, "it ran {added} times");
    Ok(())
}
