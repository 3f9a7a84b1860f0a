//! NGINX, with a directory of its own for all that it writes, as whoever runs the test.

use crate::process::{Process, free_address};
use anyhow::Context;
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;

/// A server. Dropping it kills it.
pub struct Nginx {
    directory: TempDir,
    process: Process,
}

impl Nginx {
    /// Starts one on a configuration for the `http` block. That is made for a directory, for sockets and the like, and for the
    /// address that it must listen on.
    pub async fn start(http: impl FnOnce(&Path, SocketAddr) -> String) -> anyhow::Result<Self> {
        let (directory, address) = (TempDir::new()?, free_address()?);
        let path = directory.path();
        std::fs::write(path.join("http.conf"), http(path, address))?;
        std::fs::write(path.join("nginx.conf"), AROUND)?;
        let prefix = path.display().to_string();
        // One process, so that none is left when it is killed: a master's workers would outlive it.
        let globals = "daemon off; master_process off; pid nginx.pid;";
        let arguments = ["-p", &prefix, "-c", "nginx.conf", "-e", "error.log", "-g", globals];
        let process = Process::start("nginx", Path::new("nginx"), arguments, address, path)?;
        let process = process.listening(path).await?;
        Ok(Self { directory, process })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.process.address
    }

    /// What it complained of so far.
    pub fn errors(&self) -> anyhow::Result<String> {
        std::fs::read_to_string(self.directory.path().join("error.log")).context("no error log")
    }
}

/// What packages compile in leads to directories of the system's own server.
const AROUND: &str = "events { worker_connections 2048; }
http {
    access_log off;
    client_body_temp_path client_body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include http.conf;
}
";
