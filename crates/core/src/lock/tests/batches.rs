//! Several commands in one commit: each sees the ones before it, and no two grants share a token.

use super::world::*;
use crate::lock::{Command, Reply};
use crate::view::{Pause, View};
use alloc::vec;

#[test]
fn a_release_and_two_acquires_make_one_grant_in_one_commit() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let commands =
        [world.release(&alice, None), world.acquire(BOB, &terms(BOB)), world.acquire(CAROL, &terms(CAROL))];
    let before = world.store.revision;
    let answers = world.run_all(HERE, &commands);
    assert_eq!(world.store.revision, before + 1);
    assert_eq!(answers[0].reply, Reply::Released);
    assert_eq!(answers[1].granted().id, world.id(BOB));
    assert!(matches!(&answers[2].reply, Reply::Held(held) if held.owner.as_deref() == Some(BOB)));
}

#[test]
fn a_grant_made_and_ended_by_force_in_one_go_takes_two_commits() {
    let mut world = World::default();
    let commands = [world.acquire(ALICE, &terms(ALICE)), force(None), world.acquire(BOB, &terms(BOB))];
    let answers = world.run_all(HERE, &commands);
    let (alice, bob) = (answers[0].granted(), answers[2].granted());
    assert_eq!(
        answers[1].reply,
        Reply::Forced { id: alice.id, owner: ALICE.into(), fencing: alice.fencing, others: vec![] }
    );
    assert!(world.token(&alice).fencing < world.token(&bob).fencing);
}

#[test]
fn waiters_that_arrive_together_queue_in_one_commit() {
    let mut world = World::default();
    world.take(ALICE);
    let names = [BOB, CAROL, "dave"];
    let commands = names.map(|name| world.acquire_waiting(HERE, name, &terms(name)).0);
    let before = world.store.revision;
    let answers = world.run_all(HERE, &commands);
    assert!(answers.iter().all(|answer| answer.reply == Reply::Parked));
    assert_eq!(world.store.revision, before + 1);
    assert_eq!(world.queue(), names.map(|name| world.id(name)));
}

#[test]
fn someone_who_queues_and_leaves_at_once_leaves_nothing() {
    let mut world = World::default();
    world.take(ALICE);
    let (bob, attachment) = world.acquire_waiting(HERE, BOB, &terms(BOB));
    world.run_all(HERE, &[bob, Command::Leave(attachment)]);
    assert_eq!(world.queue(), vec![]);
    assert_eq!(world.roster().unwrap().waiting, 0);
}

#[test]
fn an_acquire_and_its_repetition_in_one_commit_are_one_grant() {
    let mut world = World::default();
    let command = world.acquire(ALICE, &terms(ALICE));
    let answers = world.run_all(HERE, &[command.clone(), command]);
    assert_eq!(world.store.revision, 1);
    assert_eq!(answers[0].granted().fencing, answers[1].granted().fencing);
    assert!(answers[0].granted().is_new && !answers[1].granted().is_new);
    assert!(world.only_holder().replayed);
}

#[test]
fn a_command_that_pauses_keeps_the_checks_of_the_ones_before_it() {
    let mut world = World::default();
    world.take(ALICE);
    let (bob, _) = world.acquire_waiting(HERE, BOB, &terms(BOB));
    let mut view = View::new(world.lock.group());
    view.learn(&world.lock.roster(), world.roster_record());
    world.draft(HERE, &mut view, &[bob]);
    let before = view.commit();
    view.save();
    // Guesses the same lease, then needs to read it.
    assert!(view.holds(&world.lock.grant(world.id(ALICE)), crate::Stamp::At(crate::Revision(1))));
    assert!(matches!(view.peek(&world.lock.grant(world.id(ALICE))), Err(Pause::Read(_))));
    view.roll_back();
    assert_eq!(view.commit(), before);
}

#[test]
fn a_holder_that_repeats_its_acquire_isnt_evicted_by_the_next_command() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    // The waiter makes the roster known, but not the grant: that is taken to be there, and touched.
    let (carol, _) = world.acquire_waiting(HERE, CAROL, &terms(CAROL));
    let commands = [carol, world.acquire(ALICE, &terms(ALICE)), world.acquire(BOB, &terms(BOB))];
    let answers = world.run_all(HERE, &commands);
    assert_eq!(answers[1].granted().fencing, alice.fencing);
    assert!(matches!(answers[2].reply, Reply::Held(_)));
    assert_eq!(world.holder(), Some(alice.id));
}
