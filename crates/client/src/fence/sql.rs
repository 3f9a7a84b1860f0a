//! A fence in a table: a row's `last_token`, compared and written by the statement that writes the data (F2).
//!
//! The text is all there is to it, so any driver will do: run the [statement](SqlWrite::statement), and if it changed no
//! row, run the [look-up](SqlWrite::look_up) to learn why. The token is in the text, as the number it is; your own
//! parameters stay yours.

use super::refusal::{Refused, StaleToken};
use crate::FencingToken;
use std::fmt;

/// Whose SQL to speak.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
}

/// A table whose rows have a fence each, in a column of their own.
///
/// ```
/// use baton_client::fence::{Dialect, FencingToken, SqlFence};
///
/// let stock = SqlFence::new(Dialect::Postgres, "stock");
/// let sell = stock.update(FencingToken::new(34), "count = count - 1", "sku = $1").only_if("count > 0");
/// assert_eq!(
///     sell.statement(),
///     "UPDATE stock SET count = count - 1, last_token = 34 \
///      WHERE (sku = $1) AND (count > 0) AND last_token <= 34",
/// );
/// ```
///
/// A row that is deleted forgets its fence, and a late writer could insert it again. Keep a row for as long as anyone
/// may still be late, or keep the fence in [a table of its own](Self::create) and let the transaction begin with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlFence {
    dialect: Dialect,
    table: String,
    column: String,
}

impl SqlFence {
    /// A fence in the column `last_token` of this table. The name goes into statements as it is: quote it if it needs that,
    /// and never take it from a stranger.
    pub fn new(dialect: Dialect, table: impl Into<String>) -> Self {
        Self { dialect, table: table.into(), column: "last_token".into() }
    }

    /// Another column than `last_token`.
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.column = column.into();
        self
    }

    /// The statement that gives an existing table its column.
    pub fn add_column(&self) -> String {
        format!("ALTER TABLE {} ADD COLUMN {} BIGINT NOT NULL DEFAULT 0", self.table, self.column)
    }

    /// The statement that makes a table of fences, one row a resource, for what isn't one row: several rows, several
    /// tables, rows that are deleted. [Enter](Self::enter) it first in the transaction that writes.
    pub fn create(&self) -> String {
        let text = match self.dialect {
            // A key of bytes: the server must not take "a" and "A", or "a" and "a ", for the same resource.
            Dialect::MySql => "VARBINARY(512)",
            Dialect::Postgres | Dialect::Sqlite => "TEXT",
        };
        format!(
            "CREATE TABLE IF NOT EXISTS {} (resource {text} NOT NULL PRIMARY KEY, {} BIGINT NOT NULL)",
            self.table, self.column
        )
    }

    /// Writes a row: `assignments` as after `SET`, `row` the condition that names it by its key.
    pub fn update(&self, token: FencingToken, assignments: &str, row: &str) -> SqlWrite {
        let (table, column) = (&self.table, &self.column);
        self.guarded(token, row, format!("UPDATE {table} SET {assignments}, {column} = {token}"))
    }

    /// Takes the fence of a resource in a table made by [`create`](Self::create), and keeps others out of it until the
    /// transaction ends: what the transaction writes after it is written under this token or not at all.
    ///
    /// `resource` is an expression, such as your parameter `$1` or `?`; the statement and its look-up take it once each.
    pub fn enter(&self, token: FencingToken, resource: &str) -> SqlWrite {
        let (table, column) = (&self.table, &self.column);
        let insert = format!("INSERT INTO {table} (resource, {column}) VALUES ({resource}, {token})");
        let statement = match self.dialect {
            // It has no condition here. A higher one stays, and the look-up tells.
            Dialect::MySql => {
                format!("{insert} ON DUPLICATE KEY UPDATE {column} = GREATEST({column}, VALUES({column}))")
            }
            Dialect::Postgres | Dialect::Sqlite => format!(
                "{insert} ON CONFLICT (resource) DO UPDATE SET {column} = excluded.{column} \
                 WHERE {table}.{column} <= excluded.{column}"
            ),
        };
        SqlWrite {
            what: statement,
            fence: String::new(),
            look_up: self.look_up(&format!("resource = {resource}")),
            token,
            // How many rows such an insert counts depends on the connection's flags: one that changed nothing may be 0 or 1.
            rows_tell: self.dialect != Dialect::MySql,
        }
    }

    /// Deletes a row. See above for what that does to its fence.
    pub fn delete(&self, token: FencingToken, row: &str) -> SqlWrite {
        self.guarded(token, row, format!("DELETE FROM {}", self.table))
    }

    fn guarded(&self, token: FencingToken, row: &str, what: String) -> SqlWrite {
        let fence = format!(" AND {} <= {token}", self.column);
        let what = format!("{what} WHERE ({row})");
        SqlWrite { what, fence, look_up: self.look_up(row), token, rows_tell: true }
    }

    fn look_up(&self, row: &str) -> String {
        // MySQL reads from the transaction's beginning unless it locks, and would show a fence that is no longer there.
        let lock = if self.dialect == Dialect::MySql { " FOR UPDATE" } else { "" };
        format!("SELECT {} FROM {} WHERE ({row}){lock}", self.column, self.table)
    }
}

/// One guarded statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlWrite {
    what: String,
    fence: String,
    look_up: String,
    token: FencingToken,
    rows_tell: bool,
}

/// What became of a guarded statement that the fence let through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Written {
    /// It is written.
    Done,
    /// The row is there and the fence is open, but nothing changed: a [condition of your own](SqlWrite::only_if) didn't
    /// hold, or what was to be written was there already.
    Unchanged,
    /// There is no such row.
    Missing,
}

impl SqlWrite {
    /// Writes only if this holds for the row as well.
    ///
    /// Only for an update or a delete: to [enter](SqlFence::enter) a fence takes no further condition.
    pub fn only_if(mut self, condition: &str) -> Self {
        if !self.fence.is_empty() {
            self.what.push_str(&format!(" AND ({condition})"));
        }
        self
    }

    /// The statement that writes, if the fence lets it.
    pub fn statement(&self) -> String {
        format!("{}{}", self.what, self.fence)
    }

    /// The query that tells, if the statement changed no row, whether there is one and what its fence has seen.
    /// It takes those of your parameters that name the row.
    pub fn look_up(&self) -> &str {
        &self.look_up
    }

    /// Runs the statement with your driver, and the look-up if that is needed. `execute` gives the number of rows that were
    /// affected, `look_up` the one number of the one row, if there is a row.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # use baton_client::fence::{Dialect, FencingToken, SqlFence, Written};
    /// # struct Client;
    /// # impl Client {
    /// #     async fn execute(&self, _: &str, _: &[&str]) -> Result<u64, std::fmt::Error> { Ok(1) }
    /// #     async fn query_opt(&self, _: &str, _: &[&str]) -> Result<Option<i64>, std::fmt::Error> { Ok(None) }
    /// # }
    /// # let (client, sku, token) = (Client, "123", FencingToken::new(34));
    /// let stock = SqlFence::new(Dialect::Postgres, "stock");
    /// let sell = stock.update(token, "count = count - 1", "sku = $1").only_if("count > 0");
    /// let sold = sell.run(
    ///     async |statement| client.execute(statement, &[sku]).await,
    ///     async |look_up| client.query_opt(look_up, &[sku]).await,
    /// );
    /// assert_eq!(sold.await?, Written::Done);
    /// # Ok::<(), baton_client::fence::Refused<std::fmt::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn run<E>(
        &self,
        execute: impl AsyncFnOnce(&str) -> Result<u64, E>,
        look_up: impl AsyncFnOnce(&str) -> Result<Option<i64>, E>,
    ) -> Result<Written, Refused<E>> {
        let rows = execute(&self.statement()).await.map_err(Refused::Failed)?;
        if self.is_told(rows) {
            return Ok(Written::Done);
        }
        let found = look_up(&self.look_up).await.map_err(Refused::Failed)?;
        Ok(self.judge(found)?)
    }

    /// The same with a driver that blocks.
    pub fn run_blocking<E>(
        &self,
        execute: impl FnOnce(&str) -> Result<u64, E>,
        look_up: impl FnOnce(&str) -> Result<Option<i64>, E>,
    ) -> Result<Written, Refused<E>> {
        let rows = execute(&self.statement()).map_err(Refused::Failed)?;
        if self.is_told(rows) {
            return Ok(Written::Done);
        }
        let found = look_up(&self.look_up).map_err(Refused::Failed)?;
        Ok(self.judge(found)?)
    }

    fn is_told(&self, rows: u64) -> bool {
        rows > 0 && self.rows_tell
    }

    /// Why no row changed. A token that came in after the statement makes it stale now, which is what matters.
    fn judge(&self, found: Option<i64>) -> Result<Written, StaleToken> {
        let Some(found) = found else { return Ok(Written::Missing) };
        let highest = u64::try_from(found).unwrap_or(0);
        if highest > self.token.get() {
            return Err(StaleToken::new(self.token, Some(highest)));
        }
        Ok(if self.fence.is_empty() { Written::Done } else { Written::Unchanged })
    }
}

impl fmt::Display for SqlWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.what, self.fence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn the_row_count_of_a_mysql_insert_is_not_trusted() {
        // With CLIENT_FOUND_ROWS, which many drivers set, a row that stays as it is counts as one.
        let fences = SqlFence::new(Dialect::MySql, "fences");
        let enter = |found| {
            let enter = fences.enter(FencingToken::new(34), "?");
            enter.run_blocking(|_| Ok::<_, Infallible>(1), |_| Ok(Some(found)))
        };
        assert_eq!(enter(34), Ok(Written::Done));
        assert_eq!(enter(35).unwrap_err().stale().map(|stale| stale.highest), Some(Some(35)));
    }

    #[tokio::test]
    async fn a_driver_s_failure_is_passed_on_and_never_taken_for_a_refusal() {
        let update = SqlFence::new(Dialect::Sqlite, "stock").update(FencingToken::new(34), "a = 1", "id = 1");
        let failed = update.run(async |_| Err("locked"), async |_| Ok(None)).await;
        assert_eq!(failed, Err(Refused::Failed("locked")));
        let failed = update.run(async |_| Ok(0), async |_| Err("gone")).await;
        assert_eq!(failed, Err(Refused::Failed("gone")));
    }

    #[test]
    fn the_column_s_name_is_used_throughout() {
        let fence = SqlFence::new(Dialect::Postgres, "stock").column("fence");
        let update = fence.update(FencingToken::new(34), "count = 1", "sku = $1");
        let texts = [fence.add_column(), fence.create(), update.statement(), update.look_up().into()];
        assert!(texts.iter().all(|text| text.contains("fence") && !text.contains("last_token")), "{texts:?}");
    }
}
