//! The queue: in order, without barging, and without those who left (L2, L3, L4).

use super::world::*;
use crate::commit::Outcome;
use crate::lock::command::Attachment;
use crate::lock::{Command, NodeId, Reply};
use crate::view::View;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

#[test]
fn waiters_get_the_lock_in_the_order_they_came() {
    let mut world = World::default();
    let mut holder = world.take(ALICE);
    let names = [BOB, CAROL, "dave", "eve"];
    world.park_all(&names);
    for name in names {
        assert_eq!(world.give_back(&holder), Reply::Released);
        holder = world.handed_over();
        assert_eq!(holder.id, world.id(name));
        assert_eq!(world.holder(), Some(holder.id), "in the release's own commit");
    }
    world.give_back(&holder);
    assert_eq!(world.roster_record(), None);
}

#[test]
fn a_newcomer_doesnt_overtake_a_waiter_that_is_parked_on_another_node() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.park(THERE, BOB);
    world.give_back(&alice);
    assert_eq!(world.holder(), None, "its own node takes it");
    assert!(matches!(world.try_take(CAROL), Reply::Held(held) if held.owner.is_none() && held.waiting == 1));
    world.park(HERE, CAROL);
    assert_eq!(world.queue(), vec![world.id(BOB), world.id(CAROL)]);
    world.settle(HERE);
    assert_eq!(world.holder(), None);
    world.settle(THERE);
    assert_eq!(world.holder(), Some(world.id(BOB)));
}

#[test]
fn a_newcomer_lets_a_parked_waiter_go_first_when_the_lease_has_run_out() {
    let mut world = World::default();
    world.take(ALICE);
    world.park(HERE, BOB);
    world.advance(TTL);
    assert!(matches!(world.try_take(CAROL), Reply::Held(held) if held.owner.as_deref() == Some(BOB)));
    assert_eq!(world.holder(), Some(world.id(BOB)));
}

#[test]
fn a_newcomer_that_waits_queues_in_the_commit_that_hands_over() {
    let mut world = World::default();
    world.take(ALICE);
    world.park(HERE, BOB);
    world.advance(TTL);
    world.park(HERE, CAROL);
    assert_eq!((world.holder(), world.queue()), (Some(world.id(BOB)), vec![world.id(CAROL)]));
    world.give_back(&world.handed_over());
    assert_eq!(world.holder(), Some(world.id(CAROL)));
}

#[test]
fn a_full_queue_refuses_newcomers_but_not_those_in_it() {
    let mut world = World { queue_max: 2, ..World::default() };
    world.take(ALICE);
    world.park(HERE, BOB);
    world.park(HERE, CAROL);
    let (dave, _) = world.acquire_waiting(HERE, "dave", &terms("dave"));
    assert!(matches!(world.run(HERE, dave).reply, Reply::QueueFull(held) if held.waiting == 2));
    world.park(HERE, BOB);
    assert_eq!(world.queue(), vec![world.id(BOB), world.id(CAROL)]);
}

#[test]
fn a_waiter_that_comes_back_keeps_its_place_and_its_new_call_is_the_parked_one() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let old = world.park(THERE, BOB);
    world.park(HERE, CAROL);
    world.lose_call(THERE, old);
    let new = world.park(HERE, BOB);
    assert_eq!(world.queue(), vec![world.id(BOB), world.id(CAROL)]);
    world.run(THERE, Command::Leave(old));
    world.run(HERE, Command::Leave(Attachment { number: new.number + 1, ..new }));
    world.run(THERE, Command::Leave(new));
    assert_eq!(world.queue().len(), 2, "only the parked call may leave");
    world.give_back(&alice);
    assert_eq!(world.holder(), Some(world.id(BOB)));
}

#[test]
fn a_waiter_that_comes_back_to_a_free_lock_gets_it_through_its_parked_call() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let old = world.park(THERE, BOB);
    world.lose_call(THERE, old);
    world.give_back(&alice);
    assert_eq!(world.holder(), None);
    world.park(HERE, BOB);
    assert_eq!(world.handed_over().id, world.id(BOB));
}

#[test]
fn a_call_that_ended_leaves_the_queue_or_keeps_its_place_as_it_says() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let bob = world.park(HERE, BOB);
    let carol = world.park(HERE, CAROL);
    world.run(HERE, Command::Leave(bob));
    assert_eq!(world.queue(), vec![world.id(CAROL)]);
    world.park(HERE, BOB);
    world.run(HERE, Command::Detach(carol));
    assert_eq!(world.queue(), vec![world.id(CAROL), world.id(BOB)], "bob is at the tail");
    world.run(HERE, Command::Leave(carol));
    assert_eq!(world.queue().len(), 2, "a detached call has nothing to say any more");
    world.give_back(&alice);
    assert_eq!(world.handed_over().id, world.id(BOB), "carol is without a call");
    assert_eq!(world.queue(), vec![world.id(CAROL)], "but has her place");
}

#[test]
fn orphans_block_nobody_and_are_dropped_once_forgotten() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    for (node, name) in [(THERE, "o1"), (HERE, "o2")] {
        let orphan = world.park(node, name);
        world.lose_call(node, orphan);
    }
    world.give_back(&alice);
    let bob = world.take(BOB);
    assert!(!bob.flags.alone);
    assert_eq!(world.queue(), vec![world.id("o1"), world.id("o2")]);
    world.forgotten = vec![world.id("o1"), world.id("never there")];
    world.park(HERE, CAROL);
    assert_eq!(world.queue(), vec![world.id("o2"), world.id(CAROL)]);
    world.forgotten = vec![world.id("o2"), world.id(CAROL)];
    world.settle(HERE);
    assert_eq!(world.queue(), vec![world.id(CAROL)], "whoever is parked isn't forgotten");
    world.give_back(&bob);
    assert_eq!(world.holder(), Some(world.id(CAROL)));
}

#[test]
fn as_many_forgotten_are_dropped_at_once_as_fit_in_a_commit() {
    let mut world = World { queue_max: 100, ..World::default() };
    let alice = world.take(ALICE);
    for number in 0..40 {
        let orphan = world.park(THERE, &alloc::format!("o{number}"));
        world.lose_call(THERE, orphan);
    }
    world.forgotten = world.queue();
    world.give_back(&alice);
    assert_eq!(world.queue().len(), 40 - 12);
    world.forgotten = world.queue();
    let before = world.store.revision;
    assert_eq!(world.run(HERE, Command::Prune).reply, Reply::Pruned);
    assert_eq!((world.queue().len(), world.store.revision), (0, before + 1), "alone there is room for more");
    assert_eq!(world.roster_record(), None);
}

#[test]
fn who_stands_behind_more_orphans_than_are_looked_at_waits_until_some_are_dropped() {
    let mut world = World { queue_max: 100, ..World::default() };
    let alice = world.take(ALICE);
    for number in 0..32 {
        let orphan = world.park(THERE, &alloc::format!("o{number}"));
        world.lose_call(THERE, orphan);
    }
    world.park(HERE, BOB);
    world.give_back(&alice);
    assert_eq!(world.settle(HERE), Reply::Settled { look_in: None, is_free: true });
    assert_eq!(world.holder(), None, "one too many before him");
    let refused = world.try_take(CAROL);
    assert!(matches!(&refused, Reply::Held(held) if held.owner.is_none()), "nobody barges in: {refused:?}");
    world.forgotten = world.queue()[..1].to_vec();
    world.settle(HERE);
    assert_eq!((world.holder(), world.queue().len()), (Some(world.id(BOB)), 31));
}

#[test]
fn when_the_one_whose_turn_it_was_leaves_the_next_one_gets_the_lock() {
    for ends in [Command::Leave, Command::Detach] {
        let mut world = World::default();
        let alice = world.take(ALICE);
        let bob = world.park(HERE, BOB);
        world.park(HERE, CAROL);
        let release = world.release(&alice, None);
        world.run(NodeId(3), release);
        assert_eq!(world.holder(), None, "nobody is parked where the release was");
        world.run(HERE, ends(bob));
        assert_eq!(world.holder(), Some(world.id(CAROL)));
    }
}

#[test]
fn a_waiter_that_asks_again_without_waiting_has_one_place_and_never_two() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let bob = world.park(HERE, BOB);
    assert!(matches!(world.try_take(BOB), Reply::Held(held) if held.waiting == 1));
    assert_eq!(world.queue(), vec![world.id(BOB)], "the parked call still waits");
    world.lose_call(HERE, bob);
    world.give_back(&alice);
    let forgotten = World { forgotten: vec![world.id(BOB)], ..world.clone() };
    for mut world in [world, forgotten] {
        let granted = world.take(BOB);
        assert!(granted.is_new);
        assert_eq!(world.queue(), vec![]);
    }
}

#[test]
fn a_waiter_that_asks_again_without_waiting_hears_what_its_parked_call_hears() {
    let mut world = World::default();
    world.take(ALICE);
    world.park(HERE, BOB);
    world.advance(TTL);
    let bob = world.take(BOB);
    assert_eq!(world.handed_over().fencing, bob.fencing);
    assert!(world.only_holder().replayed, "two calls were told");
}

#[test]
fn places_go_on_while_anybody_waits_and_waiting_is_shown_since_when() {
    let mut world = World::default();
    world.take(ALICE);
    world.advance(Duration::from_secs(1));
    let bob = world.park(HERE, BOB);
    world.park(HERE, CAROL);
    world.run(HERE, Command::Leave(bob));
    world.park(HERE, BOB);
    assert_eq!(world.queue(), vec![world.id(CAROL), world.id(BOB)]);
    assert_eq!(world.roster().unwrap().next_place, 3);
}

/// Found by chance: the newcomer's guess that there is no roster came true again after the waiter's record had been read.
#[test]
fn a_waiter_that_leaves_while_a_newcomer_takes_there_to_be_nobody_leaves_nothing_behind() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let bob = world.park(THERE, BOB);
    world.give_back(&alice);
    world.lose_call(THERE, bob);
    let newcomer = world.acquire(CAROL, &terms(CAROL));
    world.run_racing(THERE, &[newcomer, Command::Detach(bob)], |world| {
        world.run(THERE, Command::Leave(bob));
    });
    assert_eq!((world.holder(), world.queue()), (Some(world.id(CAROL)), vec![]));
}

#[test]
fn between_nodes_the_roster_says_all_that_a_hand_over_needs() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.park(THERE, BOB);
    let guess = |world: &World, view: &mut View| view.learn(&world.lock.roster(), world.roster_record());

    let mut view = View::new(world.lock.group());
    guess(&world, &mut view);
    let release = world.release(&alice, None);
    world.decide_without_reading(HERE, &mut view, &release);
    assert!(matches!(world.store.commit(&view.commit()), Outcome::Committed { .. }));
    assert_eq!((world.holder(), world.queue()), (None, vec![world.id(BOB)]), "its own node takes it");

    let mut view = View::new(world.lock.group());
    guess(&world, &mut view);
    // What the node put there itself, and what the roster shows to be the same still.
    let waiting = world.lock.waiting(world.id(BOB));
    view.learn(&waiting, world.store.read(&waiting));
    world.decide_without_reading(THERE, &mut view, &Command::Settle);
    assert!(matches!(world.store.commit(&view.commit()), Outcome::Committed { .. }));
    assert_eq!((world.holder(), world.queue()), (Some(world.id(BOB)), vec![]));
}

#[test]
fn a_queue_longer_than_the_roster_shows_is_read_and_then_shown_again() {
    let mut world = World::default();
    let mut holder = world.take(ALICE);
    let names = [BOB, CAROL, "dave", "eve", "frank"];
    for name in names {
        world.park(THERE, name);
    }
    let mut shown = Vec::new();
    for name in names {
        world.give_back(&holder);
        shown.push(world.roster().unwrap().front.shown().len());
        world.settle(THERE);
        holder = world.handed_over();
        assert_eq!(holder.id, world.id(name));
    }
    assert_eq!(shown, [2, 1, 2, 1, 1], "in tests it shows two");
}
