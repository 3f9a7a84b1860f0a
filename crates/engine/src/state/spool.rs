//! What was admitted without the store and is not counted there yet: one file, appended to, that outlives the node.
//!
//! What is admitted is in the file before anybody hears yes, so a node that is killed loses nothing of it. It is synced within
//! about a second: a crash of the *machine* may lose what was admitted in the last one. What is owed has an id that stays the same
//! over restarts, under which the store counts it once.
//!
//! A file is never changed, only appended to. When it has grown, what is still owed goes into the next *generation*, and the old
//! one is removed once that is on disk. A file counts only if all that its begin should have is there (`Whole`): until then the one
//! before it does. So there is always one that is complete.
//!
//! Lines, version 1: the version, a number for the kind, then
//! 1 begun: number, id, cluster (zeros if not known), namespace, limit, key, amount · 2 added: number, amount · 3 settled: number · 4 whole.

use super::frames::{self, FRAME_BYTES, Frames};
use super::{StateError, sync_names};
use baton_core::Name;
use baton_core::codec::{Decoder, Encoder, Unreadable};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const LETTERS: &[u8; 8] = b"batonspl";
const VERSION: u8 = 1;
const PREFIX: &str = "spool-";
/// Bytes of a file. What is owed may take half of it, so that the next generation always has room.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// A file that is shorter isn't worth another generation.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Generations that wait for a sync of the next one. A disk that doesn't get on with it gets no more.
const UNSYNCED_MAX: usize = 8;

/// One debt: what was admitted of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owed {
    /// Under which the store counts it once.
    pub id: [u8; 16],
    /// Whose store it is owed to; nothing if that wasn't known.
    pub cluster: Option<[u8; 16]>,
    pub limit: Name,
    /// The key that is metered.
    pub key: String,
    pub amount: u64,
}

/// One line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    Begun(u64, Owed),
    Added(u64, u64),
    Settled(u64),
}

/// Why something isn't in the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    #[error("the spool is full")]
    Full,
    #[error("the spool can't be written: {0}")]
    Failed(#[from] io::Error),
}

impl Owed {
    /// What it takes in a file.
    fn bytes(&self) -> u64 {
        encoded(&Line::Begun(u64::MAX, Self { amount: u64::MAX, ..self.clone() })).len() as u64
    }
}

fn encoded(line: &Line) -> Vec<u8> {
    let to = Encoder::new(VERSION);
    let payload = match line {
        Line::Begun(number, owed) => to
            .byte(1)
            .number(*number)
            .fixed(&owed.id)
            .fixed(&owed.cluster.unwrap_or_default())
            .bytes(owed.limit.namespace().as_bytes())
            .bytes(owed.limit.key().as_bytes())
            .bytes(owed.key.as_bytes())
            .number(owed.amount),
        Line::Added(number, amount) => to.byte(2).number(*number).number(*amount),
        Line::Settled(number) => to.byte(3).number(*number),
    };
    let mut frame = Vec::with_capacity(FRAME_BYTES + 96);
    frames::add(&payload.finish(), &mut frame);
    frame
}

fn whole() -> Vec<u8> {
    let mut frame = Vec::new();
    frames::add(&Encoder::new(VERSION).byte(4).finish(), &mut frame);
    frame
}

/// A line, or nothing for `whole`.
fn decoded(payload: &[u8]) -> Result<Option<Line>, Unreadable> {
    let mut from = Decoder::new(payload, VERSION)?;
    let line = match from.byte()? {
        1 => {
            let number = from.number()?;
            let (id, cluster) = (from.fixed()?, from.fixed()?);
            let limit = Name::new(&from.string()?, &from.string()?);
            let cluster = (cluster != [0; 16]).then_some(cluster);
            Some(Line::Begun(
                number,
                Owed { id, cluster, limit, key: from.string()?, amount: from.number()? },
            ))
        }
        2 => Some(Line::Added(from.number()?, from.number()?)),
        3 => Some(Line::Settled(from.number()?)),
        4 => None,
        _ => return Err(Unreadable),
    };
    from.finish()?;
    Ok(line)
}

/// Where a node writes what it owes.
pub(crate) struct Spool {
    directory: PathBuf,
    name: u64,
    generation: u64,
    file: Option<File>,
    bytes: u64,
    /// What is owed would take this in a new file.
    owed_bytes: u64,
    /// The next generation is due when the file has this many.
    next_at: u64,
    /// Generations that are still needed until the present one is synced. Open, and so locked.
    before: Vec<(PathBuf, File)>,
    is_dirty: bool,
}

impl Spool {
    pub fn new(directory: PathBuf, name: u64) -> Self {
        Self {
            directory,
            name,
            generation: 0,
            file: None,
            bytes: 0,
            owed_bytes: 0,
            next_at: FILE_BYTES_MIN,
            before: Vec::new(),
            is_dirty: false,
        }
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of these lines, or none. `owed` is what is owed without them.
    pub fn append(&mut self, lines: &[Line], owed: &BTreeMap<u64, Owed>) -> Result<(), SpoolError> {
        let begun = lines.iter().map(|line| if let Line::Begun(_, owed) = line { owed.bytes() } else { 0 });
        let begun: u64 = begun.sum();
        if begun > 0 && self.owed_bytes + begun > FILE_BYTES_MAX / 2 {
            return Err(SpoolError::Full);
        }
        let frames: Vec<u8> = lines.iter().flat_map(encoded).collect();
        if self.file.is_none() || self.bytes + frames.len() as u64 > self.next_at {
            self.next_generation(owed)?;
        }
        if self.bytes + frames.len() as u64 > FILE_BYTES_MAX {
            return Err(SpoolError::Full);
        }
        self.write(&frames)?;
        self.owed_bytes += begun;
        Ok(())
    }

    /// A debt is settled: `owed` is what it was. If the line can't be written it is offered once more after a restart, and the
    /// store knows it.
    pub fn settled(&mut self, number: u64, was: &Owed) {
        if self.file.is_some() && self.write(&encoded(&Line::Settled(number))).is_ok() {
            self.owed_bytes = self.owed_bytes.saturating_sub(was.bytes());
        }
    }

    /// Nothing is owed: nothing is kept.
    pub fn clear(&mut self) {
        if let Some(file) = self.file.take() {
            self.before.push((self.path(), file));
        }
        remove(std::mem::take(&mut self.before));
        (self.bytes, self.owed_bytes, self.is_dirty) = (0, 0, false);
    }

    /// What has to be synced for all that was written to be on disk, if anything has.
    pub fn unsynced(&mut self) -> Option<Unsynced> {
        let file = self.file.as_ref().filter(|_| self.is_dirty)?.try_clone().ok()?;
        self.is_dirty = false;
        Some(Unsynced { generation: self.generation, file, directory: self.directory.clone() })
    }

    /// How a sync ended.
    pub fn synced(&mut self, generation: u64, is_done: bool) {
        if !is_done {
            self.is_dirty = true;
        } else if generation == self.generation {
            remove(std::mem::take(&mut self.before));
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        if let Err(error) = file.write_all(bytes) {
            // Whatever came after a part of a line would not be found again.
            if file.set_len(self.bytes).is_err() {
                self.next_at = 0;
            }
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        self.is_dirty = true;
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.directory.join(format!("{PREFIX}{:016x}-{:016x}", self.name, self.generation))
    }

    /// Another file that begins with what is owed.
    fn next_generation(&mut self, owed: &BTreeMap<u64, Owed>) -> Result<(), SpoolError> {
        if self.before.len() >= UNSYNCED_MAX {
            return Err(SpoolError::Full);
        }
        let mut bytes = frames::head(LETTERS, VERSION);
        for (number, owed) in owed {
            bytes.extend(encoded(&Line::Begun(*number, owed.clone())));
        }
        bytes.extend(whole());
        std::fs::create_dir_all(&self.directory)?;
        let before = self.file.as_ref().map(|_| self.path());
        self.generation += 1;
        let path = self.path();
        let written = (|| {
            let mut file = OpenOptions::new().append(true).create_new(true).open(&path)?;
            file.try_lock().map_err(io::Error::from)?;
            file.write_all(&bytes)?;
            Ok::<_, io::Error>(file)
        })();
        let file = written.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        self.before.extend(before.zip(self.file.replace(file)));
        self.bytes = bytes.len() as u64;
        self.owed_bytes = owed.values().map(Owed::bytes).sum();
        self.next_at = (2 * self.owed_bytes).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        self.is_dirty = true;
        Ok(())
    }
}

impl Drop for Spool {
    /// Closing alone would leave the lock to a child process that was just forked, until it starts its program.
    fn drop(&mut self) {
        for file in self.file.iter().chain(self.before.iter().map(|(_, file)| file)) {
            drop(file.unlock());
        }
    }
}

/// A file that is to be synced, without keeping anybody from appending to it.
pub(crate) struct Unsynced {
    pub generation: u64,
    file: File,
    directory: PathBuf,
}

impl Unsynced {
    /// Blocks.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        sync_names(&self.directory)
    }
}

fn remove(files: Vec<(PathBuf, File)>) {
    for (path, file) in files {
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(%error, "a file of the spool that isn't needed any more can't be removed");
        }
        drop(file.unlock());
    }
}

/// What a node that is gone has left.
pub(crate) struct Left {
    pub owed: Vec<Owed>,
    files: Vec<(PathBuf, File)>,
}

impl Left {
    /// It is somebody else's now, on disk too.
    pub fn remove(self) {
        remove(self.files);
    }
}

/// Spools whose node is gone: nobody else has them from now on.
pub(super) fn left(directory: &Path, names: &[String]) -> Result<Vec<Left>, StateError> {
    let mut spools: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for name in names {
        let spool = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        if let Some((spool, _)) = spool {
            spools.entry(spool).or_default().push(name);
        }
    }
    let mut all = Vec::new();
    for mut generations in spools.into_values() {
        generations.sort();
        all.extend(one_left(directory, &generations)?);
    }
    Ok(all)
}

/// `generations` are its files, in their order. Nothing if its node lives.
fn one_left(directory: &Path, generations: &[&String]) -> Result<Option<Left>, StateError> {
    let mut left = Left { owed: Vec::new(), files: Vec::new() };
    for name in generations {
        let path = directory.join(name);
        let failed = |error| StateError::Unreadable { path: path.clone(), error };
        let file = match File::open(&path) {
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Longer than a node makes it is not a node's.
        if file.metadata().map_err(failed)?.len() > FILE_BYTES_MAX {
            tracing::warn!(path = %path.display(), "too long for a spool: left as it is");
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(failed)?;
        if let Some(owed) = owed(&bytes, &path)? {
            left.owed = owed;
        }
        left.files.push((path, file));
    }
    Ok(Some(left))
}

/// What a file says is owed; nothing if its begin isn't whole.
fn owed(bytes: &[u8], path: &Path) -> Result<Option<Vec<Owed>>, StateError> {
    let Some(mut frames) = Frames::read(bytes, LETTERS, VERSION, path)? else { return Ok(None) };
    let (mut owed, mut is_whole) = (BTreeMap::<u64, Owed>::new(), false);
    for payload in frames.by_ref() {
        match decoded(payload) {
            Ok(None) => is_whole = true,
            Ok(Some(Line::Begun(number, one))) => drop(owed.insert(number, one)),
            Ok(Some(Line::Added(number, amount))) => {
                if let Some(owed) = owed.get_mut(&number) {
                    owed.amount = owed.amount.saturating_add(amount);
                }
            }
            Ok(Some(Line::Settled(number))) => drop(owed.remove(&number)),
            Err(Unreadable) => tracing::warn!(path = %path.display(), "a line of a spool can't be read"),
        }
    }
    if frames.rest() > 0 {
        tracing::warn!(path = %path.display(), bytes = frames.rest(), "the end of a spool can't be read");
    }
    Ok(is_whole.then(|| owed.into_values().collect()))
}

#[cfg(test)]
#[path = "spool/tests.rs"]
mod tests;
