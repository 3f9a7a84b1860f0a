//! Servers that end with us: stopped by their own id, killed if we fail, and told by the kernel if we are.

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(20);

/// A server that runs. Dropping it kills it.
pub struct Process {
    name: &'static str,
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Process {
    /// Starts a server whose output goes to a file in `directory`. The kernel ends the server when the thread that
    /// started it ends: that must be one that lives as long as the server is needed.
    pub fn start(
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        address: SocketAddr,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let output = std::fs::File::create(directory.join("output"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("can't start {name} (through setpriv)"))?;
        Ok(Self { name, child, address })
    }

    /// Waits until its port answers; if it ends instead, says what it wrote.
    pub async fn listening(mut self, directory: &Path) -> anyhow::Result<Self> {
        let until = Instant::now() + START_MAX;
        while TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                let output = std::fs::read_to_string(directory.join("output")).unwrap_or_default();
                bail!("{} ended at once, {status}: {}", self.name, output.trim());
            }
            if Instant::now() > until {
                bail!("{} doesn't listen after {START_MAX:?}", self.name);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(self)
    }

    /// Asks it to stop, and makes it.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if self.child.id().is_some() {
            self.signal(Signal::TERM)?;
        }
        if tokio::time::timeout(STOP_MAX, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }

    /// Ends it from one moment to the next, as a crash would.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Holds it still, as a long pause would: it keeps its connections and answers nothing.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        // On a busy machine a thread of it may go on for a moment after the signal was sent, and answer.
        let until = Instant::now() + STOP_MAX;
        while !self.stands_still()? {
            ensure!(Instant::now() < until, "{} doesn't stand still after {STOP_MAX:?}", self.name);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn stands_still(&self) -> anyhow::Result<bool> {
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.id()?))? {
            // One that has ended meanwhile doesn't go on either.
            let stat = std::fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").map_or("X", |(_, state)| state);
            if !state.starts_with(['T', 't', 'Z', 'X']) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets it go on after [`Process::pause`].
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.id()? as i32).context("no process id")?;
        kill_process(pid, signal).with_context(|| format!("can't send a signal to {}", self.name))
    }

    /// Memory that it keeps resident, in bytes.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kib << 10)
    }

    /// Processor time it has used so far, its own and the kernel's for it.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()?))?;
        let fields: Vec<_> = stat.rsplit_once(") ").context("no stat")?.1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    fn id(&self) -> anyhow::Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.name))
    }
}

/// A loopback address that nobody listened on a moment ago.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// What a program says of its version, in one line.
pub fn version(program: &str) -> anyhow::Result<String> {
    let output = std::process::Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("{program} isn't installed"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}
