//! The log: what makes a batch durable. Public so that a benchmark can measure it with nothing above it.
//!
//! Segments are filled with zeros and synced before they are used, by a thread of their own: a sync then has no
//! file system metadata to write. Appending is one write, syncing is one `fdatasync`. When no further segment
//! can be prepared the disk is full; the store asks for room before it changes anything, and is told.

use super::disk::{Disk, DiskFile, RealDisk};
use super::segment::{self, FRAME_BYTES, HEADER_BYTES, Header, padded};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// The first segment of a run is at most this big, so that opening doesn't wait for a large one and a quiet
/// store doesn't use what it doesn't need. Each further one is four times the last, up to what was asked for.
const FIRST_SEGMENT_BYTES_MAX: u64 = 4 << 20;
const SEGMENT_GROWTH: u64 = 4;
/// The next segment is prepared when one part in this many of the present one is used.
const PREPARE_AT_PART: u64 = 4;
/// Between two parts of a segment that is prepared. All at once it would keep the disk from the syncs that callers wait for,
/// for some hundred milliseconds.
const PREPARE_PAUSE: Duration = Duration::from_millis(5);
/// How often a segment that couldn't be prepared is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];
const NEXT: &str = "next.tmp";

/// The file name of a segment.
pub(super) fn name_of(index: u64) -> String {
    format!("log-{index:016x}")
}

/// The index of a segment, from its file name.
pub(super) fn index_of(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("log-").filter(|hex| hex.len() == 16)?, 16).ok()
}

/// A batch on its way to the log.
pub struct Batch(Vec<u8>);

impl Default for Batch {
    fn default() -> Self {
        Self(vec![0; FRAME_BYTES])
    }
}

impl Batch {
    /// Where its bytes are added.
    pub fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Bytes added so far.
    pub fn len(&self) -> usize {
        self.0.len() - FRAME_BYTES
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it empty, to be used again.
    pub fn clear(&mut self) {
        self.0.truncate(FRAME_BYTES);
    }
}

/// An append-only log of batches.
pub struct Log {
    current: Segment,
    sequence: u64,
    next: Arc<Next>,
    segment_bytes: u64,
    preparer: Option<JoinHandle<()>>,
}

struct Segment {
    file: Box<dyn DiskFile>,
    header: Header,
    offset: u64,
    bytes: u64,
}

impl Segment {
    fn fits(&self, frame_bytes: usize) -> bool {
        self.offset + frame_bytes as u64 <= self.bytes
    }
}

impl Log {
    /// A new log alone in a directory.
    pub fn open(directory: &Path, segment_bytes: u64) -> io::Result<Self> {
        let disk = RealDisk::open(directory)?.ok_or(io::ErrorKind::ResourceBusy)?;
        Self::start(Arc::new(disk), segment_bytes, 1, 0)
    }

    /// Goes on after `sequence` in a new segment.
    pub(super) fn start(
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        index: u64,
        sequence: u64,
    ) -> io::Result<Self> {
        let next = Arc::new(Next::default());
        let current = prepare(&*disk, index, segment_bytes.min(FIRST_SEGMENT_BYTES_MAX), &next)?;
        next.is_urgent.store(false, Ordering::Release);
        let preparer = std::thread::Builder::new().name("baton-log".into()).spawn({
            let next = next.clone();
            move || prepare_segments(&*disk, &next)
        })?;
        Ok(Self { current, sequence, next, segment_bytes, preparer: Some(preparer) })
    }

    /// The number of the last batch.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The segment that the next batch goes to, or one before it.
    pub(super) fn segment(&self) -> u64 {
        self.current.header.index
    }

    /// Whether a batch of so many bytes can be appended at once.
    pub fn has_room(&self, payload_bytes: usize) -> bool {
        let frame_bytes = padded(FRAME_BYTES + payload_bytes);
        self.current.fits(frame_bytes)
            || matches!(&*self.next.lock(), NextState::Ready(segment) if segment.fits(frame_bytes))
    }

    /// Whether a segment couldn't be prepared, and why.
    pub fn trouble(&self) -> Option<String> {
        match &*self.next.lock() {
            NextState::Failed(.., why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Waits until the next segment has been prepared or that has failed, then says whether there is room.
    pub fn wait_for_room(&self, payload_bytes: usize) -> bool {
        self.want_next();
        self.next.hurry();
        let state = self.next.lock();
        let waiting = self.next.changed.wait_while(state, |state| matches!(state, NextState::Wanted(..)));
        drop(waiting.expect("no panic while held"));
        self.has_room(payload_bytes)
    }

    /// Writes a batch at the end, in the next segment if need be. Durable after [`Log::sync`]; after an error
    /// nothing is known about it and the log must not be used any more.
    pub fn append(&mut self, batch: &mut Batch, clock_us: u64, revision: u64) -> io::Result<usize> {
        if !self.current.fits(padded(FRAME_BYTES + batch.len())) {
            self.current = self.next.take()?;
        }
        let (segment, buffer) = (&mut self.current, &mut batch.0);
        segment::seal(buffer, segment.header.salt, self.sequence + 1, clock_us, revision);
        segment.file.write_at(segment.offset, buffer)?;
        let unused_before = segment.offset * PREPARE_AT_PART < segment.bytes;
        segment.offset += buffer.len() as u64;
        self.sequence += 1;
        if unused_before && segment.offset * PREPARE_AT_PART >= segment.bytes {
            self.want_next();
        }
        Ok(batch.0.len())
    }

    fn want_next(&self) {
        let mut state = self.next.lock();
        if matches!(&*state, NextState::Unwanted) {
            let bytes = self.current.bytes.saturating_mul(SEGMENT_GROWTH).min(self.segment_bytes);
            *state = NextState::Wanted(self.current.header.index + 1, bytes);
            self.next.changed.notify_all();
        }
    }

    /// Makes what was appended durable.
    pub fn sync(&self) -> io::Result<()> {
        self.current.file.sync()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        *self.next.lock() = NextState::Stopped;
        self.next.changed.notify_all();
        if let Some(preparer) = self.preparer.take()
            && preparer.join().is_err()
        {
            tracing::error!("the thread that prepares log segments panicked");
        }
    }
}

struct Next {
    state: Mutex<NextState>,
    changed: Condvar,
    /// Somebody waits for it.
    is_urgent: AtomicBool,
}

/// The segment after the present one. Wanted and failed ones have an index and a size.
enum NextState {
    Unwanted,
    Wanted(u64, u64),
    Ready(Segment),
    Failed(u64, u64, String),
    Stopped,
}

impl Default for Next {
    fn default() -> Self {
        // Whoever opens a log waits for its first segment.
        Self { state: Mutex::new(NextState::Unwanted), changed: Condvar::new(), is_urgent: true.into() }
    }
}

impl Next {
    /// It is waited for: no more pauses.
    fn hurry(&self) {
        self.is_urgent.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Lets others have the disk, unless somebody waits for this.
    fn pause(&self) {
        let is_idle = |state: &mut NextState| {
            matches!(state, NextState::Wanted(..)) && !self.is_urgent.load(Ordering::Acquire)
        };
        let waited = self.changed.wait_timeout_while(self.lock(), PREPARE_PAUSE, is_idle);
        drop(waited.expect("no panic while held"));
    }

    fn lock(&self) -> MutexGuard<'_, NextState> {
        self.state.lock().expect("no panic while held")
    }

    fn take(&self) -> io::Result<Segment> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, NextState::Unwanted) {
            NextState::Ready(segment) => Ok(segment),
            other => {
                *state = other;
                Err(io::Error::other("no segment is ready; has_room was not asked"))
            }
        }
    }
}

fn prepare_segments(disk: &dyn Disk, next: &Next) {
    let mut state = next.lock();
    loop {
        state = match &*state {
            NextState::Stopped => return,
            NextState::Unwanted | NextState::Ready(_) => {
                next.changed.wait(state).expect("no panic while held")
            }
            &NextState::Wanted(index, bytes) | &NextState::Failed(index, bytes, _) => {
                let failed_before = matches!(&*state, NextState::Failed(..));
                drop(state);
                let prepared = prepare(disk, index, bytes, next);
                let mut state = next.lock();
                if matches!(&*state, NextState::Stopped) {
                    return;
                }
                match prepared {
                    Ok(segment) => {
                        next.is_urgent.store(false, Ordering::Release);
                        *state = NextState::Ready(segment);
                    }
                    Err(error) => {
                        if !failed_before {
                            tracing::error!(%error, segment = name_of(index), "can't prepare a log segment: no room to grow");
                        }
                        *state = NextState::Failed(index, bytes, error.to_string());
                        next.changed.notify_all();
                        state = next.changed.wait_timeout(state, RETRY_AFTER).expect("no panic while held").0;
                    }
                }
                next.changed.notify_all();
                state
            }
        }
    }
}

/// A segment is complete and durable before it gets its name: one with a name and a bad header is damaged.
fn prepare(disk: &dyn Disk, index: u64, bytes: u64, next: &Next) -> io::Result<Segment> {
    let prepared = fill(disk, index, bytes, next);
    if prepared.is_err() && disk.list().is_ok_and(|names| names.iter().any(|name| name == NEXT)) {
        // Its blocks may be all that is missing; if even this fails the next start removes it.
        if let Err(error) = disk.remove(NEXT) {
            tracing::warn!(%error, "can't remove an unfinished log segment");
        }
    }
    prepared
}

fn fill(disk: &dyn Disk, index: u64, bytes: u64, next: &Next) -> io::Result<Segment> {
    let header = Header { index, salt: getrandom::u64().map_err(io::Error::other)? };
    let file = disk.create(NEXT)?;
    let mut offset = 0;
    while offset < bytes {
        if matches!(&*next.lock(), NextState::Stopped) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = (bytes - offset).min(ZEROS.len() as u64);
        file.write_at(offset, &ZEROS[..count as usize])?;
        offset += count;
        if !next.is_urgent.load(Ordering::Acquire) {
            file.sync()?;
            next.pause();
        }
    }
    file.write_at(0, &header.encode())?;
    if matches!(&*next.lock(), NextState::Stopped) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    file.sync()?;
    disk.rename(NEXT, &name_of(index))?;
    disk.sync_names()?;
    Ok(Segment { file, header, offset: HEADER_BYTES as u64, bytes })
}
