//! Several nodes on one store.

use super::{Plan, base, everything};
use baton_testkit::Dice;

/// They come and go while many wait, and the store is well.
pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.nodes = dice.between((2, 3)) as usize;
    plan.locks = dice.between((1, 2)) as usize;
    plan.clients = dice.between((4, 9)) as usize;
    plan.habits.waits = 800;
    plan.habits.breaks = 30;
    plan.habits.dies_holding = 10;
    plan.faults.hints_lost = *[0, 0, 100].get(dice.below(3) as usize).unwrap_or(&0);
    if dice.chance(600) {
        plan.node_lives_ms = Some((800, 6000));
    }
    plan
}

/// They come and go, and everything else goes wrong too.
pub(super) fn everything(dice: &mut Dice) -> Plan {
    let mut plan = everything::plan(dice);
    plan.nodes = dice.between((2, 3)) as usize;
    plan
}
