//! Numbers in five bytes, next to each other without gaps: whoever has a million purses has several of them in each (P12).
//!
//! Milliseconds of a process's life last for 34 years so, and no limit is higher than 10^12. What doesn't fit counts as the most or
//! the least that does.

use core::fmt;

const BYTES: usize = 5;
const BITS: u32 = 40;

/// From 0 to 2^40 - 1.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct U40([u8; BYTES]);

/// From -2^39 to 2^39 - 1.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct I40([u8; BYTES]);

impl U40 {
    /// The most.
    pub const MAX: u64 = (1 << BITS) - 1;

    /// This one, or the most.
    #[inline]
    pub fn of(number: u64) -> Self {
        let [one, two, three, four, five, ..] = number.min(Self::MAX).to_le_bytes();
        Self([one, two, three, four, five])
    }

    /// As everybody else has it.
    #[inline]
    pub fn get(self) -> u64 {
        let [one, two, three, four, five] = self.0;
        u64::from_le_bytes([one, two, three, four, five, 0, 0, 0])
    }
}

impl I40 {
    /// The most.
    pub const MAX: i64 = (1 << (BITS - 1)) - 1;
    /// The least.
    pub const MIN: i64 = -Self::MAX - 1;

    /// This one, or the nearest that fits.
    #[inline]
    pub fn of(number: i64) -> Self {
        let [one, two, three, four, five, ..] = number.clamp(Self::MIN, Self::MAX).to_le_bytes();
        Self([one, two, three, four, five])
    }

    /// As everybody else has it.
    #[inline]
    pub fn get(self) -> i64 {
        let [one, two, three, four, five] = self.0;
        // From above, so that the sign comes along.
        i64::from_le_bytes([0, 0, 0, one, two, three, four, five]) >> (i64::BITS - BITS)
    }
}

impl fmt::Debug for U40 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl fmt::Debug for I40 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_too_much_or_too_little_is_the_nearest_that_fits() {
        assert_eq!((U40::of(U40::MAX).get(), U40::of(u64::MAX).get()), (U40::MAX, U40::MAX));
        assert_eq!((I40::of(I40::MAX).get(), I40::of(i64::MAX).get()), (I40::MAX, I40::MAX));
        assert_eq!((I40::of(I40::MIN).get(), I40::of(i64::MIN).get()), (I40::MIN, I40::MIN));
        assert_eq!((size_of::<[U40; 8]>(), size_of::<[I40; 8]>()), (40, 40));
    }

    proptest! {
        #[test]
        fn what_fits_comes_back_as_it_was(natural in 0..=U40::MAX, integer in I40::MIN..=I40::MAX) {
            prop_assert_eq!(U40::of(natural).get(), natural);
            prop_assert_eq!(I40::of(integer).get(), integer);
        }
    }
}
