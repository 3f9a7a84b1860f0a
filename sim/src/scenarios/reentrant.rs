//! Owners that take what they have, again and again, with retries of each step.

use super::{Plan, bad_way, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = 1;
    plan.clients = dice.between((2, 5)) as usize;
    plan.habits.reentrant = 900;
    plan.habits.ttl_ms = (600, 3000);
    plan.habits.hold_ms = (0, 200);
    plan.habits.breaks = 100;
    plan.habits.unheard = 150;
    plan.habits.doubled = 150;
    if dice.chance(700) {
        plan.faults = bad_way(dice);
    }
    if dice.chance(300) {
        plan.node_lives_ms = Some((500, 4000));
    }
    plan
}
