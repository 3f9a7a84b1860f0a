//! PostgreSQL, with a data directory of its own. As root it runs as `postgres`, because it refuses to run as root.

use crate::process::{self, Process, free_address};
use anyhow::{Context, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::Instant;

const START_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(20);

/// A server that may be stopped, killed and started again on its data. Dropping it kills it.
pub struct Postgres {
    directory: TempDir,
    address: SocketAddr,
    process: Option<Process>,
}

impl Postgres {
    /// Makes an empty data directory.
    pub fn new() -> anyhow::Result<Self> {
        let postgres = Self::without_data()?;
        let mut initdb = postgres.command("initdb")?;
        initdb.args(["--no-sync", "--auth=trust", "--username=baton", "--encoding=UTF8", "--locale=C", "-D"]);
        run(initdb.arg(postgres.data()))?;
        Ok(postgres)
    }

    /// A standby with the data that `primary` has now. It follows, unless started with `primary_conninfo=`.
    pub fn standby_of(primary: &Self) -> anyhow::Result<Self> {
        let postgres = Self::without_data()?;
        let mut copy = postgres.command("pg_basebackup")?;
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", &primary.url(), "-D"]);
        run(copy.arg(postgres.data()))?;
        Ok(postgres)
    }

    /// Makes a standby the primary of its own data.
    pub fn promote(&self) -> anyhow::Result<()> {
        run(self.command("pg_ctl")?.args(["promote", "-w", "-t", "20", "-D"]).arg(self.data())).map(drop)
    }

    /// One schema as statements that bring it back.
    pub fn dump(&self, schema: &str) -> anyhow::Result<String> {
        let mut dump = Command::new(program("pg_dump")?);
        let dump = run(dump.args(["--no-owner", "--inserts", "-n", schema, "-d", &self.url()]))?;
        // What only an interactive psql understands.
        Ok(dump.lines().filter(|line| !line.starts_with('\\')).collect::<Vec<_>>().join("\n"))
    }

    /// What it has written to its log since it was last started.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.directory.path().join("output"))?)
    }

    /// A file among its data that nobody but the server may read; gives its path.
    pub fn place(&self, name: &str, contents: &[u8]) -> anyhow::Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.data().join(name);
        std::fs::write(&path, contents)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        if is_root() {
            let owned = Command::new("chown").arg("postgres").arg(&path).status()?;
            ensure!(owned.success(), "can't give {name} to postgres");
        }
        Ok(path)
    }

    fn without_data() -> anyhow::Result<Self> {
        let directory = TempDir::new()?;
        if is_root() {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
            std::fs::create_dir(directory.path().join("data"))?;
            let private = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(directory.path().join("data"), private)?;
            let owned = Command::new("chown").arg("postgres").arg(directory.path().join("data")).status()?;
            ensure!(owned.success(), "can't give the data directory to postgres");
        }
        Ok(Self { directory, address: free_address()?, process: None })
    }

    /// Starts the server, and waits until it takes statements.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        self.start_with(&[]).await
    }

    /// Starts it with settings, each `name=value`.
    pub async fn start_with(&mut self, settings: &[&str]) -> anyhow::Result<()> {
        let (program, mut arguments) = self.as_owner("postgres")?;
        arguments.extend(["-D".into(), self.data().display().to_string()]);
        let port = format!("port={}", self.address.port());
        let sockets = format!("unix_socket_directories={}", self.data().display());
        let fixed =
            ["listen_addresses=127.0.0.1", &port, &sockets, "max_connections=100", "logging_collector=off"];
        for setting in fixed.iter().chain(settings) {
            arguments.extend(["-c".into(), (*setting).to_owned()]);
        }
        let path = self.directory.path();
        let process = Process::start("postgres", &program, arguments, self.address, path)?;
        self.process = Some(process.listening(path).await?);
        let until = Instant::now() + START_MAX;
        // It listens before it has recovered.
        while self.sql("SELECT 1").is_err() {
            ensure!(Instant::now() < until, "postgres takes no statements after {START_MAX:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Stops it without waiting for its clients, in good order.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.pg_ctl("fast").await
    }

    /// Ends it from one moment to the next: no checkpoint, no goodbye.
    pub async fn crash(&mut self) -> anyhow::Result<()> {
        self.pg_ctl("immediate").await
    }

    async fn pg_ctl(&mut self, mode: &str) -> anyhow::Result<()> {
        let mut stop = self.command("pg_ctl")?;
        stop.args(["stop", "-w", "-t", "20", "-m", mode, "-D"]).arg(self.data());
        let status = stop.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "pg_ctl stop -m {mode}: {status}");
        if let Some(process) = self.process.take() {
            process.stop().await?;
        }
        let until = Instant::now() + END_MAX;
        while TcpStream::connect(self.address).await.is_ok() {
            ensure!(Instant::now() < until, "postgres still listens after {END_MAX:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Holds the server and everything it has started still (`true`), or lets it go on.
    pub fn pause(&self, still: bool) -> anyhow::Result<()> {
        let first = std::fs::read_to_string(self.data().join("postmaster.pid"))?;
        let first = first.lines().next().context("no process id")?.to_owned();
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"))?;
        let signal = if still { "-STOP" } else { "-CONT" };
        let mut kill = Command::new("kill");
        kill.arg(signal).arg(&first).args(children.split_whitespace()).stderr(Stdio::null());
        // One of the children may just have ended.
        kill.status()?;
        Ok(())
    }

    /// Holds the sessions that an application has now still, as a connection into nothing would be; new ones are served.
    pub fn hang_sessions(&self, application: &str) -> anyhow::Result<Hung> {
        let sessions = format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{application}'");
        let sessions: Vec<_> = self.sql(&sessions)?.lines().map(str::to_owned).collect();
        ensure!(!sessions.is_empty(), "{application} has no sessions");
        let stopped = Command::new("kill").arg("-STOP").args(&sessions).status()?;
        ensure!(stopped.success(), "can't hold all of {sessions:?} still");
        Ok(Hung(sessions))
    }

    /// What psql answers, one line a row.
    pub fn sql(&self, statements: &str) -> anyhow::Result<String> {
        let mut psql = Command::new(program("psql")?);
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-c", statements]);
        Ok(run(psql.env("PGCONNECT_TIMEOUT", "5"))?.trim().to_owned())
    }

    /// psql, for statements on its standard input; it answers each of them at once, with what it did.
    pub fn client(&self) -> anyhow::Result<Command> {
        let mut psql = Command::new(program("psql")?);
        psql.args(["-X", "-A", "-t", "-d", &self.url()]).env("PGCONNECT_TIMEOUT", "5");
        Ok(psql)
    }

    /// Where it is, without parameters.
    pub fn url(&self) -> String {
        format!("postgres://baton@{}/postgres", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn command(&self, name: &str) -> anyhow::Result<Command> {
        let (program, arguments) = self.as_owner(name)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory.path());
        Ok(command)
    }

    fn as_owner(&self, name: &str) -> anyhow::Result<(PathBuf, Vec<String>)> {
        let program = program(name)?;
        if !is_root() {
            return Ok((program, Vec::new()));
        }
        // A change of user clears the signal that ends it with us, so it is asked for again.
        let mut arguments = vec!["--reuid=postgres", "--regid=postgres", "--clear-groups"];
        if name == "postgres" {
            arguments.extend(["--pdeathsig", "KILL"]);
        }
        let mut arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
        arguments.extend(["--".to_owned(), program.display().to_string()]);
        Ok((PathBuf::from("setpriv"), arguments))
    }
}

/// Sessions that stand still. They go on, or learn that they are over, when this is dropped.
pub struct Hung(Vec<String>);

impl Drop for Hung {
    fn drop(&mut self) {
        // Some may have been ended meanwhile.
        Command::new("kill").arg("-CONT").args(&self.0).stderr(Stdio::null()).status().ok();
    }
}

/// What the installed one says of its version.
pub fn version() -> anyhow::Result<String> {
    process::version(&program("postgres")?.display().to_string())
}

/// What it prints, if it ends well.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", command.get_program().display(), complaint.trim());
    Ok(String::from_utf8(output.stdout)?)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Debian keeps the server's programs beside each other, by version, and not on the path.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    if let Some(newest) = found.pop() {
        return Ok(newest);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file());
    on_path.with_context(|| format!("{name} of PostgreSQL isn't installed"))
}
