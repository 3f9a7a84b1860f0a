//! PostgreSQL with the least that a durable lock can be there: a row that is inserted and deleted, each in a transaction
//! of its own, each client on a connection of its own.

use crate::load::Client;
use anyhow::ensure;
use baton_testkit::servers::postgres::Postgres;
use std::time::{Duration, Instant};
use tokio_postgres::{NoTls, Statement};

/// One that runs, with its defaults.
pub async fn start() -> anyhow::Result<Postgres> {
    let mut postgres = Postgres::new()?;
    postgres.start().await?;
    Ok(postgres)
}

/// Insert and delete, over and over.
pub struct Pairs {
    client: tokio_postgres::Client,
    insert: Statement,
    delete: Statement,
    key: String,
}

impl Pairs {
    /// So many of them, each with a row of its own, in a table that is made for them.
    pub async fn connect(postgres: &Postgres, clients: usize) -> anyhow::Result<Vec<Self>> {
        postgres.sql("CREATE TABLE locks (key text PRIMARY KEY, owner text NOT NULL)")?;
        let mut users = Vec::with_capacity(clients);
        for user in 0..clients {
            let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await?;
            // Ends with the client; what goes wrong is told to whoever waits for an answer.
            tokio::spawn(connection);
            let insert = client.prepare("INSERT INTO locks VALUES ($1, $2) ON CONFLICT DO NOTHING").await?;
            let delete = client.prepare("DELETE FROM locks WHERE key = $1 AND owner = $2").await?;
            users.push(Self { client, insert, delete, key: format!("pair:{user}") });
        }
        Ok(users)
    }
}

impl Client for Pairs {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let inserted = self.client.execute(&self.insert, &[&self.key, &super::baton::OWNER]).await?;
        ensure!(inserted == 1, "the lock was held");
        let deleted = self.client.execute(&self.delete, &[&self.key, &super::baton::OWNER]).await?;
        ensure!(deleted == 1, "the lock was lost");
        Ok(began.elapsed())
    }
}
