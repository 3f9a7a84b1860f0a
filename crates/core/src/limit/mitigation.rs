//! What is done about a key that is hot, so that its neighbours keep their time (M3).
//!
//! Every choice but the cap decides only *where* the key is decided. What is admitted is leased from the one meter that the key has, wherever
//! that is, so the limit holds however many decide: also at the moment at which a key becomes hot, or isn't any more. Meters
//! of their own would begin empty beside what the key has used, and admit that much again.

use crate::cluster::Ring;
use crate::codec::Unreadable;
use crate::lock::NodeId;
use crate::record::Key;

/// How many nodes decide a key that is split, if nothing is said.
pub const PARTS: u64 = 4;
/// Checks of a capped key that a node lets through in a second, if nothing is said.
pub const CAP: u64 = 1_000;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mitigation {
    /// Every node decides it, out of its own lease.
    #[default]
    Delegate,
    /// So many nodes decide it; the others forward to them by turns.
    Split {
        /// At least 2.
        parts: u64,
    },
    /// A node that is kept for hot keys decides it.
    Pin,
    /// It stays where it is, and no node lets through more than this many checks of it.
    Cap {
        /// In a second.
        per_second: u64,
    },
}

impl Mitigation {
    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delegate => "delegate",
            Self::Split { .. } => "split",
            Self::Pin => "pin",
            Self::Cap { .. } => "cap",
        }
    }

    /// Which one, and its number: what is stored.
    pub(super) fn numbers(self) -> (u8, u64) {
        match self {
            Self::Delegate => (0, 0),
            Self::Split { parts } => (1, parts),
            Self::Pin => (2, 0),
            Self::Cap { per_second } => (3, per_second),
        }
    }

    /// What was stored.
    pub(super) fn of_numbers(which: u8, number: u64) -> Result<Self, Unreadable> {
        match (which, number) {
            (0, 0) => Ok(Self::Delegate),
            (1, parts @ 2..) => Ok(Self::Split { parts }),
            (2, 0) => Ok(Self::Pin),
            (3, per_second @ 1..) => Ok(Self::Cap { per_second }),
            _ => Err(Unreadable),
        }
    }

    /// Who decides a hot key, as seen by the node `me`; nobody if there are no owners. `turn` is any number: where several may
    /// be asked, the next one asks the next.
    pub fn decider(self, ring: &Ring, place: &Key, me: NodeId, turn: u64) -> Option<NodeId> {
        let owner = ring.owner(place.group)?;
        Some(match self {
            Self::Delegate => me,
            Self::Cap { .. } => owner,
            Self::Pin => ring.dedicated_to(place).unwrap_or(owner),
            Self::Split { parts } => {
                let deciders = ring.nearest(place, parts);
                if deciders.contains(&me) {
                    return Some(me);
                }
                deciders.get(turn as usize % deciders.len().max(1)).copied().unwrap_or(owner)
            }
        })
    }

    /// Whether a node decides a key while it is hot, whoever owns it.
    pub fn is_taken_by(self, ring: &Ring, place: &Key, me: NodeId) -> bool {
        match self {
            Self::Split { parts } => ring.nearest(place, parts).contains(&me),
            Self::Pin => ring.dedicated_to(place) == Some(me),
            Self::Delegate | Self::Cap { .. } => false,
        }
    }
}

/// How many checks of a capped key a node has let through in this second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    second: u64,
    count: u64,
}

impl Pace {
    /// Lets a check through, or says after how many milliseconds one can be.
    pub fn admit(&mut self, per_second: u64, now_ms: u64) -> Result<(), u64> {
        let second = now_ms / 1_000;
        if second > self.second {
            *self = Self { second, count: 0 };
        }
        if self.count >= per_second {
            return Err(1_000 - now_ms % 1_000);
        }
        self.count += 1;
        Ok(())
    }

    /// Whether nothing of it matters any more.
    pub fn is_over(&self, now_ms: u64) -> bool {
        now_ms / 1_000 > self.second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::meter_key;
    use crate::name::Name;
    use alloc::collections::BTreeSet;
    use alloc::format;

    const NODES: [NodeId; 5] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4), NodeId(5)];

    fn place(key: &str) -> Key {
        meter_key(&Name::new("n", "l"), key)
    }

    #[test]
    fn a_split_key_is_decided_by_so_many_and_all_agree_who_they_are() {
        let ring = Ring::of(&NODES.into());
        let split = Mitigation::Split { parts: 2 };
        for key in 0..50 {
            let place = place(&format!("k{key}"));
            let taken: BTreeSet<_> =
                NODES.into_iter().filter(|node| split.is_taken_by(&ring, &place, *node)).collect();
            assert_eq!(taken.len(), 2);
            for me in NODES {
                let asked: BTreeSet<_> =
                    (0..10).filter_map(|turn| split.decider(&ring, &place, me, turn)).collect();
                let wanted = if taken.contains(&me) { BTreeSet::from([me]) } else { taken.clone() };
                assert_eq!(asked, wanted, "who decides does so, and the others ask all of them by turns");
            }
        }
        let all = Mitigation::Split { parts: 64 };
        assert!(NODES.iter().all(|node| all.is_taken_by(&ring, &place("k"), *node)), "there are no more");
    }

    #[test]
    fn a_pinned_key_goes_to_one_of_the_nodes_kept_for_it_or_stays() {
        let kept = [NodeId(8), NodeId(9)];
        let (without, with) = (Ring::of(&NODES.into()), Ring::of(&NODES.into()).and_dedicated(&kept.into()));
        let mut seen = BTreeSet::new();
        for key in 0..50 {
            let place = place(&format!("k{key}"));
            assert_eq!(Mitigation::Pin.decider(&without, &place, NodeId(1), 0), without.owner(place.group));
            let decider = Mitigation::Pin.decider(&with, &place, NodeId(1), key).unwrap();
            assert!(Mitigation::Pin.is_taken_by(&with, &place, decider));
            seen.insert(decider);
        }
        assert_eq!(seen, kept.into(), "both have some");
        assert_eq!(with.revision(), without.revision(), "they own nothing");
    }

    #[test]
    fn a_cap_lets_so_many_through_in_a_second_and_says_when_the_next_begins() {
        let mut pace = Pace::default();
        let admitted = |pace: &mut Pace, now_ms| (0..10).filter(|_| pace.admit(3, now_ms).is_ok()).count();
        assert_eq!(admitted(&mut pace, 1_900), 3);
        assert_eq!(pace.admit(3, 1_950), Err(50));
        assert!(!pace.is_over(1_999) && pace.is_over(2_000));
        assert_eq!(admitted(&mut pace, 2_000), 3);
        assert_eq!(pace.admit(3, 1_999), Err(1), "a clock that is read late reopens nothing");
    }

    #[test]
    fn a_delegated_key_is_decided_anywhere_and_a_capped_one_where_it_was() {
        let ring = Ring::of(&NODES.into());
        let place = place("k");
        for me in NODES {
            assert_eq!(Mitigation::Delegate.decider(&ring, &place, me, 0), Some(me));
            let cap = Mitigation::Cap { per_second: 1 };
            assert_eq!(cap.decider(&ring, &place, me, 0), ring.owner(place.group));
        }
        assert_eq!(Mitigation::Delegate.decider(&Ring::of(&BTreeSet::new()), &place, NodeId(1), 0), None);
    }
}
