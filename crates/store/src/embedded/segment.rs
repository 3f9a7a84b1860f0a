//! A segment of the log: a header, then frames.
//!
//! ```text
//! header  magic 8 | version 4 | crc32c 4 | index 8 | salt 8                                         = 32 bytes
//! frame   magic 4 | length 4 | sequence 8 | clock 8 | revision 8 | crc32c 4 | reserved 4 | payload  = 40 + length,
//!         padded with zeros to 8 bytes
//! ```
//! All numbers little-endian. A frame's checksum covers the segment's salt, its own header and its payload, so
//! neither a frame of another segment nor bytes that a client chose can pass for one. One frame is one batch:
//! it is written with one write and synced before the next one is written. Therefore at most one frame can be
//! torn, it is the last, and a good frame after a bad one proves that something else happened.

/// Bytes of a segment's header.
pub(super) const HEADER_BYTES: usize = 32;
/// Bytes of a frame before its payload.
pub(super) const FRAME_BYTES: usize = 40;
/// The format this code writes.
pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"BATONLOG";
const FRAME_MAGIC: u32 = 0x5af7_b10c;

/// Which segment it is, and what its frames' checksums start from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub index: u64,
    pub salt: u64,
}

impl Header {
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.index.to_le_bytes());
        bytes[24..].copy_from_slice(&self.salt.to_le_bytes());
        let crc = header_checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        if bytes[..8] != MAGIC || u32_at(bytes, 8) > VERSION || u32_at(bytes, 12) != header_checksum(bytes) {
            return None;
        }
        Some(Self { index: u64_at(bytes, 16), salt: u64_at(bytes, 24) })
    }
}

/// One batch, as found in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame<'a> {
    pub sequence: u64,
    pub clock_us: u64,
    pub revision: u64,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes`, if there is a good one.
    pub fn decode(bytes: &'a [u8], salt: u64) -> Option<Self> {
        if bytes.len() < FRAME_BYTES || u32_at(bytes, 0) != FRAME_MAGIC {
            return None;
        }
        let length = u32_at(bytes, 4) as usize;
        let payload = bytes[FRAME_BYTES..].get(..length)?;
        if u32_at(bytes, 32) != checksum(salt, &bytes[..32], payload) {
            return None;
        }
        let (sequence, clock_us, revision) = (u64_at(bytes, 8), u64_at(bytes, 16), u64_at(bytes, 24));
        Some(Self { sequence, clock_us, revision, payload })
    }

    /// How far the next frame is.
    pub fn stride(&self) -> usize {
        padded(FRAME_BYTES + self.payload.len())
    }
}

/// Bytes of a frame, with its padding.
pub(super) const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

/// Completes `buffer`, whose payload begins at [`FRAME_BYTES`], into a frame.
pub(super) fn seal(buffer: &mut Vec<u8>, salt: u64, sequence: u64, clock_us: u64, revision: u64) {
    let length = u32::try_from(buffer.len() - FRAME_BYTES).expect("a batch is far below 4 GiB");
    buffer[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
    buffer[4..8].copy_from_slice(&length.to_le_bytes());
    buffer[8..16].copy_from_slice(&sequence.to_le_bytes());
    buffer[16..24].copy_from_slice(&clock_us.to_le_bytes());
    buffer[24..32].copy_from_slice(&revision.to_le_bytes());
    let crc = checksum(salt, &buffer[..32], &buffer[FRAME_BYTES..]);
    buffer[32..36].copy_from_slice(&crc.to_le_bytes());
    buffer.resize(padded(buffer.len()), 0);
}

/// The offset of the first good frame in `bytes` at or after `from`, whatever its sequence.
pub(super) fn find_frame(bytes: &[u8], from: usize, salt: u64) -> Option<usize> {
    let magic = FRAME_MAGIC.to_le_bytes();
    (from..bytes.len())
        .step_by(8)
        .find(|&at| bytes[at..].starts_with(&magic) && Frame::decode(&bytes[at..], salt).is_some())
}

/// Without it a flipped bit in the salt would make every frame look torn.
fn header_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

fn checksum(salt: u64, header: &[u8], payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), header);
    crc32c::crc32c_append(crc, payload)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_frame_is_read_back_and_no_flipped_bit_goes_unnoticed(
            payload in prop::collection::vec(any::<u8>(), 0..200), salt: u64, sequence: u64, bit: prop::sample::Index,
        ) {
            let mut buffer = vec![0; FRAME_BYTES];
            buffer.extend(&payload);
            seal(&mut buffer, salt, sequence, 7, 9);
            let frame = Frame::decode(&buffer, salt).unwrap();
            prop_assert_eq!(frame, Frame { sequence, clock_us: 7, revision: 9, payload: &payload });
            prop_assert_eq!(frame.stride(), buffer.len());
            prop_assert_eq!(Frame::decode(&buffer, salt ^ 1), None);

            // The four reserved bytes and the padding carry nothing.
            let bit = bit.index((FRAME_BYTES + payload.len()) * 8);
            prop_assume!(!(36 * 8..40 * 8).contains(&bit));
            buffer[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Frame::decode(&buffer, salt), None);
        }

        #[test]
        fn a_header_is_read_back_and_no_flipped_bit_goes_unnoticed(index: u64, salt: u64, bit in 0..HEADER_BYTES * 8) {
            let header = Header { index, salt };
            let mut bytes = header.encode();
            prop_assert_eq!(Header::decode(&bytes), Some(header));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::decode(&bytes), None);
        }
    }
}
