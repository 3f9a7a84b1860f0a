//! Opening a data directory: the newest snapshot, then the log after it.
//!
//! What may be missing is the end of the last batch, which nobody was answered for: a torn tail, cut off. Any
//! other damage is refused, with the file and the offset, because going on would forget something acknowledged.

use super::disk::Disk;
use super::effect::Effects;
use super::segment::{self, Frame, HEADER_BYTES, Header, VERSION};
use super::snapshot::{self, Unusable};
use super::state::State;
use super::{checkpoint, log, queue::Mark};
use std::io;

const FORMAT: &str = "format";
const FORMAT_TEXT: &str = "baton embedded store, format ";

/// Why a data directory can't be opened. Nothing in it was lost or changed by trying.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{directory} is in use by another process")]
    InUse {
        /// Which directory.
        directory: String,
    },
    /// A later version of Baton wrote it.
    #[error(
        "the data has format {found}, this version of Baton reads up to format {supported}: use a newer one"
    )]
    TooNew {
        /// What is there.
        found: u32,
        /// What this code reads.
        supported: u32,
    },
    /// It holds something that Baton didn't write, or not all that it wrote.
    #[error("{file} is damaged at byte {offset}: {what}; restore the data directory from a copy")]
    Damaged {
        /// Which file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The directory can't be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A state, and where its log goes on.
pub(super) struct Recovered {
    pub state: State,
    /// The last batch, its moment of the lease clock and the highest revision.
    pub mark: Mark,
    /// The index for the next segment.
    pub next_segment: u64,
    /// Bytes of log since the snapshot, and in how many segments.
    pub log_bytes: u64,
    pub segments: usize,
    pub snapshot_bytes: u64,
}

pub(super) fn recover(disk: &dyn Disk) -> Result<Recovered, OpenError> {
    let names = disk.list()?;
    check_format(disk, &names)?;
    let mut state = State::default();
    let mut mark = Mark { sequence: 0, segment: 0, clock_us: 0, revision: 0 };
    let (mut must_reach, mut snapshot_bytes) = (mark, 0);
    let newest = names.iter().filter_map(|name| snapshot::sequence_of(name)).max();
    if let Some(sequence) = newest {
        let file = snapshot::name_of(sequence);
        let loaded = snapshot::load(&*disk.open(&file)?, &mut state).map_err(|unusable| match unusable {
            Unusable::Io(error) => OpenError::Io(error),
            Unusable::Damaged(offset) => damaged(&file, offset, "not what was written"),
        })?;
        must_reach = loaded.reached;
        mark = Mark { sequence: loaded.begun_sequence, segment: loaded.begun_segment, ..loaded.reached };
        snapshot_bytes = loaded.bytes;
    }
    let begun = mark;
    let mut indexes: Vec<u64> = names.iter().filter_map(|name| log::index_of(name)).collect();
    indexes.retain(|index| *index >= mark.segment);
    indexes.sort_unstable();
    if let (Some(_), None | Some(1..)) = (newest, indexes.first().map(|first| first - mark.segment)) {
        return Err(damaged(&log::name_of(mark.segment), 0, "missing"));
    }
    let mut replay = Replay { disk, state, mark, last: None, log_bytes: 0, torn: None, unused: Vec::new() };
    for (position, index) in indexes.iter().enumerate() {
        if position > 0 && indexes[position - 1] + 1 != *index {
            return Err(damaged(&log::name_of(indexes[position - 1] + 1), 0, "missing"));
        }
        replay.segment(*index)?;
    }
    if replay.last.unwrap_or(mark.sequence) < must_reach.sequence {
        let last = indexes.last().copied().unwrap_or_default();
        return Err(damaged(&log::name_of(last), 0, "the log ends before the snapshot does"));
    }
    replay.cut_unused()?;
    // Listed anew: the format may just have got its name.
    for name in disk.list()?.iter().filter(|name| name.ends_with(".tmp")) {
        disk.remove(name)?;
    }
    checkpoint::remove_obsolete(disk, begun)?;
    let next_segment = indexes.last().map_or(1, |last| last + 1);
    let Replay { mut state, mark, log_bytes, .. } = replay;
    state.index();
    Ok(Recovered { state, mark, next_segment, log_bytes, segments: indexes.len(), snapshot_bytes })
}

fn damaged(file: &str, offset: u64, what: &'static str) -> OpenError {
    OpenError::Damaged { file: file.into(), offset, what }
}

fn check_format(disk: &dyn Disk, names: &[String]) -> Result<(), OpenError> {
    if names.iter().any(|name| name == FORMAT) {
        let file = disk.open(FORMAT)?;
        let mut bytes = vec![0; usize::try_from(file.len()?.min(256)).unwrap_or(256)];
        file.read_at(0, &mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let found = text.strip_prefix(FORMAT_TEXT).and_then(|version| version.trim().parse().ok());
        let found: u32 = found.ok_or_else(|| damaged(FORMAT, 0, "not a format version"))?;
        return if found > VERSION { Err(OpenError::TooNew { found, supported: VERSION }) } else { Ok(()) };
    }
    let data = |name: &&String| log::index_of(name).is_some() || snapshot::sequence_of(name).is_some();
    if names.iter().any(|name| data(&name)) {
        return Err(damaged(FORMAT, 0, "missing"));
    }
    let file = disk.create("format.tmp")?;
    file.write_at(0, format!("{FORMAT_TEXT}{VERSION}\n").as_bytes())?;
    file.sync()?;
    disk.rename("format.tmp", FORMAT)?;
    Ok(disk.sync_names()?)
}

struct Replay<'a> {
    disk: &'a dyn Disk,
    state: State,
    mark: Mark,
    /// The last batch seen, replayed or not.
    last: Option<u64>,
    log_bytes: u64,
    /// Where a segment stopped making sense: its index and the offset.
    torn: Option<(u64, u64)>,
    /// Segments that end before their files do, likewise.
    unused: Vec<(u64, u64)>,
}

impl Replay<'_> {
    fn segment(&mut self, index: u64) -> Result<(), OpenError> {
        let name = log::name_of(index);
        let file = self.disk.open(&name)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
        file.read_at(0, &mut bytes)?;
        let header = Header::decode(&bytes).filter(|header| header.index == index);
        let Header { salt, .. } = header.ok_or_else(|| damaged(&name, 0, "not a segment's header"))?;
        let mut offset = HEADER_BYTES;
        while let Some(frame) = bytes.get(offset..).and_then(|bytes| Frame::decode(bytes, salt)) {
            if let Some((torn_index, at)) = self.torn {
                return Err(damaged(&log::name_of(torn_index), at, "a bad batch with good ones after it"));
            }
            self.frame(&frame).map_err(|what| damaged(&name, offset as u64, what))?;
            offset += frame.stride();
        }
        self.log_bytes += offset as u64;
        if segment::find_frame(&bytes, offset, salt).is_some() {
            return Err(damaged(&name, offset as u64, "a bad batch with good ones after it"));
        }
        if let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
            self.unused.push((index, offset as u64));
            if self.torn.is_none() && rest.iter().any(|byte| *byte != 0) {
                self.torn = Some((index, offset as u64));
            }
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), &'static str> {
        let follows = match self.last {
            Some(last) => frame.sequence == last + 1,
            None => frame.sequence <= self.mark.sequence + 1,
        };
        if !follows {
            return Err("batches are missing before this one");
        }
        self.last = Some(frame.sequence);
        if frame.sequence <= self.mark.sequence {
            return Ok(());
        }
        for effect in Effects(frame.payload) {
            self.state.redo(effect.map_err(|_| "not a list of effects")?);
        }
        self.mark.sequence = frame.sequence;
        self.mark.clock_us = self.mark.clock_us.max(frame.clock_us);
        self.mark.revision = self.mark.revision.max(frame.revision);
        Ok(())
    }

    /// The log goes on in a new segment: what is behind the good batches would look like damage next time.
    fn cut_unused(&self) -> Result<(), OpenError> {
        if let Some((index, offset)) = self.torn {
            tracing::warn!(
                file = log::name_of(index),
                offset,
                "dropping a batch that was never acknowledged"
            );
        }
        for (index, offset) in &self.unused {
            let file = self.disk.open(&log::name_of(*index))?;
            file.truncate(*offset)?;
            file.sync()?;
        }
        Ok(())
    }
}
