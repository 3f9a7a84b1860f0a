//! Which meter a key was counted on: its own, or the one that is shared by those who come when there are as many as may have one.
//!
//! Each node knows for itself which keys are beyond that. So whatever outlives a call (a receipt, a place, a lease) says which meter
//! it is of, and any node finds that one again.

use super::meter_of;
use super::rule::overflow_key;
use crate::name::Name;
use crate::record::Key;
use alloc::string::String;

/// What a lease's id ends with if it is of the shared meter. An id that says so and isn't finds nothing there.
const SHARED: &str = ".shared";
/// Bytes of a lease's id.
const LEASE_ID_MAX: usize = 64;

/// Which meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metered {
    /// The key's own.
    Own,
    /// The one that is shared.
    Shared,
}

impl Metered {
    /// Which one a record is, of this limit.
    pub fn of_meter(name: &Name, meter: &Key) -> Self {
        let is_shared = meter_of(name, &meter.name).is_some_and(|key| key == overflow_key());
        if is_shared { Self::Shared } else { Self::Own }
    }

    /// Which one a lease is of.
    pub fn of_lease(id: &str) -> Self {
        if id.ends_with(SHARED) { Self::Shared } else { Self::Own }
    }

    /// Whose meter it is, for this key.
    pub fn key(self, key: &str) -> &str {
        match self {
            Self::Own => key,
            Self::Shared => overflow_key(),
        }
    }

    /// A lease's id that says which one it is of; nothing if there is no room for that.
    pub fn lease_id(self, id: &str) -> Option<String> {
        if Self::of_lease(id) == self {
            return Some(id.into());
        }
        let has_room = self == Self::Shared && id.len() + SHARED.len() <= LEASE_ID_MAX;
        has_room.then(|| [id, SHARED].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::meter_key;

    #[test]
    fn a_lease_s_id_says_which_meter_it_is_of() {
        assert_eq!(Metered::Own.lease_id("a1"), Some("a1".into()));
        let shared = Metered::Shared.lease_id("a1").unwrap();
        assert_eq!((Metered::of_lease("a1"), Metered::of_lease(&shared)), (Metered::Own, Metered::Shared));
        assert_eq!(Metered::Shared.lease_id(&shared), Some(shared), "it is said once");
        assert_eq!(Metered::Shared.lease_id(&"i".repeat(LEASE_ID_MAX - 6)), None);
    }

    #[test]
    fn a_meter_is_told_by_its_record() {
        let name = Name::new("n", "limit");
        for metered in [Metered::Own, Metered::Shared] {
            assert_eq!(Metered::of_meter(&name, &meter_key(&name, metered.key("k"))), metered);
        }
    }
}
