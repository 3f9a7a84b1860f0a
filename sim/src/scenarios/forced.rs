//! An administrator takes locks away from whoever holds them.

use super::{Plan, bad_way, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = dice.between((1, 2)) as usize;
    plan.clients = dice.between((2, 6)) as usize;
    plan.habits.hold_ms = (50, 900);
    plan.habits.reentrant = 200;
    plan.forced_ms = Some((20, 900));
    if dice.chance(700) {
        plan.faults = bad_way(dice);
    }
    plan
}
