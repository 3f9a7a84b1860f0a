//! Two holders, one after the other, write the same row of a database. The first is late. (SQLite, through its own client.)
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use anyhow::{Context, ensure};
use baton_client::fence::{Dialect, Refused, SqlFence, Written};
use baton_client::{Baton, secs};
use baton_examples::{server, unique};
use std::path::Path;
use std::process::Command;

/// What the database answers, in lines.
fn sql(database: &Path, statements: &str) -> anyhow::Result<Vec<String>> {
    let output = Command::new("sqlite3").arg("-batch").arg(database).arg(statements).output();
    let output = output.context("sqlite3 isn't installed")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn number(database: &Path, query: &str) -> anyhow::Result<Option<i64>> {
    sql(database, query)?.first().map(|line| Ok(line.parse()?)).transpose()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("stock.db");
    let stock = SqlFence::new(Dialect::Sqlite, "stock");
    sql(
        &database,
        "CREATE TABLE stock (sku TEXT PRIMARY KEY, count INTEGER); INSERT INTO stock VALUES ('a', 10), ('b', 10)",
    )?;
    sql(&database, &stock.add_column())?;

    let baton = Baton::connect(server()).await?;
    let lock = baton.lock(unique("rows")).ttl(secs(30));
    let first = lock.clone().acquire().await?;
    let (first_token, first_read) = (first.fencing_token(), 10);
    // In earnest it is paused, and its lease runs out.
    first.release().await?;
    let second = lock.acquire().await?;

    for (sku, fenced) in [("a", false), ("b", true)] {
        let row = format!("sku = '{sku}'");
        // The second holder sells three; then the first one goes on with what it read before, and sells one.
        for (token, left) in [(second.fencing_token(), 7), (first_token, first_read - 1)] {
            if !fenced {
                sql(&database, &format!("UPDATE stock SET count = {left} WHERE {row}"))?;
                continue;
            }
            let written = stock.update(token, &format!("count = {left}"), &row).run_blocking(
                |statement| {
                    anyhow::Ok(
                        number(&database, &format!("{statement}; SELECT changes()"))?.unwrap_or(0) as u64
                    )
                },
                |look_up| number(&database, look_up),
            );
            match written {
                Ok(written) => ensure!(written == Written::Done, "{written:?}"),
                Err(Refused::Stale(_)) => println!("the late write was refused"),
                Err(Refused::Failed(error)) => return Err(error),
            }
        }
        let left = number(&database, &format!("SELECT count FROM stock WHERE {row}"))?
            .context("the row is there")?;
        let how = if fenced { "with the fence" } else { "without a fence" };
        println!("{how}, 10 less 3 is {left}");
        ensure!(!fenced || left == 7, "{left} are left");
    }
    Ok(second.release().await?)
}
