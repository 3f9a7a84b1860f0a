//! One lock that everybody waits for, on a bad way to the store: order, hand-over, waiters that leave.

use super::{Plan, bad_way, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = 1;
    plan.clients = dice.between((4, 9)) as usize;
    plan.habits.waits = 700;
    plan.habits.hold_ms = (0, 150);
    plan.habits.breaks = 60;
    plan.habits.dies_waiting = 10;
    plan.faults = bad_way(dice);
    plan
}
