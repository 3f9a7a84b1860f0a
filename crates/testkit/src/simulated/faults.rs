//! What may go wrong on the way to the store and back. Chances are of a thousand, times in milliseconds.

use crate::dice::Dice;
use std::time::Duration;

/// How a node's way to the store treats what is sent on it.
#[derive(Clone, Debug)]
pub struct Faults {
    /// How long a call takes to arrive.
    pub there_ms: (u64, u64),
    /// How long its answer takes.
    pub back_ms: (u64, u64),
    /// Calls that take much longer, each way, up to `slow_ms`.
    pub slow: u32,
    /// How slow.
    pub slow_ms: (u64, u64),
    /// Calls that the store refuses: nothing was applied.
    pub refused: u32,
    /// Calls that get lost: nobody knows, and they never arrive.
    pub lost: u32,
    /// Calls whose answer gets lost: nobody knows, but commits were applied.
    pub answer_lost: u32,
    /// Commits that arrive long after they were given up as unknown, and perhaps after they were sent again; what is
    /// read so late is of no use to anybody.
    pub late: u32,
    /// How late.
    pub late_ms: (u64, u64),
    /// Hints that get lost; the watcher is told so some time later.
    pub hints_lost: u32,
    /// Reads and scans always succeed.
    pub spares_reads: bool,
    /// What is under way when the node dies and never arrives; the rest arrives, late.
    pub lost_at_death: u32,
}

impl Faults {
    /// Nothing goes wrong, and nothing takes long.
    pub fn none() -> Self {
        Self {
            there_ms: (0, 2),
            back_ms: (0, 2),
            slow: 0,
            slow_ms: (0, 0),
            refused: 0,
            lost: 0,
            answer_lost: 0,
            late: 0,
            late_ms: (0, 0),
            hints_lost: 0,
            spares_reads: false,
            lost_at_death: 500,
        }
    }
}

/// What a call is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// What came out of it.
    Told,
    /// That nothing was applied.
    Refused,
    /// That nobody knows.
    Unknown,
}

/// What becomes of one call.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// When it arrives, if ever.
    pub arrives: Option<Duration>,
    /// When it is answered.
    pub answered: Duration,
    pub fate: Fate,
    /// If the node dies before it arrives: how much later it arrives then, if ever.
    pub after_death: Option<Duration>,
}

impl Plan {
    pub fn draw(faults: &Faults, dice: &mut Dice) -> Self {
        let mut leg = |range| {
            let slow = dice.chance(faults.slow);
            dice.millis(if slow { faults.slow_ms } else { range })
        };
        let (there, back) = (leg(faults.there_ms), leg(faults.back_ms));
        let after_death = (!dice.chance(faults.lost_at_death)).then(|| dice.millis((0, 4000)));
        let answered = there + back;
        let mut plan = Self { arrives: Some(there), answered, fate: Fate::Told, after_death };
        if dice.chance(faults.refused) {
            (plan.arrives, plan.fate) = (None, Fate::Refused);
        } else if dice.chance(faults.lost) {
            (plan.arrives, plan.fate) = (None, Fate::Unknown);
        } else if dice.chance(faults.answer_lost) {
            plan.fate = Fate::Unknown;
        } else if dice.chance(faults.late) {
            (plan.arrives, plan.fate) = (Some(answered + dice.millis(faults.late_ms)), Fate::Unknown);
        }
        plan
    }
}
