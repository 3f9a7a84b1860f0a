//! The most that one commit may have to hold: many leases over at once, many forgotten, and somebody who goes on.

use super::world::*;
use crate::commit::{COMMIT_OPERATIONS_MAX, Commit};
use crate::lock::grant::Terms;
use crate::lock::{Command, Mode, Reply};
use alloc::format;
use core::time::Duration;

fn permit(owner: &str, delay: Duration) -> Terms {
    Terms { mode: Mode::Semaphore { permits: 8 }, delay, ..terms(owner) }
}

/// Seven leases are over, and their lock-delays; another's isn't. Forty are forgotten, and behind them waits somebody whose id a
/// lost commit was kept out by.
fn worst() -> World {
    let mut world = World { queue_max: 100, ..World::default() };
    let delay = Duration::from_secs(1);
    for number in 0..7 {
        let name = format!("h{number}");
        world.take_as(&name, &permit(&name, delay));
    }
    world.take_as(ALICE, &Terms { ttl: TTL * 9, ..permit(ALICE, delay) });
    for number in 0..40 {
        let name = format!("o{number}");
        let (orphan, attachment) = world.acquire_waiting(THERE, &name, &permit(&name, Duration::ZERO));
        assert_eq!(world.run(THERE, orphan).reply, Reply::Parked);
        world.lose_call(THERE, attachment);
    }
    world.forgotten = world.queue();
    let (waiter, _) = world.acquire_waiting(HERE, BOB, &permit(BOB, delay));
    let forgotten = core::mem::take(&mut world.forgotten);
    assert_eq!(world.run(HERE, waiter).reply, Reply::Parked);
    world.forgotten = forgotten;
    world.poison(world.id(BOB));
    world.advance(TTL + delay);
    world
}

fn largest(world: &World) -> usize {
    world.made.iter().map(Commit::operations).max().unwrap()
}

#[test]
fn whatever_is_asked_when_much_is_over_at_once_fits_in_a_commit() {
    let (by, reason) = ("admin".into(), "stuck".into());
    let force = crate::lock::command::Force {
        target: None,
        fencing: None,
        delay: Duration::from_secs(5),
        by,
        reason,
    };
    let newcomer = |world: &mut World| world.acquire_waiting(HERE, CAROL, &permit(CAROL, TTL)).0;
    let asked: [fn(&mut World) -> Command; 3] =
        [|_| Command::Settle, |world| world.acquire(CAROL, &permit(CAROL, TTL)), |_| Command::Prune];
    let mut largest_of_all = 0;
    let mut ask = |command: &dyn Fn(&mut World) -> Command| {
        let mut world = worst();
        world.made.clear();
        let command = command(&mut world);
        world.run(HERE, command);
        largest_of_all = largest_of_all.max(largest(&world));
    };
    asked.iter().for_each(|command| ask(command));
    ask(&newcomer);
    ask(&|_| Command::Force(force.clone()));
    assert!(
        largest_of_all > COMMIT_OPERATIONS_MAX - 4,
        "no more than {largest_of_all}: that isn't the worst"
    );
}
