//! How the files of a node's state are written: what they are, their version, then frames, each with its length and its checksum.
//!
//! Layout: eight letters, a version byte, then frames of a length and a checksum (CRC-32C), four bytes each, lowest first, and
//! the payload.

use super::StateError;
use std::path::Path;

/// Before a frame's payload.
pub(super) const FRAME_BYTES: usize = 8;
/// Before the first frame.
const HEAD_BYTES: usize = 9;

/// What a file begins with.
pub(super) fn head(letters: &[u8; 8], version: u8) -> Vec<u8> {
    [letters.as_slice(), &[version]].concat()
}

/// Adds a frame.
pub(super) fn add(payload: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    to.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    to.extend_from_slice(payload);
}

/// The frames of a file: up to its end, or up to where it is torn or damaged.
pub(super) struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Of a file that begins with `letters`, of version 1 to `newest`. One that doesn't, or was cut off before anything was in it,
    /// has no frames; one of a newer version is refused.
    pub fn read(
        bytes: &'a [u8],
        letters: &[u8; 8],
        newest: u8,
        path: &Path,
    ) -> Result<Option<Self>, StateError> {
        if bytes.len() < HEAD_BYTES || !bytes.starts_with(letters) {
            return Ok(None);
        }
        let found = bytes[HEAD_BYTES - 1];
        if found > newest {
            return Err(StateError::Newer { path: path.into(), found, supported: newest });
        }
        Ok((found > 0).then_some(Self { rest: &bytes[HEAD_BYTES..] }))
    }

    /// Bytes that were not understood.
    pub fn rest(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let (payload, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        // Zeros, as after a crash of the machine, would be an empty frame with the right sum.
        if payload.is_empty() || crc32c::crc32c(payload) != u32::from_le_bytes(*sum) {
            return None;
        }
        self.rest = rest;
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames, and how many bytes are left.
    type Found = (Vec<Vec<u8>>, usize);

    fn read(bytes: &[u8], newest: u8) -> Result<Option<Found>, StateError> {
        let frames = Frames::read(bytes, b"testfile", newest, Path::new("f"))?;
        Ok(frames.map(|mut frames| {
            let found = frames.by_ref().map(<[u8]>::to_vec).collect();
            (found, frames.rest())
        }))
    }

    #[test]
    fn a_file_is_read_up_to_where_it_is_torn_or_damaged() {
        let mut bytes = head(b"testfile", 1);
        add(b"one", &mut bytes);
        let whole = bytes.len();
        add(b"two", &mut bytes);
        let (one, two) = (b"one".to_vec(), b"two".to_vec());
        assert_eq!(read(&bytes, 1).unwrap(), Some((vec![one.clone(), two], 0)));
        for length in whole..bytes.len() {
            assert_eq!(read(&bytes[..length], 1).unwrap(), Some((vec![one.clone()], length - whole)));
        }
        let mut zeros = bytes[..whole].to_vec();
        zeros.extend([0; 64]);
        assert_eq!(read(&zeros, 1).unwrap(), Some((vec![one.clone()], 64)));
        for place in whole..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert_eq!(read(&damaged, 1).unwrap().unwrap().0, vec![one.clone()], "byte {place}");
        }
        for length in 0..HEAD_BYTES {
            assert_eq!(read(&bytes[..length], 1).unwrap(), None);
        }
    }

    #[test]
    fn a_file_of_an_older_version_is_read_and_one_of_a_newer_version_refused() {
        let bytes = head(b"testfile", 2);
        assert!(read(&bytes, 3).unwrap().is_some());
        assert!(read(&bytes, 2).unwrap().is_some());
        let error = read(&bytes, 1).unwrap_err().to_string();
        assert!(error.contains("newer"), "{error}");
    }
}
