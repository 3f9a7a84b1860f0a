//! A snapshot: all records, written while commits go on.
//!
//! ```text
//! header  magic 8 | version 4 | crc32c 4 | sequence 8 | segment 8                                  = 32 bytes
//! block   length 4 | crc32c 4 | effects (puts of one group, in the order of their names)
//! end     length 4 | crc32c 4 | 0 | sequence 8 | clock 8 | revision 8 | records 8
//! ```
//! Its records are of different moments between the header's sequence and the end's. Redoing the log from after
//! the first makes them one state, and the log must reach the second. A block's checksum starts from its offset,
//! so no block can stand in for another. The file gets its name only when it is complete and durable: one with
//! a name and a bad byte is damaged, and is refused.

use super::disk::{Disk, DiskFile};
use super::effect::{self, Effect, Effects, Entry};
use super::queue::Mark;
use super::segment::{VERSION, u32_at, u64_at};
use super::state::State;
use baton_core::Bytes;
use std::io;

const MAGIC: [u8; 8] = *b"BATONSNP";
const HEADER_BYTES: usize = 32;
const END_BYTES: usize = 33;
/// A block holds a copied page: at most about 256 KiB, and one commit's worth beyond that.
const BLOCK_BYTES_MAX: usize = 4 << 20;
const UNFINISHED: &str = "snapshot.tmp";

/// The file name of a snapshot.
pub(super) fn name_of(sequence: u64) -> String {
    format!("snapshot-{sequence:016x}")
}

/// The sequence of a snapshot, from its file name.
pub(super) fn sequence_of(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("snapshot-").filter(|hex| hex.len() == 16)?, 16).ok()
}

/// A snapshot being written.
pub(super) struct Snapshot<'a> {
    disk: &'a dyn Disk,
    file: Box<dyn DiskFile>,
    begun: Mark,
    offset: u64,
    records: u64,
    block: Vec<u8>,
}

impl<'a> Snapshot<'a> {
    pub fn begin(disk: &'a dyn Disk, begun: Mark) -> io::Result<Self> {
        let file = disk.create(UNFINISHED)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&begun.sequence.to_le_bytes());
        header[24..].copy_from_slice(&begun.segment.to_le_bytes());
        let crc = header_checksum(&header);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        file.write_at(0, &header)?;
        Ok(Self { disk, file, begun, offset: HEADER_BYTES as u64, records: 0, block: Vec::new() })
    }

    pub fn add(&mut self, group: u8, records: &[(Bytes, Entry)]) -> io::Result<()> {
        self.block.clear();
        self.block.resize(8, 0);
        for (name, entry) in records {
            effect::encode_put(&mut self.block, group, name, entry);
        }
        self.records += records.len() as u64;
        self.write_block()
    }

    /// Makes it durable under its name; gives its size.
    pub fn finish(mut self, reached: Mark) -> io::Result<u64> {
        self.block.clear();
        self.block.resize(9, 0);
        for number in [reached.sequence, reached.clock_us, reached.revision, self.records] {
            self.block.extend(number.to_le_bytes());
        }
        self.write_block()?;
        self.file.sync()?;
        self.disk.rename(UNFINISHED, &name_of(self.begun.sequence))?;
        self.disk.sync_names()?;
        Ok(self.offset)
    }

    fn write_block(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.block.len() - 8).map_err(io::Error::other)?;
        let crc = block_checksum(self.offset, &self.block[8..]);
        self.block[..4].copy_from_slice(&length.to_le_bytes());
        self.block[4..8].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(self.offset, &self.block)?;
        self.offset += self.block.len() as u64;
        Ok(())
    }
}

/// What a snapshot says of itself.
pub(super) struct Loaded {
    pub begun_sequence: u64,
    pub begun_segment: u64,
    pub reached: Mark,
    pub bytes: u64,
}

/// Why a snapshot can't be used.
pub(super) enum Unusable {
    Io(io::Error),
    /// The bytes at this offset are not what was written.
    Damaged(u64),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Fills an empty state.
pub(super) fn load(file: &dyn DiskFile, state: &mut State) -> Result<Loaded, Unusable> {
    let bytes = file.len()?;
    if bytes < HEADER_BYTES as u64 {
        return Err(Unusable::Damaged(0));
    }
    let mut header = [0; HEADER_BYTES];
    file.read_at(0, &mut header)?;
    if header[..8] != MAGIC || u32_at(&header, 8) > VERSION || u32_at(&header, 12) != header_checksum(&header)
    {
        return Err(Unusable::Damaged(0));
    }
    let (begun_sequence, begun_segment) = (u64_at(&header, 16), u64_at(&header, 24));
    let (mut offset, mut block) = (HEADER_BYTES as u64, Vec::new());
    let (mut group, mut records) = (0, Vec::new());
    loop {
        read_block(file, bytes, offset, &mut block)?;
        if block.first() == Some(&0) {
            break;
        }
        for effect in Effects(&block) {
            let Ok(Effect::Put { group: next, name, entry }) = effect else {
                return Err(Unusable::Damaged(offset));
            };
            if next != group {
                state.load(group, std::mem::take(&mut records));
                group = next;
            }
            records.push((name.into(), entry));
        }
        offset += 8 + block.len() as u64;
    }
    state.load(group, records);
    let end = offset + 8 + block.len() as u64;
    if block.len() != END_BYTES || end != bytes || u64_at(&block, 25) != state.records {
        return Err(Unusable::Damaged(offset));
    }
    let (sequence, clock_us, revision) = (u64_at(&block, 1), u64_at(&block, 9), u64_at(&block, 17));
    let reached = Mark { sequence, segment: begun_segment, clock_us, revision };
    Ok(Loaded { begun_sequence, begun_segment, reached, bytes })
}

fn read_block(file: &dyn DiskFile, bytes: u64, offset: u64, block: &mut Vec<u8>) -> Result<(), Unusable> {
    let mut head = [0; 8];
    if offset + 8 > bytes {
        return Err(Unusable::Damaged(offset));
    }
    file.read_at(offset, &mut head)?;
    let length = u32_at(&head, 0) as usize;
    if length > BLOCK_BYTES_MAX || offset + 8 + length as u64 > bytes {
        return Err(Unusable::Damaged(offset));
    }
    block.resize(length, 0);
    file.read_at(offset + 8, block)?;
    if u32_at(&head, 4) != block_checksum(offset, block) {
        return Err(Unusable::Damaged(offset));
    }
    Ok(())
}

fn header_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

fn block_checksum(offset: u64, block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&offset.to_le_bytes()), block)
}
