//! Elections: priorities, successors that are named and may be gone, leaders that proclaim, die and sleep, on a bad way
//! to the store. What must hold is what holds for locks: one leader at a time, epochs that grow, turns that are kept.

use super::{Electing, Plan, bad_way, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.elections = Some(Electing { ranked: 600, names: 400, proclaims: 300 });
    plan.locks = dice.between((1, 2)) as usize;
    plan.clients = dice.between((4, 9)) as usize;
    plan.habits.waits = 800;
    plan.habits.hold_ms = (0, 300);
    plan.habits.breaks = 40;
    plan.habits.dies_holding = 10;
    plan.habits.sleeps = 30;
    plan.faults = bad_way(dice);
    plan
}

/// Candidates at several nodes, which come and go: a successor may wait at another one.
pub(super) fn with_nodes(dice: &mut Dice) -> Plan {
    let mut plan = plan(dice);
    plan.nodes = dice.between((2, 3)) as usize;
    if dice.chance(500) {
        plan.node_lives_ms = Some((800, 6000));
    }
    plan
}
