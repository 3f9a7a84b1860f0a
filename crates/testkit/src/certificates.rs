//! An authority, and certificates that it has signed: made by the openssl command, for one test.

use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Files that end with the value.
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// An authority, a server's certificate for 127.0.0.1, and a client's.
    pub fn new() -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let directory = TempDir::new()?;
        // Servers that run as somebody else read them too.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
        let path = directory.path();
        make(path, "authority", "/CN=An authority for a test", &[])?;
        let signed =
            ["-CA", "authority.pem", "-CAkey", "authority.key", "-addext", "basicConstraints=CA:FALSE"];
        make(
            path,
            "server",
            "/CN=server",
            &[&signed[..], &["-addext", "subjectAltName=IP:127.0.0.1"]].concat(),
        )?;
        make(path, "client", "/CN=client", &signed)?;
        Ok(Self { directory })
    }

    /// The authority's own certificate.
    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// The certificate of `server` or `client`.
    pub fn certificate(&self, of: &str) -> PathBuf {
        self.directory.path().join(format!("{of}.pem"))
    }

    /// The key to it.
    pub fn key(&self, of: &str) -> PathBuf {
        self.directory.path().join(format!("{of}.key"))
    }
}

fn make(directory: &Path, name: &str, subject: &str, further: &[&str]) -> anyhow::Result<()> {
    let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    openssl.args(["-days", "2", "-subj", subject, "-out", &certificate, "-keyout", &key]).args(further);
    let output = openssl.current_dir(directory).output().context("openssl isn't installed")?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
