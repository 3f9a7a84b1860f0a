//! Envoy, from the package that `scripts/install-test-tools` brings in.

use crate::process::{Process, free_address};
use anyhow::{Context, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use tempfile::TempDir;

/// A proxy. Dropping it kills it.
pub struct Envoy {
    _directory: TempDir,
    process: Process,
}

impl Envoy {
    /// Starts one on a configuration that is made for the address which it must listen on.
    pub async fn start(configuration: impl FnOnce(SocketAddr) -> String) -> anyhow::Result<Self> {
        let (directory, address) = (TempDir::new()?, free_address()?);
        let path = directory.path().join("envoy.yaml");
        std::fs::write(&path, configuration(address))?;
        let path = path.display().to_string();
        // Without what lets one process take over from another: several of them on a machine would meet there.
        let arguments = ["-c", &path, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warn"];
        let process = Process::start("envoy", &binary()?, arguments, address, directory.path())?;
        let process = process.listening(directory.path()).await?;
        Ok(Self { _directory: directory, process })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.process.address
    }
}

/// Beside what cargo builds. The package's command becomes the program, so that ends when the process does that we started.
fn binary() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test runs below target/")?;
    let binary = target.join("test-venv/bin/envoy");
    ensure!(binary.is_file(), "{} is missing: run scripts/install-test-tools first", binary.display());
    Ok(binary)
}
