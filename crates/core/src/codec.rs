//! How records are written: a version byte, then fields in order. Numbers are variable-length, text has its
//! length before it. Each record's file shows its own layout.

use crate::record::{Bytes, Revision, WallTime};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A stored value that this version can't read: it was written by a newer one, or is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreadable;

/// Writes a record's value.
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// Starts a value of this version.
    pub fn new(version: u8) -> Self {
        let mut bytes = Vec::with_capacity(96);
        bytes.push(version);
        Self(bytes)
    }

    /// Starts a value of this version in memory that was used before: see [`Encoder::finish_in`].
    pub fn with(version: u8, mut memory: Vec<u8>) -> Self {
        memory.clear();
        memory.push(version);
        Self(memory)
    }

    /// One byte.
    pub fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    /// A number, seven bits a byte, lowest first.
    pub fn number(mut self, mut number: u64) -> Self {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
        self
    }

    /// Bytes of a length that the reader knows.
    pub fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Bytes with their length before them.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.number(bytes.len() as u64).fixed(bytes)
    }

    /// The finished value.
    pub fn finish(self) -> Bytes {
        self.0.into()
    }

    /// The same, and the memory for the next one.
    pub fn finish_in(self) -> (Bytes, Vec<u8>) {
        (self.0.as_slice().into(), self.0)
    }
}

/// Reads a record's value.
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Starts on a value that must be of this version.
    pub fn new(value: &'a [u8], version: u8) -> Result<Self, Unreadable> {
        match value.split_first() {
            Some((found, rest)) if *found == version => Ok(Self(rest)),
            _ => Err(Unreadable),
        }
    }

    /// Starts on a value of version 1 to `newest`, and says of which.
    pub fn versioned(value: &'a [u8], newest: u8) -> Result<(u8, Self), Unreadable> {
        match value.split_first() {
            Some((found, rest)) if (1..=newest).contains(found) => Ok((*found, Self(rest))),
            _ => Err(Unreadable),
        }
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, Unreadable> {
        let (byte, rest) = self.0.split_first().ok_or(Unreadable)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// A number.
    pub fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(Unreadable)?;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Unreadable)
    }

    /// A revision.
    pub fn revision(&mut self) -> Result<Revision, Unreadable> {
        self.number().map(Revision)
    }

    /// A time for display.
    pub fn time(&mut self) -> Result<WallTime, Unreadable> {
        self.number().map(WallTime)
    }

    /// This many bytes.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Unreadable)?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// Bytes with their length before them.
    pub fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = usize::try_from(self.number()?).map_err(|_| Unreadable)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Unreadable)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Text with its length before it.
    pub fn text(&mut self) -> Result<Arc<str>, Unreadable> {
        core::str::from_utf8(self.bytes()?).map(Arc::from).map_err(|_| Unreadable)
    }

    /// Text that the caller will own.
    pub fn string(&mut self) -> Result<String, Unreadable> {
        core::str::from_utf8(self.bytes()?).map(String::from).map_err(|_| Unreadable)
    }

    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing may be left.
    pub fn finish(self) -> Result<(), Unreadable> {
        if self.0.is_empty() { Ok(()) } else { Err(Unreadable) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_back(a: u64, b: Vec<u8>, c: [u8; 16], d: u8) {
            let value = Encoder::new(1).number(a).bytes(&b).fixed(&c).byte(d).finish();
            let mut decoder = Decoder::new(&value, 1).unwrap();
            prop_assert_eq!(decoder.number(), Ok(a));
            prop_assert_eq!(decoder.bytes(), Ok(b.as_slice()));
            prop_assert_eq!(decoder.fixed(), Ok(c));
            prop_assert_eq!(decoder.byte(), Ok(d));
            prop_assert_eq!(decoder.finish(), Ok(()));
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            if let Ok(mut decoder) = Decoder::new(&value, 1) {
                while decoder.bytes().is_ok() && decoder.number().is_ok() {}
            }
        }
    }

    #[test]
    fn another_version_is_unreadable() {
        assert!(Decoder::new(&Encoder::new(2).finish(), 1).is_err());
        assert!(Decoder::new(&[], 1).is_err());
        for (version, fine) in [(0, false), (1, true), (2, true), (3, false)] {
            let value = Encoder::new(version).finish();
            assert_eq!(Decoder::versioned(&value, 2).is_ok_and(|(found, _)| found == version), fine);
        }
    }
}
