//! Everything goes wrong at once.

use super::{Plan, bad_way, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = dice.between((1, 3)) as usize;
    plan.clients = dice.between((3, 9)) as usize;
    plan.habits.ttl_ms = (100, 1500);
    plan.habits.hold_ms = (0, 600);
    plan.habits.breaks = 80;
    plan.habits.unheard = 80;
    plan.habits.doubled = 80;
    plan.habits.dies_waiting = 10;
    plan.habits.dies_holding = 10;
    plan.habits.sleeps = 80;
    plan.habits.reentrant = 250;
    plan.habits.repeats = 100;
    plan.node_lives_ms = Some((500, 5000));
    plan.forced_ms = Some((200, 3000));
    plan.faults = bad_way(dice);
    plan
}
