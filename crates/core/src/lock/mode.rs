//! How a lock is held: by one, by many who only read, or by as many as there are permits (L17).
//!
//! `Exclusive` and `Shared` are two ways to hold one kind of lock: a lock that nobody asks to share is a plain one. A
//! semaphore is another kind, and its number of permits is part of it.

use crate::codec::Unreadable;

/// How many hold a lock at once, at most; also the greatest number of permits. Beyond it, those who could share it wait
/// like everybody else. It keeps a roster of the longest names below 150 KiB.
pub const HOLDERS_MAX: u16 = 256;

/// How somebody wants to hold a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// With others who want the same.
    Shared,
    /// One permit of so many.
    Semaphore {
        /// 1 to [`HOLDERS_MAX`].
        permits: u16,
    },
}

impl Mode {
    /// How many permits there are, if it is a semaphore's.
    pub fn permits(self) -> Option<u16> {
        match self {
            Self::Semaphore { permits } => Some(permits),
            Self::Exclusive | Self::Shared => None,
        }
    }

    pub(super) fn number(self) -> u64 {
        match self {
            Self::Exclusive => 0,
            Self::Shared => 1,
            Self::Semaphore { permits } => 2 + u64::from(permits),
        }
    }

    pub(super) fn from_number(number: u64) -> Result<Self, Unreadable> {
        match number {
            0 => Ok(Self::Exclusive),
            1 => Ok(Self::Shared),
            _ => match u16::try_from(number - 2) {
                Ok(permits @ 1..=HOLDERS_MAX) => Ok(Self::Semaphore { permits }),
                _ => Err(Unreadable),
            },
        }
    }
}

/// How somebody holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hold {
    /// Alone.
    #[default]
    Exclusive,
    /// With others who share it. Many tokens are good at once, so that a resource can't fence by them.
    Shared,
    /// With a permit. Tokens grow in each slot: a resource is fenced by `key#slot` (F8).
    Permit {
        /// Which of the permits: 0 and up.
        slot: u16,
    },
}

impl Hold {
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Exclusive => 0,
            Self::Shared => 1,
            Self::Permit { slot } => 2 + u64::from(slot),
        }
    }

    pub(super) fn from_number(number: u64) -> Result<Self, Unreadable> {
        match number {
            0 => Ok(Self::Exclusive),
            1 => Ok(Self::Shared),
            _ => u16::try_from(number - 2).map(|slot| Self::Permit { slot }).map_err(|_| Unreadable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_holds_are_read_as_they_were_written_and_nothing_else_is() {
        let modes = [1, 2, HOLDERS_MAX].map(|permits| Mode::Semaphore { permits });
        for mode in modes.into_iter().chain([Mode::Exclusive, Mode::Shared]) {
            assert_eq!(Mode::from_number(mode.number()), Ok(mode));
        }
        for number in [2, 3 + u64::from(HOLDERS_MAX), u64::MAX] {
            assert!(Mode::from_number(number).is_err(), "{number}");
        }
        for hold in [Hold::Exclusive, Hold::Shared, Hold::Permit { slot: 0 }, Hold::Permit { slot: 255 }] {
            assert_eq!(Hold::from_number(hold.number()), Ok(hold));
        }
        assert!(Hold::from_number(u64::MAX).is_err());
    }
}
