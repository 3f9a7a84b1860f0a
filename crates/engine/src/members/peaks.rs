//! How many nodes there were lately, at most: a share must not grow because some of them can't be seen just now.
//!
//! Kept are moments at which there were more nodes than ever since: as time goes on fewer nodes, later. So the highest number of any
//! time up to now is found, whatever that time is.

use baton_core::lock::NodeId;
use std::time::Duration;
use tokio::time::Instant;

/// Moments that are kept. Beyond it the lowest is taken to have been as high as the one before it: shares get smaller by
/// that, not larger.
const PEAKS_MAX: usize = 16;

/// The highest numbers of nodes, each later than the one before, and lower.
#[derive(Default)]
pub(super) struct Peaks(Vec<Peak>);

struct Peak {
    /// Sorted.
    nodes: Vec<NodeId>,
    /// When it was last so.
    last: Instant,
}

impl Peaks {
    /// These have lived up to `now`.
    pub fn note(&mut self, nodes: impl Iterator<Item = NodeId>, now: Instant) {
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_unstable();
        self.0.retain(|peak| peak.nodes.len() > nodes.len());
        self.0.push(Peak { nodes, last: now });
        if self.0.len() > PEAKS_MAX {
            self.0.pop();
            if let Some(lowest) = self.0.last_mut() {
                lowest.last = now;
            }
        }
    }

    /// Which place a node had among the most that lived at once in the last while, and how many those were. Nothing if there
    /// never were any.
    pub fn highest(&self, node: NodeId, recent: Duration, now: Instant) -> Option<(usize, usize)> {
        let is_recent = |peak: &&Peak| now.saturating_duration_since(peak.last) <= recent;
        // The last one is as of now, however long ago that was noted.
        let peak = self.0.iter().find(is_recent).or(self.0.last())?;
        Some((peak.nodes.partition_point(|other| *other < node), peak.nodes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn note(peaks: &mut Peaks, nodes: &[u64], now: Instant) {
        peaks.note(nodes.iter().copied().map(NodeId), now);
    }

    #[test]
    fn the_highest_number_counts_for_as_long_as_is_asked() {
        let (mut peaks, start) = (Peaks::default(), Instant::now());
        assert_eq!(peaks.highest(NodeId(5), MINUTE, start), None);
        note(&mut peaks, &[9, 5, 1], start);
        note(&mut peaks, &[5, 9], start + MINUTE);
        note(&mut peaks, &[5], start + 2 * MINUTE);
        let at = |recent| peaks.highest(NodeId(5), recent, start + 2 * MINUTE);
        assert_eq!(at(2 * MINUTE), Some((1, 3)));
        assert_eq!(at(2 * MINUTE - Duration::from_millis(1)), Some((0, 2)));
        assert_eq!(at(Duration::ZERO), Some((0, 1)));
        let later = start + 100 * MINUTE;
        assert_eq!(
            peaks.highest(NodeId(5), MINUTE, later),
            Some((0, 1)),
            "what there is now is never too old"
        );
        note(&mut peaks, &[5, 7], later);
        assert_eq!(peaks.highest(NodeId(5), 101 * MINUTE, later), Some((1, 3)), "more than there are now");
        assert_eq!(peaks.highest(NodeId(7), MINUTE, later), Some((1, 2)));
        assert_eq!(peaks.0.len(), 2);
    }

    #[test]
    fn all_places_are_different_and_at_the_bound_a_share_gets_smaller_not_larger() {
        let (mut peaks, start) = (Peaks::default(), Instant::now());
        for gone in 0..3 * PEAKS_MAX as u64 {
            let nodes: Vec<_> = (gone..100).collect();
            note(&mut peaks, &nodes, start + MINUTE * gone as u32);
            let now = start + MINUTE * gone as u32;
            let places: Vec<_> = nodes
                .iter()
                .map(|node| peaks.highest(NodeId(*node), Duration::ZERO, now).expect("known"))
                .collect();
            assert!(places.iter().all(|(_, count)| *count >= nodes.len()));
            assert!(places.is_sorted_by(|a, b| a.0 < b.0));
            assert!(peaks.0.len() <= PEAKS_MAX);
        }
    }
}
