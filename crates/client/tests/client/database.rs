//! Real databases, each with sessions of its own command-line client: what the fence's statements are made for is any
//! driver, so the leanest will do.

use baton_client::fence::{Dialect, Refused, SqlWrite, Written};
use baton_testkit::servers::mariadb::MariaDb;
use baton_testkit::servers::postgres::Postgres;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// What a session says when it has answered.
const END: &str = "--end--";

pub enum Database {
    Postgres(Postgres),
    MariaDb(MariaDb),
    Sqlite(TempDir),
}

impl Database {
    pub async fn postgres() -> Self {
        let mut server = Postgres::new().unwrap();
        server.start().await.unwrap();
        Self::Postgres(server)
    }

    pub async fn mariadb() -> Self {
        Self::MariaDb(MariaDb::start().await.unwrap())
    }

    pub fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::MariaDb(_) => Dialect::MySql,
            Self::Sqlite(_) => Dialect::Sqlite,
        }
    }

    pub fn session(&self) -> Session {
        let mut command = match self {
            Self::Postgres(server) => server.client().unwrap(),
            Self::MariaDb(server) => server.client(),
            Self::Sqlite(directory) => {
                // It writes to a pipe only when its buffer is full, unless told otherwise.
                let mut command = Command::new("stdbuf");
                command.args(["-oL", "sqlite3", "-batch", "-cmd", ".timeout 20000"]);
                command.arg(directory.path().join("database"));
                command
            }
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Session { child, input, output, dialect: self.dialect() }
    }
}

/// A connection. Dropping it kills the client, and what it hadn't committed is gone.
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    dialect: Dialect,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Session {
    /// What the client answers to statements.
    pub fn say(&mut self, statements: &str) -> Vec<String> {
        let end = match self.dialect {
            Dialect::Postgres => format!("\\echo {END}"),
            Dialect::MySql => format!("SELECT '{END}';"),
            Dialect::Sqlite => format!(".print {END}"),
        };
        writeln!(self.input, "{statements};\n{end}").unwrap();
        let mut answer = Vec::new();
        loop {
            let line = self.output.next().expect("the client ended").unwrap();
            if line == END {
                return answer;
            }
            answer.push(line);
        }
    }

    /// How many rows a statement affected, as a driver would say.
    pub fn execute(&mut self, statement: &str) -> u64 {
        let answer = match self.dialect {
            // `UPDATE 1`, `INSERT 0 1`
            Dialect::Postgres => self.say(statement),
            Dialect::MySql => self.say(&format!("{statement}; SELECT ROW_COUNT()")),
            Dialect::Sqlite => self.say(&format!("{statement}; SELECT changes()")),
        };
        let count = answer.last().and_then(|line| line.rsplit(' ').next()?.parse().ok());
        count.unwrap_or_else(|| panic!("{statement}: {answer:?}"))
    }

    pub fn number(&mut self, query: &str) -> Option<i64> {
        let answer = self.say(query);
        answer.first().map(|line| line.trim().parse().unwrap_or_else(|_| panic!("{query}: {answer:?}")))
    }

    /// Runs a guarded write: what became of it, or the highest token if it is stale.
    pub fn write(&mut self, write: &SqlWrite) -> Result<Written, Option<u64>> {
        let session = std::cell::RefCell::new(self);
        let written = write.run_blocking(
            |statement| Ok::<_, std::convert::Infallible>(session.borrow_mut().execute(statement)),
            |look_up| Ok(session.borrow_mut().number(look_up)),
        );
        written.map_err(|refused| match refused {
            Refused::Stale(stale) => stale.highest,
            Refused::Failed(never) => match never {},
        })
    }
}
