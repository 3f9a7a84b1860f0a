//! Nodes die or are drained and start again; their waiters come back; what they had sent arrives late.

use super::{Plan, bad_way, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = dice.between((1, 2)) as usize;
    plan.clients = dice.between((3, 8)) as usize;
    plan.habits.waits = 700;
    plan.habits.unheard = 50;
    plan.node_lives_ms = Some((200, 4000));
    if dice.chance(600) {
        plan.faults = bad_way(dice);
    }
    plan
}
