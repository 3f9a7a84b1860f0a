//! Where it ran: enough to read the numbers by, nothing that tells whose machine it is.

use anyhow::Context;
use std::path::{Path, PathBuf};

/// Directories of this run, and what the machine is.
pub struct Place {
    /// This crate's source.
    pub source: PathBuf,
    /// Cargo's target directory, in which this program lies.
    pub target: PathBuf,
    /// Logical processors.
    pub cores: usize,
    cpu: String,
    kernel: String,
    file_system: String,
    memory_gib: u64,
    load: String,
}

impl Place {
    /// Looks around.
    pub fn find() -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let target =
            program.parent().and_then(Path::parent).context("no target directory above this program")?;
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let memory_kib: u64 = memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        Ok(Self {
            source: env!("CARGO_MANIFEST_DIR").into(),
            target: target.into(),
            cores: std::thread::available_parallelism()?.get(),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown CPU".into()),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            file_system: file_system(target).unwrap_or_else(|| "unknown".into()),
            memory_gib: memory_kib.div_ceil(1 << 20),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().into(),
        })
    }

    /// Lets every server have its files on the disk that the target directory is on: the system's own place for
    /// temporary files may be in memory, where a sync costs nothing.
    pub fn use_its_disk(&self) -> anyhow::Result<()> {
        tempfile::env::override_temp_dir(&self.target)
            .ok()
            .context("the directory for data was chosen already")
    }

    /// A directory for one server's files.
    pub fn directory(&self) -> anyhow::Result<tempfile::TempDir> {
        tempfile::Builder::new().prefix("bench-").tempdir_in(&self.target).context("no directory for data")
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let Self { cores, cpu, kernel, file_system, memory_gib, .. } = self;
        format!("{cores} cores ({cpu}), {memory_gib} GiB, Linux {kernel}, data on {file_system}")
    }

    /// How busy others kept the machine when we came, in one line.
    pub fn describe_load(&self) -> String {
        format!(
            "load average when it began: {} (on a quiet machine near 0; else read the ratios with care)",
            self.load
        )
    }

    /// Whether a sync on it may cost nothing.
    pub fn is_in_memory(&self) -> bool {
        self.file_system == "tmpfs" || self.file_system == "ramfs"
    }
}

/// The type of the file system that holds a path: that of the longest mount point above it.
fn file_system(path: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        path.starts_with(point).then_some((point.len(), kind))
    });
    mounts.max_by_key(|(length, _)| *length).map(|(_, kind)| kind.to_owned())
}

/// Today, in UTC.
pub fn today() -> String {
    let date = std::process::Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    date.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default().trim().into()
}
