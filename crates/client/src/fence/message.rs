//! A processor of messages that handles each once, and stops when it is no longer the one to do so (F2).
//!
//! A broker delivers again what wasn't acknowledged, and a processor that lost its lock may still be at work. So the
//! place in the stream and the highest token are kept in the database that the effects go to, and are written by the
//! same transaction: compared before it commits, and gone with it if it doesn't.

use super::sql::{Dialect, SqlFence, SqlWrite};
use crate::FencingToken;

/// A table with a row for each stream: how far it has come, and the highest token.
///
/// One transaction for a message, or for a batch of them:
///
/// ```
/// use baton_client::fence::{Dialect, FencingToken, MessageFence};
///
/// let payments = MessageFence::new(Dialect::Postgres, "payments_progress");
/// let token = FencingToken::new(34);
/// let transaction = [
///     "BEGIN".to_owned(),
///     // Stale: roll back, and stop consuming. Others wait here until this transaction ends.
///     payments.enter(token, "'payments-0'").statement(),
///     // No row: this message was handled before. Commit, acknowledge, go on with the next.
///     payments.advance("'payments-0'", 42),
///     "UPDATE balance SET amount = amount + 10 WHERE account = 'a'".to_owned(),
///     "COMMIT".to_owned(),
/// ];
/// // Only now acknowledge the message to the broker.
/// # drop(transaction);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageFence {
    table: String,
    fence: SqlFence,
}

impl MessageFence {
    /// A fence in this table. The name goes into statements as it is.
    pub fn new(dialect: Dialect, table: impl Into<String>) -> Self {
        let table = table.into();
        Self { fence: SqlFence::new(dialect, &table), table }
    }

    /// The statement that makes the table.
    pub fn create(&self) -> String {
        let create = self.fence.create();
        let create = create.strip_suffix(')').unwrap_or(&create);
        format!("{create}, position BIGINT NOT NULL DEFAULT -1)")
    }

    /// Takes the stream's fence for the rest of the transaction; see [`SqlFence::enter`]. `stream` is an expression: your
    /// parameter, or a literal.
    pub fn enter(&self, token: FencingToken, stream: &str) -> SqlWrite {
        self.fence.enter(token, stream)
    }

    /// The statement that moves the stream on to the message at `position` (its offset or sequence number). It
    /// changes one row, or none if that message, or a later one, was handled before: then leave its effects out.
    ///
    /// Run it after [`enter`](Self::enter), in the same transaction.
    pub fn advance(&self, stream: &str, position: u64) -> String {
        let table = &self.table;
        format!(
            "UPDATE {table} SET position = {position} WHERE resource = {stream} AND position < {position}"
        )
    }

    /// The query for the position of the last message that was handled: where to go on after a restart.
    pub fn position(&self, stream: &str) -> String {
        format!("SELECT position FROM {} WHERE resource = {stream}", self.table)
    }
}
