//! Connections break, answers get lost, calls are made twice at once: every effect counts once.

use super::{Plan, bad_way, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = dice.between((1, 2)) as usize;
    plan.clients = dice.between((2, 6)) as usize;
    plan.habits.breaks = 200;
    plan.habits.breaks_ms = (0, dice.between((10, 800)));
    plan.habits.unheard = 200;
    plan.habits.doubled = 250;
    plan.habits.repeats = 300;
    plan.habits.reuses = 100;
    if dice.chance(600) {
        plan.faults = bad_way(dice);
    }
    plan
}
