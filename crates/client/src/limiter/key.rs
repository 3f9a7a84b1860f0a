//! What a limiter's keys are, and how they are recognized quickly.
//!
//! A text of up to [`INLINE_MAX`] bytes and a number are compared as they are. A longer text is recognized by its length and a digest of 128
//! bits: each half is the high half of a sum, modulo 2^128, of its words times numbers that are random for each limiter. Such a sum is strongly
//! universal: of any two texts that somebody chooses without knowing the numbers, both halves are the same with a chance of 2^-128.

use super::table::Mark;
use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};

/// Words that a text is compared by.
pub(super) const WORDS: usize = 3;
/// A text as long as this fits into the words, beside its length, which is the last byte of the last word.
const INLINE_MAX: usize = WORDS * 8 - 1;
/// Words of a text as long as a server takes. What comes after them isn't looked at: a longer text never has anything to spend.
const LONG_WORDS: usize = 512 / 8;
/// In place of the last byte, of what isn't a text that fits: no text is as long as that.
const DIGEST: u64 = 0xff << 56;

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
pub(super) enum Sought {
    Number(Mark<1>),
    Text(Mark<WORDS>),
}

/// What hashes are made with: random for each limiter.
pub(super) struct Salt {
    quick: foldhash::fast::RandomState,
    /// For the two halves of a digest: what a sum begins with, and what each word is multiplied by.
    factors: Box<[[u128; 2]; LONG_WORDS + 1]>,
}

impl Default for Salt {
    fn default() -> Self {
        let factor = |_| [crate::random::wide(), crate::random::wide()];
        Self { quick: foldhash::fast::RandomState::default(), factors: Box::new(std::array::from_fn(factor)) }
    }
}

impl Salt {
    pub fn seek(&self, key: Plain<'_>) -> Sought {
        match key {
            Plain::Number(number) => Sought::Number(self.number(number)),
            Plain::Text(text) => Sought::Text(self.text(text)),
        }
    }

    #[inline]
    pub fn number(&self, number: u64) -> Mark<1> {
        Mark { words: [number], hash: self.quick.hash_one(number) }
    }

    #[inline]
    pub fn text(&self, text: &str) -> Mark<WORDS> {
        let is_long = text.len() > INLINE_MAX;
        self.words(if is_long { self.digest(text) } else { words_of(text.as_bytes()) })
    }

    /// Of the words of a text.
    #[inline]
    pub fn words(&self, words: [u64; WORDS]) -> Mark<WORDS> {
        let mut hasher = self.quick.build_hasher();
        words.iter().for_each(|word| hasher.write_u64(*word));
        Mark { words, hash: hasher.finish() }
    }

    fn digest(&self, text: &str) -> [u64; WORDS] {
        let [[first, second], factors @ ..] = &*self.factors;
        let (mut first, mut second) = (*first, *second);
        let (whole, rest) = text.as_bytes().as_chunks::<8>();
        let rest = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let words = whole.iter().map(|bytes| u64::from_le_bytes(*bytes)).chain([rest]);
        for (word, factor) in words.zip(factors) {
            first = first.wrapping_add(factor[0].wrapping_mul(u128::from(word)));
            second = second.wrapping_add(factor[1].wrapping_mul(u128::from(word)));
        }
        [(first >> 64) as u64, (second >> 64) as u64, DIGEST | text.len() as u64]
    }
}

/// The text that is in the words; nothing of a digest.
pub(super) fn text_in(words: &[u64; WORDS]) -> Option<String> {
    let mut bytes = [0; WORDS * 8];
    for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    let text = bytes.get(..usize::from(bytes[INLINE_MAX]))?;
    String::from_utf8(text.to_vec()).ok()
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
    fn a_text_is_recognized_and_comes_back() {
        let salt = Salt::default();
        let (longest, long, longer) =
            ("y".repeat(INLINE_MAX), "y".repeat(INLINE_MAX + 1), "y".repeat(INLINE_MAX + 2));
        let texts = [
            "a",
            "a\0",
            "42",
            "1234567",
            "12345678",
            "123456789",
            "1234567890abcdef",
            "1234567890abcdefg",
            "ä",
            &longest,
            &long,
            &longer,
        ];
        let words = |text: &str| match salt.seek(Plain::Text(text)) {
            Sought::Text(mark) => mark.words,
            Sought::Number(_) => panic!("a text is no number"),
        };
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(salt.seek(Plain::Text(text)), Sought::Text(salt.words(words(text))));
            for other in &texts[index + 1..] {
                assert_ne!(words(text), words(other));
            }
            let is_long = text.len() > INLINE_MAX;
            assert_eq!(
                text_in(&words(text)),
                (!is_long).then(|| (*text).to_owned()),
                "a long one isn't in its words"
            );
        }
    }

    #[test]
    fn long_texts_that_differ_anywhere_have_other_digests() {
        let salt = Salt::default();
        for length in [INLINE_MAX + 1, 100, 511, 512] {
            let text = "x".repeat(length);
            for at in 0..length {
                let other = format!("{}y{}", &text[..at], &text[at + 1..]);
                let (one, other) = (salt.digest(&text), salt.digest(&other));
                assert!(one[0] != other[0] && one[1] != other[1], "at {at} of {length}");
                // Sums with the same factors would differ alike, but for a carry: then a digest were worth half of its bits.
                let [first, second] = [0, 1].map(|half| one[half].wrapping_sub(other[half]));
                assert!(first.abs_diff(second) > 1, "the halves are each other's at {at} of {length}");
            }
        }
        assert_eq!(LONG_WORDS * 8, *baton_api::limits::KEY_BYTES.end());
    }

    #[test]
    fn a_long_key_is_another_to_another_limiter() {
        let long = "x".repeat(200);
        let (one, other) = (Salt::default().digest(&long), Salt::default().digest(&long));
        assert!(one[0] != other[0] && one[1] != other[1]);
    }
}
