//! Nothing goes wrong: every rule at its plainest, and fast enough to meet on one millisecond.

use super::{Plan, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = dice.between((1, 3)) as usize;
    plan.clients = dice.between((2, 8)) as usize;
    plan.habits.reentrant = 200;
    plan
}
