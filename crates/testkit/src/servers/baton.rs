//! Baton itself, from the binary that cargo built beside the test.

use crate::process::{Process, free_address};
use anyhow::{Context, ensure};
use std::path::PathBuf;
use tempfile::TempDir;

/// A node. Dropping it kills it.
pub struct Node {
    _directory: TempDir,
    process: Process,
}

impl Node {
    /// Starts one on a store of its own, or on one that it shares: `embedded:`, or a store's URL.
    pub async fn start(store: &str) -> anyhow::Result<Self> {
        Self::within(TempDir::new()?, store, &[]).await
    }

    /// The same, with a file of limits.
    pub async fn with_limits(store: &str, limits: &str) -> anyhow::Result<Self> {
        let directory = TempDir::new()?;
        let path = directory.path().join("limits.yaml");
        std::fs::write(&path, limits)?;
        Self::within(directory, store, &["--limits", &path.display().to_string()]).await
    }

    async fn within(directory: TempDir, store: &str, more: &[&str]) -> anyhow::Result<Self> {
        let address = free_address()?;
        let data = directory.path().join("data").display().to_string();
        let listen = address.to_string();
        let arguments = ["serve", "--listen", &listen, "--store", store, "--data", &data];
        let arguments = arguments.iter().chain(more);
        let process = Process::start("baton", &binary()?, arguments, address, directory.path())?;
        let process = process.listening(directory.path()).await?;
        Ok(Self { _directory: directory, process })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.process.address)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Ends it from one moment to the next.
    pub async fn kill(self) -> anyhow::Result<()> {
        self.process.kill().await
    }
}

/// `cargo test --workspace` builds it; for the tests of one crate alone it must have been built before.
fn binary() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let directory = test.parent().and_then(|deps| deps.parent()).context("a test runs below target/")?;
    let binary = directory.join("baton");
    ensure!(binary.is_file(), "{} is missing: run cargo build -p baton first", binary.display());
    Ok(binary)
}
