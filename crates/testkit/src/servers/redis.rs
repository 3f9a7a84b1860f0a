//! Redis, with a directory of its own: a server, a replica, a part of a cluster, or a Sentinel.

mod cluster;
mod replicated;

use crate::process::{Process, free_address};
use anyhow::{Context, ensure};
pub use cluster::Cluster;
pub use replicated::Replicated;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// Several servers agree on who does what within this time.
const AGREED_MAX: Duration = Duration::from_secs(60);

/// A server that may be killed and started again on its data. Dropping it kills it.
pub struct Redis {
    directory: TempDir,
    /// Where it listens.
    pub address: SocketAddr,
    settings: Vec<String>,
    process: Option<Process>,
}

impl Redis {
    /// Starts one that syncs before it answers, with further settings as on a command line.
    pub async fn start(settings: &[&str]) -> anyhow::Result<Self> {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let (directory, address) = (TempDir::new()?, free_address()?);
        let mut redis = Self { directory, address, settings, process: None };
        redis.start_again().await?;
        Ok(redis)
    }

    /// Starts it on the data it has.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let (directory, port) = (self.directory.path(), self.address.port().to_string());
        let mut arguments: Vec<String> = Vec::new();
        // A Sentinel's settings are in a file, because it writes them.
        if let Some(file) = self.settings.first().filter(|first| first.starts_with("port")) {
            let path = directory.join("sentinel.conf");
            std::fs::write(&path, file.replacen("port", &format!("port {port}"), 1))?;
            arguments.extend([path.display().to_string(), "--sentinel".into()]);
        } else {
            let usual = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""];
            arguments.extend(usual.map(String::from));
            // With a certificate it speaks TLS and nothing else.
            let tls = self.settings.iter().any(|setting| setting == "--tls-cert-file");
            let ports =
                if tls { ["--port", "0", "--tls-port", &port] } else { ["--port", &port, "--tls-port", "0"] };
            arguments.extend(ports.map(String::from));
            arguments.extend(["--dir".into(), directory.display().to_string()]);
            arguments.extend(self.settings.iter().cloned());
        }
        arguments.extend(["--bind".into(), "127.0.0.1".into()]);
        let process = Process::start("redis", Path::new("redis-server"), arguments, self.address, directory)?;
        self.process = Some(process.listening(directory).await?);
        Ok(())
    }

    /// The process.
    pub fn process(&self) -> anyhow::Result<&Process> {
        self.process.as_ref().context("it doesn't run")
    }

    /// Ends it, asked or from one moment to the next.
    pub async fn end(&mut self, crash: bool) -> anyhow::Result<()> {
        match self.process.take() {
            Some(process) if crash => process.kill().await,
            Some(process) => process.stop().await,
            None => Ok(()),
        }
    }

    /// A copy of what it has on its disk.
    pub fn backup(&self) -> anyhow::Result<TempDir> {
        let copy = TempDir::new()?;
        copied(&self.directory.path().join("appendonlydir"), copy.path())?;
        Ok(copy)
    }

    /// Puts a copy in the place of what it has; it must have ended, and isn't started.
    pub fn restore(&self, backup: &TempDir) -> anyhow::Result<()> {
        std::fs::remove_dir_all(self.directory.path().join("appendonlydir"))?;
        copied(&backup.path().join("appendonlydir"), self.directory.path())
    }

    /// What it says to a command.
    pub fn say(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let port = self.address.port().to_string();
        let output =
            Command::new("timeout").args(["30", "redis-cli", "-p", &port]).args(arguments).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

fn copied(directory: &Path, into: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").arg("-a").arg(directory).arg(into).status()?;
    ensure!(status.success(), "can't copy {}", directory.display());
    Ok(())
}

/// Waits for what servers arrange between themselves.
async fn agreed(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let until = Instant::now() + AGREED_MAX;
    while !is_so()? {
        ensure!(Instant::now() < until, "not within {AGREED_MAX:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
