//! Leases end at the worst moment: short ones, holders that sleep, renewals and releases just in time.

use super::{Plan, bad_way, base};
use baton_testkit::Dice;

pub(super) fn plan(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = 1;
    plan.clients = dice.between((2, 6)) as usize;
    let ttl = dice.between((100, 300));
    plan.habits.ttl_ms = (ttl, ttl + 20);
    // Around the end of the lease, on either side of it.
    plan.habits.hold_ms = (ttl - 60, ttl + 20);
    plan.habits.renews = 300;
    plan.habits.sleeps = 200;
    plan.habits.dies_holding = 20;
    plan.habits.unheard = 50;
    plan.faults = bad_way(dice);
    if dice.chance(500) {
        plan.faults.slow = 0;
    }
    plan
}
