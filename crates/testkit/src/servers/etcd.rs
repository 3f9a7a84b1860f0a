//! etcd, one member or several, each with a data directory of its own.

use crate::certificates::Certificates;
use crate::process::{Process, free_address};
use anyhow::{Context, ensure};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

const START_MAX: Duration = Duration::from_secs(60);

struct Member {
    directory: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Process>,
}

/// A cluster whose members may be stopped, killed and started again on their data. Dropping it kills them.
pub struct Etcd {
    members: Vec<Member>,
    settings: Vec<String>,
    /// Who vouches for its members, if they speak TLS.
    authority: Option<PathBuf>,
}

impl Etcd {
    /// A cluster of `members` that hasn't been started.
    pub fn new(members: usize) -> anyhow::Result<Self> {
        Self::with(members, &[])
    }

    /// The same, with further settings as on a command line.
    pub fn with(members: usize, settings: &[&str]) -> anyhow::Result<Self> {
        let member = |_| {
            let (client, peer) = (free_address()?, free_address()?);
            Ok(Member { directory: tempfile::tempdir()?, client, peer, process: None })
        };
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Ok(Self {
            members: (0..members).map(member).collect::<anyhow::Result<_>>()?,
            settings,
            authority: None,
        })
    }

    /// One member that speaks TLS with its clients and nothing else.
    pub fn with_tls(certificates: &Certificates) -> anyhow::Result<Self> {
        let (certificate, key) = (certificates.certificate("server"), certificates.key("server"));
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let etcd = Self::with(1, &["--cert-file", &certificate, "--key-file", &key])?;
        Ok(Self { authority: Some(certificates.authority()), ..etcd })
    }

    /// The store's URL.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.endpoints())
    }

    /// All client addresses.
    pub fn endpoints(&self) -> String {
        let addresses: Vec<_> = self.members.iter().map(|member| member.client.to_string()).collect();
        addresses.join(",")
    }

    /// Starts every member that doesn't run, and waits until the cluster takes writes.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        let named = |(index, member): (usize, &Member)| format!("m{index}=http://{}", member.peer);
        let cluster = self.members.iter().enumerate().map(named).collect::<Vec<_>>().join(",");
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.process.is_some() {
                continue;
            }
            let (client, peer) = (format!("{scheme}://{}", member.client), format!("http://{}", member.peer));
            let directory = member.directory.path();
            let (name, data) = (format!("m{index}"), directory.join("data").display().to_string());
            let arguments = [
                ["--name", &name],
                ["--data-dir", &data],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", &peer],
                ["--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &cluster],
                ["--logger", "zap"],
                ["--log-level", "error"],
            ];
            let arguments = arguments.as_flattened().iter().copied();
            let arguments = arguments.chain(self.settings.iter().map(String::as_str));
            let program = Path::new("etcd");
            let process = Process::start("etcd", program, arguments, member.client, directory)?;
            member.process = Some(process);
        }
        for member in &mut self.members {
            let process = member.process.take().context("just started")?;
            member.process = Some(process.listening(member.directory.path()).await?);
        }
        let until = Instant::now() + START_MAX;
        while self.control(&["put", "started", ""]).is_err() {
            ensure!(Instant::now() < until, "etcd takes no writes after {START_MAX:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Stops every member, as an operator would.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            if let Some(process) = member.process.take() {
                process.stop().await?;
            }
        }
        Ok(())
    }

    /// Puts the data of a snapshot in the place of what a single member has; it must be stopped, and isn't started.
    pub fn restore(&self, snapshot: &Path) -> anyhow::Result<()> {
        let [member] = &self.members[..] else { anyhow::bail!("one member, not {}", self.members.len()) };
        let (data, peer) = (member.directory.path().join("data"), format!("http://{}", member.peer));
        std::fs::remove_dir_all(&data)?;
        let (snapshot, data) = (snapshot.display().to_string(), data.display().to_string());
        let arguments = ["snapshot", "restore", &snapshot, "--data-dir", &data, "--name", "m0"];
        let cluster = format!("m0={peer}");
        let member = ["--initial-cluster", &cluster, "--initial-advertise-peer-urls", &peer];
        self.control(&[&arguments[..], &member].concat()).map(drop)
    }

    /// Kills one member.
    pub async fn kill(&mut self, index: usize) -> anyhow::Result<()> {
        match self.members[index].process.take() {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Where a member answers its clients.
    pub fn address(&self, index: usize) -> SocketAddr {
        self.members[index].client
    }

    /// How many calls a member has answered so far, by the name of the method: as it counts them itself.
    pub fn calls(&self, index: usize) -> anyhow::Result<HashMap<String, u64>> {
        let mut stream = TcpStream::connect(self.members[index].client)?;
        stream.set_read_timeout(Some(START_MAX))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics)?;
        let counted = metrics.lines().filter_map(|line| {
            let labels = line.strip_prefix("grpc_server_handled_total{")?;
            let method = labels.split_once("grpc_method=\"")?.1.split_once('"')?.0;
            Some((method.to_owned(), labels.rsplit_once(' ')?.1.parse::<f64>().ok()? as u64))
        });
        let mut calls = HashMap::new();
        for (method, count) in counted {
            *calls.entry(method).or_default() += count;
        }
        ensure!(calls.contains_key("Txn"), "no count of calls in etcd's metrics");
        Ok(calls)
    }

    /// A member that runs, by its place.
    pub fn process(&self, index: usize) -> &Process {
        self.members[index].process.as_ref().expect("this member runs")
    }

    /// Which member leads.
    pub fn leader(&self) -> anyhow::Result<usize> {
        for (index, member) in self.members.iter().enumerate().filter(|(_, member)| member.process.is_some())
        {
            let status =
                self.run(&member.client.to_string(), &["endpoint", "status", "--write-out=simple"])?;
            // endpoint, id, version, size, is leader, …
            if status.split(", ").nth(4) == Some("true") {
                return Ok(index);
            }
        }
        anyhow::bail!("no member leads")
    }

    /// Runs etcdctl; gives what it writes.
    pub fn control(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.run(&self.endpoints(), arguments)
    }

    fn run(&self, endpoints: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints, "--command-timeout", "2s"]);
        if let Some(authority) = &self.authority {
            command.arg("--cacert").arg(authority);
        }
        let output = command.args(arguments).output().context("etcdctl isn't installed")?;
        ensure!(output.status.success(), "etcdctl: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
