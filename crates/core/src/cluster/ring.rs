//! Which node owns which group of keys: the same for all who see the same nodes.

use crate::lock::NodeId;
use crate::record::{Group, Key};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// How many groups there are.
const GROUPS: usize = 256;
/// Nodes that can own something; of more, those with the lowest numbers do. Each would have less than a group.
const NODES_MAX: usize = GROUPS;

/// The owner of each group.
///
/// Every pair of a group and a node has a weight. The heaviest pair whose group has no owner yet and whose node has room makes an owner, and
/// so on; a node has room for its share, rounded up, and one more. So no node has more than that, and one that comes or goes
/// moves little more than its own share: the one more halves what the others have to shift among themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    owners: Vec<NodeId>,
    /// Who owns any.
    nodes: Vec<NodeId>,
    /// Who is kept for hot keys that are pinned.
    dedicated: Vec<NodeId>,
    revision: u64,
}

impl Ring {
    /// Over these nodes. Without any nobody owns anything.
    pub fn of(nodes: &BTreeSet<NodeId>) -> Self {
        let nodes: Vec<_> = nodes.iter().copied().take(NODES_MAX).collect();
        let ids: Vec<u8> = nodes.iter().flat_map(|node| node.0.to_be_bytes()).collect();
        let revision = xxh3_64(&ids);
        if nodes.is_empty() {
            return Self { owners: Vec::new(), nodes, dedicated: Vec::new(), revision };
        }
        let mut pairs = Vec::with_capacity(GROUPS * nodes.len());
        for group in Group::all() {
            let weight = |node: NodeId| xxh3_64_with_seed(&[group.0], node.0);
            pairs.extend(nodes.iter().enumerate().map(|(place, node)| (weight(*node), group, place)));
        }
        pairs.sort_unstable_by(|one, other| other.cmp(one));
        let mut rooms = vec![GROUPS.div_ceil(nodes.len()) + 1; nodes.len()];
        let mut owners = vec![NodeId::NONE; GROUPS];
        for (_, group, place) in pairs {
            let owner = &mut owners[usize::from(group.0)];
            if *owner == NodeId::NONE && rooms[place] > 0 {
                *owner = nodes[place];
                rooms[place] -= 1;
            }
        }
        Self { owners, nodes, dedicated: Vec::new(), revision }
    }

    /// The same, with nodes that own nothing and are kept for hot keys.
    pub fn and_dedicated(self, nodes: &BTreeSet<NodeId>) -> Self {
        Self { dedicated: nodes.iter().copied().take(NODES_MAX).collect(), ..self }
    }

    /// The nodes nearest to a key, at most so many of those that own something: for all who see the same nodes the same.
    pub fn nearest(&self, key: &Key, count: u64) -> Vec<NodeId> {
        let mut nodes = self.nodes.clone();
        nodes.sort_unstable_by_key(|node| Reverse((weight(key, *node), *node)));
        nodes.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        nodes
    }

    /// Which of the nodes kept for hot keys a key would go to.
    pub fn dedicated_to(&self, key: &Key) -> Option<NodeId> {
        self.dedicated.iter().copied().max_by_key(|node| (weight(key, *node), *node))
    }

    /// Who owns a group, if there are nodes.
    pub fn owner(&self, group: Group) -> Option<NodeId> {
        self.owners.get(usize::from(group.0)).copied()
    }

    /// The owner of each group, in order; empty without nodes.
    pub fn owners(&self) -> &[NodeId] {
        &self.owners
    }

    /// The part of all groups that a node owns: all of them, if it knows of no nodes.
    pub fn part_of(&self, node: NodeId) -> f64 {
        let owned = self.owners.iter().filter(|owner| **owner == node).count();
        if self.owners.is_empty() { 1.0 } else { owned as f64 / self.owners.len() as f64 }
    }

    /// The same for the same nodes.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// How near a node is to a key.
fn weight(key: &Key, node: NodeId) -> u64 {
    xxh3_64_with_seed(&key.name, node.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn shares(ring: &Ring) -> BTreeMap<NodeId, usize> {
        let mut shares = BTreeMap::new();
        for owner in ring.owners() {
            *shares.entry(*owner).or_default() += 1;
        }
        shares
    }

    fn moved(one: &Ring, other: &Ring) -> usize {
        one.owners().iter().zip(other.owners()).filter(|(one, other)| one != other).count()
    }

    fn some_nodes(count: core::ops::Range<usize>) -> impl Strategy<Value = BTreeSet<NodeId>> {
        proptest::collection::btree_set((1..u64::MAX).prop_map(NodeId), count)
    }

    #[test]
    fn without_nodes_nobody_owns_anything_and_one_node_owns_all() {
        let none = Ring::of(&BTreeSet::new());
        assert_eq!(Group::all().find_map(|group| none.owner(group)), None);
        let one = Ring::of(&BTreeSet::from([NodeId(5)]));
        assert!(Group::all().all(|group| one.owner(group) == Some(NodeId(5))));
        assert_eq!(
            (one.part_of(NodeId(5)), one.part_of(NodeId(6)), none.part_of(NodeId(6))),
            (1.0, 0.0, 1.0)
        );
    }

    /// Nodes of different versions must agree, and so must the next release with this one.
    #[test]
    fn who_owns_what_stays_as_it_is_from_version_to_version() {
        let ring = Ring::of(&BTreeSet::from([1, 2, 3].map(NodeId)));
        let owners: Vec<_> = ring.owners().iter().flat_map(|owner| owner.0.to_be_bytes()).collect();
        assert_eq!(
            (xxh3_64(&owners), ring.revision()),
            (2_566_829_668_341_502_248, 2_890_729_839_653_980_358)
        );
    }

    #[test]
    fn who_comes_or_goes_moves_little_more_than_its_share() {
        const TRIES: usize = 20;
        for count in [1, 2, 3, 5, 8, 12, 20] {
            let mut in_all = 0;
            for one in 0..TRIES {
                let id = |node: usize| NodeId(xxh3_64(&[one as u8, node as u8]).max(1));
                let before: BTreeSet<_> = (0..count).map(id).collect();
                let after: BTreeSet<_> = (0..=count).map(id).collect();
                in_all += moved(&Ring::of(&before), &Ring::of(&after));
            }
            let (mean, share) = (in_all / TRIES, GROUPS / (count + 1));
            assert!(
                (share..=share * 3 / 2).contains(&(mean + 1)),
                "{count} nodes: {mean} moved, {share} had to"
            );
        }
    }

    proptest! {
        #[test]
        fn each_has_its_share_and_nobody_more(nodes in some_nodes(1..300)) {
            let ring = Ring::of(&nodes);
            let shares = shares(&ring);
            prop_assert!(shares.keys().all(|node| nodes.contains(node)));
            prop_assert_eq!(shares.values().sum::<usize>(), GROUPS);
            prop_assert!(shares.values().all(|share| *share <= GROUPS.div_ceil(nodes.len().min(GROUPS)) + 1));
        }
    }
}
