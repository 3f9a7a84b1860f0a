//! MariaDB, with a data directory of its own. As root it runs as `mysql`, because it refuses to run as root.

use crate::process::{Process, free_address};
use anyhow::{Context, ensure};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

const START_MAX: Duration = Duration::from_secs(60);

/// A server. Dropping it kills it.
pub struct MariaDb {
    directory: TempDir,
    address: SocketAddr,
    process: Option<Process>,
}

impl MariaDb {
    /// Makes an empty data directory and starts a server on it. Whoever connects as `baton` may do everything.
    pub async fn start() -> anyhow::Result<Self> {
        let mut server = Self { directory: TempDir::new()?, address: free_address()?, process: None };
        let (directory, data) = (server.directory.path(), server.data());
        std::fs::create_dir(&data)?;
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
        if is_root() {
            let owned = Command::new("chown").arg("mysql").arg(&data).status()?;
            ensure!(owned.success(), "can't give the data directory to mysql");
        }
        let options = server.options();
        let mut install = Command::new("mariadb-install-db");
        install.args(&options[..2]).args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        run(install.args(is_root().then_some("--user=mysql")))?;
        let init = directory.join("init.sql");
        let grant = "CREATE DATABASE baton; CREATE USER baton@'127.0.0.1'; \
                     GRANT ALL ON *.* TO baton@'127.0.0.1';";
        std::fs::write(&init, format!("{}\n", grant.replace("; ", ";\n")))?;
        std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o644))?;

        let mut arguments = options;
        arguments.push(format!("--init-file={}", init.display()));
        let (program, arguments) = as_owner(arguments);
        let process = Process::start("mariadbd", &program, arguments, server.address, directory)?;
        server.process = Some(process.listening(directory).await?);
        let until = Instant::now() + START_MAX;
        while server.sql("SELECT 1").is_err() {
            ensure!(Instant::now() < until, "mariadbd takes no statements after {START_MAX:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(server)
    }

    /// What the client answers, one line a row, tabs between columns.
    pub fn sql(&self, statements: &str) -> anyhow::Result<String> {
        Ok(run(self.client().args(["--execute", statements]))?.trim().to_owned())
    }

    /// The client, for statements on its standard input; it answers each of them at once.
    pub fn client(&self) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=baton"]);
        client.args(["--database=baton", "--batch", "--unbuffered", "--skip-column-names"]);
        client.arg("--connect-timeout=5").arg(format!("--port={}", self.address.port()));
        client
    }

    fn options(&self) -> Vec<String> {
        let data = self.data();
        let shown = data.display();
        vec![
            "--no-defaults".into(),
            format!("--datadir={shown}"),
            format!("--socket={shown}/socket"),
            format!("--pid-file={shown}/pid"),
            format!("--port={}", self.address.port()),
            "--bind-address=127.0.0.1".into(),
            // It is thrown away: what a crash would leave is not the question here.
            "--innodb-flush-log-at-trx-commit=0".into(),
            "--innodb-buffer-pool-size=16M".into(),
        ]
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

fn as_owner(options: Vec<String>) -> (PathBuf, Vec<String>) {
    if !is_root() {
        return (PathBuf::from("mariadbd"), options);
    }
    // A change of user clears the signal that ends it with us, so it is asked for again.
    let change =
        ["--reuid=mysql", "--regid=mysql", "--clear-groups", "--pdeathsig", "KILL", "--", "mariadbd"];
    (PathBuf::from("setpriv"), change.map(str::to_owned).into_iter().chain(options).collect())
}

/// What it prints, if it ends well.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{name} isn't installed"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", complaint.trim());
    Ok(String::from_utf8(output.stdout)?)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
