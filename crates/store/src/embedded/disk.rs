//! The few file operations the embedded store needs, behind a trait so that tests can put a disk that tears,
//! forgets, flips and fills up underneath it.

#[cfg(any(test, feature = "conformance"))]
pub mod simulated;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One flat directory.
pub trait Disk: Send + Sync + 'static {
    /// The names of its files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A new, empty file; an old one of that name is emptied.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// A file that is there.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names durable: those created, renamed and removed so far.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `bytes` from `offset`.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, in one piece where the system allows.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts it to `length` bytes.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Makes its bytes and its length durable.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of this machine, locked against other processes for as long as this value lives.
pub struct RealDisk {
    directory: PathBuf,
    lock: File,
}

impl RealDisk {
    /// Makes the directory if need be and takes its lock; `None` when somebody else has it.
    pub fn open(directory: &Path) -> io::Result<Option<Self>> {
        create_durably(directory)?;
        let path = directory.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { directory: directory.to_owned(), lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Makes a directory whose name survives a power failure, as what is synced inside it does.
fn create_durably(directory: &Path) -> io::Result<()> {
    let missing: Vec<_> = directory.ancestors().take_while(|path| !path.exists()).collect();
    std::fs::create_dir_all(directory)?;
    for parent in missing.iter().filter_map(|path| path.parent()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

impl Drop for RealDisk {
    /// Closing alone would leave the lock to a child process that was just forked, until it starts its program.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "can't release the data directory before closing it");
        }
    }
}

impl Disk for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let names =
            std::fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(true).open(self.directory.join(name))?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(self.directory.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.directory.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
