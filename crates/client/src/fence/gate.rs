//! A gate whose highest epoch survives crashes, in a file (E10).

use super::refusal::{Refused, StaleToken};
use crate::{FencingToken, Stamped};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the file begins with. Another version is refused, not guessed at.
const HEADER: &str = "baton epoch gate 1";

/// Admits whoever comes with the highest epoch so far, or a higher one, and refuses lower ones, also after a restart,
/// a crash or a power cut: a new highest is on disk before it is admitted.
///
/// For whoever receives a leader's orders, and for files. Processes of one machine may share a gate: each step takes
/// the operating system's lock on a file beside it, which ends with the process. It doesn't work across machines:
/// network file systems don't keep such locks well enough.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use baton_client::fence::{EpochGate, FencingToken};
///
/// # let directory = std::env::temp_dir().join(format!("baton-gate-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let gate = EpochGate::open(directory.join("orders.epoch"))?;
/// gate.admit(FencingToken::new(35))?;
/// let late = gate.admit(FencingToken::new(34)).unwrap_err();
/// assert_eq!(late.stale().map(|stale| stale.highest), Some(Some(35)));
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EpochGate {
    path: PathBuf,
    directory: PathBuf,
    lock: PathBuf,
    /// The epoch that this gate knows to be on disk, name and all; 0 before it has seen to it.
    synced: AtomicU64,
}

impl EpochGate {
    /// A gate at this path; a file that isn't there yet has seen nothing. Its directory must exist.
    ///
    /// Losing the file is losing the fence: keep it where the data is.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let name = path.file_name().ok_or_else(|| unusable(&path, "has no file name"))?.to_owned();
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut lock = name;
        lock.push(".lock");
        let gate = Self { lock: directory.join(lock), directory, path, synced: AtomicU64::new(0) };
        gate.highest()?;
        Ok(gate)
    }

    /// The highest epoch so far; nothing before the first.
    pub fn highest(&self) -> io::Result<Option<FencingToken>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // The last line break tells a whole number from the beginning of one.
        let epoch = text.strip_prefix(HEADER).and_then(|rest| rest.strip_prefix('\n')?.strip_suffix('\n'));
        let epoch = epoch.and_then(|epoch| epoch.parse().ok());
        let epoch = epoch.ok_or_else(|| unusable(&self.path, "is damaged, or of a newer version"))?;
        Ok(Some(FencingToken::new(epoch)))
    }

    /// Admits an epoch that is not lower than any before. A new highest costs two syncs, and one that was there already costs one, the first time.
    /// It blocks for as long: in async code, go through `spawn_blocking` if that matters.
    ///
    /// After an error, the new highest may be on disk or not; the epoch was not admitted.
    pub fn admit(&self, epoch: impl Into<FencingToken>) -> Result<(), Refused<io::Error>> {
        self.write(epoch, || Ok(()))
    }

    /// What a leader said, if it still may: the message comes out only when its epoch was admitted.
    pub fn receive<T>(&self, stamped: Stamped<T>) -> Result<T, Refused<io::Error>> {
        self.admit(stamped.epoch)?;
        Ok(stamped.message)
    }

    /// Runs `write` if the epoch is admitted, before anyone else is: check and write are one step to all who come
    /// through this gate. A writer that is stopped in the middle keeps the others waiting, so keep it short.
    ///
    /// The new highest is kept before `write` runs, whatever becomes of that.
    pub fn write<T>(
        &self,
        epoch: impl Into<FencingToken>,
        write: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, Refused<io::Error>> {
        let epoch = epoch.into();
        let lock = File::options().create(true).append(true).open(&self.lock).map_err(Refused::Failed)?;
        lock.lock().map_err(Refused::Failed)?;
        let highest = self.highest().map_err(Refused::Failed)?;
        match highest {
            Some(highest) if epoch < highest => {
                return Err(StaleToken::new(epoch, Some(highest.get())).into());
            }
            // Whoever put it there may have been killed before it was durable.
            Some(highest) if epoch == highest => self.sync(epoch).map_err(Refused::Failed)?,
            _ => self.keep(epoch).map_err(Refused::Failed)?,
        }
        // The lock ends with this function.
        write().map_err(Refused::Failed)
    }

    /// A whole new file takes the old one's place, so that a crash leaves one or the other.
    fn keep(&self, epoch: FencingToken) -> io::Result<()> {
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let mut file = File::create(&beside)?;
        file.write_all(format!("{HEADER}\n{epoch}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        self.sync(epoch)
    }

    /// Until the directory is on disk, a power cut could bring the old file back.
    fn sync(&self, epoch: FencingToken) -> io::Result<()> {
        if self.synced.load(Ordering::Acquire) != epoch.get() || epoch.get() == 0 {
            File::open(&self.directory)?.sync_all()?;
            self.synced.store(epoch.get(), Ordering::Release);
        }
        Ok(())
    }
}

fn unusable(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the epoch gate {} {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(epoch: u64) -> FencingToken {
        FencingToken::new(epoch)
    }

    #[test]
    fn the_highest_epoch_outlives_the_gate() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gate");
        let gate = EpochGate::open(&path).unwrap();
        assert_eq!(gate.highest().unwrap(), None);
        gate.admit(token(35)).unwrap();
        gate.admit(token(35)).unwrap();
        drop(gate);
        let gate = EpochGate::open(&path).unwrap();
        let late = gate.admit(token(34)).unwrap_err();
        assert_eq!(late.stale().map(|stale| (stale.token, stale.highest)), Some((34, Some(35))));
        gate.admit(token(36)).unwrap();
        assert_eq!(gate.highest().unwrap(), Some(token(36)));
    }

    #[test]
    fn what_is_refused_does_not_run_and_what_fails_has_raised_the_gate() {
        let directory = tempfile::tempdir().unwrap();
        let gate = EpochGate::open(directory.path().join("gate")).unwrap();
        let failed = gate.write(token(35), || Err::<(), _>(io::Error::other("disk full")));
        assert!(matches!(failed, Err(Refused::Failed(_))), "{failed:?}");
        let late = gate.write(token(34), || -> io::Result<()> { panic!("a refused write ran") });
        assert!(late.unwrap_err().stale().is_some());
    }

    #[test]
    fn a_gate_that_can_not_be_kept_admits_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let gate = EpochGate::open(directory.path().join("gone").join("gate")).unwrap();
        assert!(matches!(gate.admit(token(35)), Err(Refused::Failed(_))));
        let path = directory.path().join("gate");
        // The new file can't take the place of a directory.
        let gate = EpochGate::open(&path).unwrap();
        fs::create_dir(directory.path().join("gate.new")).unwrap();
        assert!(matches!(gate.admit(token(35)), Err(Refused::Failed(_))));
        assert_eq!(gate.highest().unwrap(), None);
    }

    #[test]
    fn a_message_comes_out_only_if_its_leader_was_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let gate = EpochGate::open(directory.path().join("gate")).unwrap();
        let said = |epoch, message| Stamped { epoch: token(epoch).into(), message };
        assert_eq!(gate.receive(said(35, "go")).unwrap(), "go");
        assert!(gate.receive(said(34, "stop")).unwrap_err().stale().is_some());
    }

    #[test]
    fn a_damaged_or_newer_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gate");
        for text in
            ["", "baton epoch gate 1\n3", "baton epoch gate 1\nx\n", "baton epoch gate 2\n35\n", "35\n"]
        {
            fs::write(&path, text).unwrap();
            assert_eq!(EpochGate::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData, "{text:?}");
        }
    }
}
