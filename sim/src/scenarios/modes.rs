//! Locks that several hold, and locks that stay closed: readers and writers, permits, lock-delays; everything goes wrong.

use super::{LockKind, Plan, bad_way, base};
use baton_testkit::Dice;

/// Trouble of every kind, on one or several nodes.
fn troubled(dice: &mut Dice) -> Plan {
    let mut plan = base();
    plan.locks = 1;
    plan.clients = dice.between((4, 9)) as usize;
    plan.habits.ttl_ms = (100, 1500);
    plan.habits.hold_ms = (0, 500);
    plan.habits.waits = 700;
    plan.habits.mistakes = 20;
    if dice.chance(700) {
        plan.habits.breaks = 60;
        plan.habits.unheard = 60;
        plan.habits.doubled = 60;
        plan.habits.dies_waiting = 10;
        plan.habits.dies_holding = 20;
        plan.habits.sleeps = 60;
        plan.faults = bad_way(dice);
    }
    if dice.chance(300) {
        plan.node_lives_ms = Some((500, 5000));
    }
    if dice.chance(300) {
        plan.forced_ms = Some((300, 3000));
    }
    if dice.chance(300) {
        plan.nodes = dice.between((2, 3)) as usize;
    }
    plan
}

pub(super) fn read_and_write(dice: &mut Dice) -> Plan {
    let mut plan = troubled(dice);
    plan.kind = LockKind::ReadWrite;
    plan.habits.reads = dice.between((300, 900)) as u32;
    plan.habits.delayed = if dice.chance(300) { 200 } else { 0 };
    plan
}

pub(super) fn permits(dice: &mut Dice) -> Plan {
    let mut plan = troubled(dice);
    plan.kind = LockKind::Semaphore(dice.between((1, 4)) as u16);
    plan.habits.delayed = if dice.chance(300) { 200 } else { 0 };
    plan
}

pub(super) fn lock_delay(dice: &mut Dice) -> Plan {
    let mut plan = troubled(dice);
    plan.habits.delayed = 700;
    plan.habits.sleeps = 200;
    plan.habits.dies_holding = 40;
    plan.habits.reentrant = if dice.chance(300) { 300 } else { 0 };
    plan
}
