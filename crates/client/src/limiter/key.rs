//! What a limiter's keys are, and how they are recognized quickly.
//!
//! A text of up to [`INLINE_MAX`] bytes and a number are compared as they are. A longer text is recognized by 128 bits of SipHash under
//! keys that are random for each limiter, and its length: nobody can make two that are taken for one without knowing them.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Words that a key is compared by.
pub(super) const WORDS: usize = 5;
/// A text as long as this fits into the words, beside its length, which is the last byte of the last word.
const INLINE_MAX: usize = WORDS * 8 - 1;
/// In place of the last word, of what isn't a text that fits: no text is as long as that.
const NUMBER: u64 = u64::MAX;
const DIGEST: u64 = u64::MAX - 1;

/// Who uses something: a text, or a number. A number is the same key as its decimal digits for the server; for a limiter it
/// is a key of its own, and cheaper to look up.
pub trait LimitKey: sealed::Sealed {}

impl<K: sealed::Sealed + ?Sized> LimitKey for K {}

pub(super) mod sealed {
    /// A key as a limiter sees it.
    #[derive(Clone, Copy)]
    pub enum Plain<'a> {
        Text(&'a str),
        Number(u64),
    }

    pub trait Sealed {
        fn plain(&self) -> Plain<'_>;
    }

    impl Sealed for str {
        #[inline]
        fn plain(&self) -> Plain<'_> {
            Plain::Text(self)
        }
    }

    impl Sealed for String {
        #[inline]
        fn plain(&self) -> Plain<'_> {
            Plain::Text(self)
        }
    }

    impl Sealed for u64 {
        #[inline]
        fn plain(&self) -> Plain<'_> {
            Plain::Number(*self)
        }
    }

    impl<K: Sealed + ?Sized> Sealed for &K {
        #[inline]
        fn plain(&self) -> Plain<'_> {
            (**self).plain()
        }
    }
}

pub(super) use sealed::Plain;

impl<'a> Plain<'a> {
    /// As the server knows it.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Number(number) => Cow::Owned(number.to_string()),
        }
    }
}

/// A key, ready to be looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sought {
    pub words: [u64; WORDS],
    /// Spreads keys over the table; nothing rests on it.
    pub tag: u32,
}

/// What hashes are made with: random for each limiter.
#[derive(Default)]
pub(super) struct Salt {
    quick: foldhash::fast::RandomState,
    first: RandomState,
    second: RandomState,
}

impl Salt {
    #[inline]
    pub fn seek(&self, key: Plain<'_>) -> Sought {
        let (words, hash) = match key {
            Plain::Number(number) => ([number, 0, 0, 0, NUMBER], self.quick.hash_one(number)),
            Plain::Text(text) if text.len() <= INLINE_MAX => {
                let words = words_of(text.as_bytes());
                let mut hasher = self.quick.build_hasher();
                hasher.write_u64(words[0]);
                hasher.write_u64(words[1]);
                if text.len() > 16 {
                    hasher.write_u64(words[2]);
                    hasher.write_u64(words[3]);
                }
                hasher.write_u64(words[4]);
                (words, hasher.finish())
            }
            Plain::Text(text) => self.digest(text),
        };
        Sought { words, tag: (hash >> 32) as u32 }
    }

    /// The same, of words that were made with this salt.
    pub fn again(&self, words: [u64; WORDS]) -> Sought {
        match (words[WORDS - 1], text_in(&words)) {
            (NUMBER, _) => self.seek(Plain::Number(words[0])),
            (_, Some(text)) => self.seek(Plain::Text(&text)),
            (_, None) => Sought { words, tag: (words[0] >> 32) as u32 },
        }
    }

    #[cold]
    fn digest(&self, text: &str) -> ([u64; WORDS], u64) {
        let (first, second) = (self.first.hash_one(text), self.second.hash_one(text));
        ([first, second, text.len() as u64, 0, DIGEST], first)
    }
}

/// The text that is in the words, or the number's digits; nothing of a digest.
pub(super) fn text_in(words: &[u64; WORDS]) -> Option<String> {
    match words[WORDS - 1] {
        NUMBER => Some(words[0].to_string()),
        DIGEST => None,
        _ => {
            let mut bytes = [0; WORDS * 8];
            for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
                part.copy_from_slice(&word.to_le_bytes());
            }
            let text = bytes.get(..usize::from(bytes[INLINE_MAX]))?;
            String::from_utf8(text.to_vec()).ok()
        }
    }
}

/// A text's bytes and its length, without a copy through memory: this is half of what looking a text up costs.
#[inline]
fn words_of(text: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let (whole, rest) = text.as_chunks::<8>();
    for (word, bytes) in words.iter_mut().zip(whole) {
        *word = u64::from_le_bytes(*bytes);
    }
    if let Some(last) = text.last_chunk::<8>() {
        // The last eight bytes overlap what is there already: only the rest of them moves down.
        if !rest.is_empty() {
            words[whole.len()] = u64::from_le_bytes(*last) >> (64 - 8 * rest.len());
        }
    } else {
        words[0] = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words[WORDS - 1] |= (text.len() as u64) << 56;
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_recognized_and_its_text_comes_back() {
        let salt = Salt::default();
        let long = "x".repeat(INLINE_MAX + 1);
        let longest = "y".repeat(INLINE_MAX);
        let keys = [
            Plain::Text("a"),
            Plain::Text("a\0"),
            Plain::Text("42"),
            Plain::Text("12345678"),
            Plain::Text("123456789"),
            Plain::Text("1234567890abcdef"),
            Plain::Text("1234567890abcdefg"),
            Plain::Text("1234567890abcdefghijklmnopqrstuv"),
            Plain::Text("ä"),
            Plain::Text(&longest),
            Plain::Text(&long),
            Plain::Number(42),
            Plain::Number(u64::MAX),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(salt.seek(*key), salt.seek(*key));
            assert_eq!(salt.again(salt.seek(*key).words), salt.seek(*key));
            for other in &keys[index + 1..] {
                assert_ne!(salt.seek(*key).words, salt.seek(*other).words);
            }
            let text = text_in(&salt.seek(*key).words);
            assert_eq!(text.is_none(), key.text() == long, "only a long one isn't in its words");
            assert!(text.is_none_or(|text| text == key.text()));
        }
    }

    #[test]
    fn a_long_key_is_another_to_another_limiter() {
        let long = "x".repeat(200);
        let (one, other) =
            (Salt::default().seek(Plain::Text(&long)), Salt::default().seek(Plain::Text(&long)));
        assert_ne!(one.words, other.words);
    }
}
