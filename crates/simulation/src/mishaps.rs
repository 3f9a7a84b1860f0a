//! What goes wrong, and when: drawn from the seed before anything happens.

use crate::chance::Dice;
use crate::plan::Plan;

/// How long a crashed node is away, unless the run is too short for that.
const AWAY_US: u64 = 5_000_000;

/// What happens to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// It dies, with all it holds.
    Crash,
    /// It is there, knowing nothing.
    Come,
    /// The store can't be reached from it until then.
    Cut { until_us: u64 },
    /// The store can be reached again, if nothing else cut it off.
    Heal,
    /// It hears of the definition as it is since then.
    Learn { version: usize },
}

/// How long it takes until a node has heard of another definition, at most.
pub const HEARD_US: u64 = 1_000_000;

/// When the definition changes, and when each place hears of that.
pub fn changes(plan: &Plan) -> (Vec<u64>, Vec<(u64, usize, Mishap)>) {
    let mut dice = Dice::new(plan.seed, 5);
    let duration_us = plan.duration_ms * 1_000;
    let mut moments: Vec<_> =
        (0..plan.changes).map(|_| duration_us / 10 + dice.below(duration_us * 8 / 10)).collect();
    moments.sort_unstable();
    let mut heard = Vec::new();
    for (before, at_us) in moments.iter().enumerate() {
        for place in 0..plan.places() {
            let learn = Mishap::Learn { version: before + 1 };
            heard.push((at_us + dice.below(HEARD_US), place as usize, learn));
        }
    }
    (moments, heard)
}

/// All that goes wrong: when, and at which place.
pub fn draw(plan: &Plan) -> Vec<(u64, usize, Mishap)> {
    let mut dice = Dice::new(plan.seed, 3);
    let duration_us = plan.duration_ms * 1_000;
    // Not at the very beginning, when nothing is held yet, nor so late that nothing follows.
    let moment = |dice: &mut Dice| duration_us / 10 + dice.below(duration_us * 8 / 10);
    let mut all = Vec::new();
    for _ in 0..plan.crashes {
        let (at_us, place) = (moment(&mut dice), dice.below(plan.nodes) as usize);
        all.push((at_us, place, Mishap::Crash));
        all.push((at_us + AWAY_US.min(duration_us / 5), place, Mishap::Come));
    }
    for place in plan.nodes..plan.places() {
        all.push((moment(&mut dice), place as usize, Mishap::Come));
    }
    for _ in 0..plan.partitions {
        let (at_us, place) = (moment(&mut dice), dice.below(plan.nodes) as usize);
        let until_us = at_us + plan.partition_ms * 1_000;
        all.push((at_us, place, Mishap::Cut { until_us }));
        all.push((until_us, place, Mishap::Heal));
    }
    all
}
