//! How a lock is held (L17).

use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// How to hold a lock, and so what kind of lock a key is while it is in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LockMode {
    /// Alone: a plain lock, and the writer's side of a read/write lock.
    #[default]
    Exclusive,
    /// With others who share it: the reader's side of a read/write lock. Its fencing token is not for fences.
    Shared,
    /// One of `permits`. It is fenced by `key#slot`.
    Semaphore,
}

impl LockMode {
    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Semaphore => "semaphore",
        }
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        *self == Self::Exclusive
    }

    /// Whether permits were said where they belong, and what goes with one holder only.
    pub(crate) fn check(self, permits: Option<u64>, reentrant: bool) -> Result<(), ErrorBody> {
        match (self, permits) {
            (Self::Semaphore, Some(permits)) => limits::check_number("permits", permits, limits::PERMITS)?,
            (Self::Semaphore, None) => {
                return Err(ErrorBody::invalid(
                    "permits",
                    "a semaphore needs its number of permits, the same in every acquire of the key",
                ));
            }
            (_, Some(_)) => {
                return Err(ErrorBody::invalid("permits", "permits are for \"mode\": \"semaphore\" only"));
            }
            (_, None) => {}
        }
        if reentrant && self != Self::Exclusive {
            return Err(ErrorBody::invalid(
                "reentrant",
                "only an exclusive lock can be reentrant; acquire a shared one or a permit once, and keep it",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_belong_to_semaphores_and_reentrancy_to_exclusive_locks() {
        use LockMode::{Exclusive, Semaphore, Shared};
        for (mode, permits, reentrant, field) in [
            (Exclusive, None, true, None),
            (Shared, None, false, None),
            (Semaphore, Some(1), false, None),
            (Semaphore, Some(256), false, None),
            (Semaphore, None, false, Some("permits")),
            (Semaphore, Some(0), false, Some("permits")),
            (Semaphore, Some(257), false, Some("permits")),
            (Exclusive, Some(1), false, Some("permits")),
            (Shared, Some(2), false, Some("permits")),
            (Shared, None, true, Some("reentrant")),
            (Semaphore, Some(2), true, Some("reentrant")),
        ] {
            let fault = mode.check(permits, reentrant).err().and_then(|body| body.field);
            assert_eq!(fault.as_deref(), field, "{mode:?} {permits:?} {reentrant}");
        }
    }
}
