//! Semaphores and read/write locks (L17): never more than may, in turn, and nobody is starved.

use super::world::*;
use crate::lock::grant::{Grant, Terms};
use crate::lock::memo::Fate;
use crate::lock::{Command, Granted, Hold, Mode, Reply};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

fn permit(owner: &str, permits: u16) -> Terms {
    Terms { mode: Mode::Semaphore { permits }, ..terms(owner) }
}

fn reader(owner: &str) -> Terms {
    Terms { mode: Mode::Shared, ..terms(owner) }
}

/// Queues, if it has to.
fn ask(world: &mut World, terms: &Terms) -> Reply {
    let owner = terms.owner.clone();
    let (command, _) = world.acquire_waiting(HERE, &owner, terms);
    world.run(HERE, command).reply
}

fn ids(world: &World, names: &[&str]) -> Vec<crate::lock::GrantId> {
    names.iter().map(|name| world.id(name)).collect()
}

#[test]
fn as_many_hold_a_semaphore_as_it_has_permits_each_with_its_own_slot_and_token() {
    let mut world = World::default();
    let granted: Vec<_> = [ALICE, BOB, CAROL].map(|name| world.take_as(name, &permit(name, 3))).into();
    let holds: Vec<_> = granted.iter().map(|granted| granted.hold).collect();
    assert_eq!(holds, [0, 1, 2].map(|slot| Hold::Permit { slot }));
    assert!(granted.windows(2).all(|pair| world.token(&pair[0]).fencing < world.token(&pair[1]).fencing));
    let dave = world.acquire("dave", &permit("dave", 3));
    let Reply::Held(held) = world.run(HERE, dave).reply else { panic!("four of three") };
    assert_eq!((held.owner.as_deref(), held.retry_after), (Some(ALICE), Some(TTL)));
    assert_eq!(world.give_back(&granted[1]), Reply::Released);
    assert_eq!(
        world.take_as("dave", &permit("dave", 3)).hold,
        Hold::Permit { slot: 1 },
        "the lowest that is free"
    );
}

#[test]
fn a_first_permit_is_one_commit_without_a_read() {
    for terms in [permit(ALICE, 3), reader(ALICE)] {
        let mut world = World::default();
        world.take_as(ALICE, &terms);
        assert_eq!((world.store.asked.commits, world.store.asked.reads), (1, 0));
    }
}

#[test]
fn a_released_permit_goes_to_the_first_in_the_queue_in_the_same_commit() {
    let mut world = World::default();
    let alice = world.take_as(ALICE, &permit(ALICE, 2));
    world.take_as(BOB, &permit(BOB, 2));
    for name in ["c", "d"] {
        assert_eq!(ask(&mut world, &permit(name, 2)), Reply::Parked);
    }
    let before = world.store.revision;
    world.give_back(&alice);
    assert_eq!(world.store.revision, before + 1);
    assert_eq!(world.holders(), ids(&world, &[BOB, "c"]));
    assert_eq!(world.queue(), ids(&world, &["d"]));
}

#[test]
fn readers_share_and_a_writer_waits_for_all_of_them() {
    let mut world = World::default();
    let readers: Vec<_> = ["r1", "r2", "r3"].map(|name| world.take_as(name, &reader(name))).into();
    assert!(readers.iter().all(|granted| granted.hold == Hold::Shared));
    assert_eq!(ask(&mut world, &terms("w")), Reply::Parked);
    for reader in &readers[..2] {
        world.give_back(reader);
        assert_eq!(world.queue(), ids(&world, &["w"]));
    }
    world.give_back(&readers[2]);
    assert_eq!(world.holders(), ids(&world, &["w"]));
    assert!(matches!(world.try_take("x"), Reply::Held(_)));
    let another = world.acquire("r4", &reader("r4"));
    assert!(matches!(world.run(HERE, another).reply, Reply::Held(_)));
}

#[test]
fn a_reader_doesnt_overtake_a_writer_that_waits() {
    let mut world = World::default();
    let first = world.take_as("r1", &reader("r1"));
    assert_eq!(ask(&mut world, &terms("w")), Reply::Parked);
    let newcomer = world.acquire("r2", &reader("r2"));
    assert!(matches!(world.run(HERE, newcomer).reply, Reply::Held(held) if held.waiting == 1));
    assert_eq!(ask(&mut world, &reader("r3")), Reply::Parked);
    assert_eq!(world.holders(), ids(&world, &["r1"]), "also not when it waits itself");
    world.give_back(&first);
    assert_eq!((world.holders(), world.queue()), (ids(&world, &["w"]), ids(&world, &["r3"])));
}

#[test]
fn when_a_writer_that_waits_gives_up_the_readers_behind_it_go_on() {
    let mut world = World::default();
    world.take_as("r1", &reader("r1"));
    let (writer, attachment) = world.acquire_waiting(HERE, "w", &terms("w"));
    world.run(HERE, writer);
    for name in ["r2", "r3"] {
        assert_eq!(ask(&mut world, &reader(name)), Reply::Parked);
    }
    world.run(HERE, Command::Leave(attachment));
    assert_eq!(world.holders(), ids(&world, &["r1", "r2", "r3"]));
}

#[test]
fn all_readers_behind_a_writer_go_on_after_its_release_one_commit_each_and_the_next_writer_waits() {
    let mut world = World { queue_max: 20, ..World::default() };
    let writer = world.take("w1");
    let names: Vec<_> = (0..10).map(|number| format!("r{number}")).collect();
    for name in &names {
        assert_eq!(ask(&mut world, &reader(name)), Reply::Parked);
    }
    assert_eq!(ask(&mut world, &terms("w2")), Reply::Parked);
    assert_eq!(ask(&mut world, &reader("late")), Reply::Parked);
    let before = world.store.revision;
    world.give_back(&writer);
    assert_eq!(world.store.revision, before + 10, "nobody waited for a look");
    let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
    assert_eq!(world.holders(), ids(&world, &names));
    assert_eq!(world.queue(), ids(&world, &["w2", "late"]));
}

#[test]
fn a_newcomer_to_a_semaphore_with_room_lets_those_go_first_who_wait() {
    let mut world = World::default();
    world.take_as(ALICE, &permit(ALICE, 3));
    world.take_as(BOB, &permit(BOB, 3));
    world.take_as(CAROL, &permit(CAROL, 3));
    for name in ["d", "e"] {
        assert_eq!(ask(&mut world, &permit(name, 3)), Reply::Parked);
    }
    world.advance(TTL);
    let granted = world.take_as("f", &permit("f", 3));
    assert_eq!(
        world.holders(),
        ids(&world, &["d", "e", "f"]),
        "each in its turn, and there was room for all"
    );
    assert_eq!(granted.hold, Hold::Permit { slot: 2 });
}

#[test]
fn a_waiter_at_another_node_is_not_overtaken_and_its_node_is_told_that_it_may_go_on() {
    let mut world = World::default();
    let writer = world.take(ALICE);
    let (there, _) = world.acquire_waiting(THERE, BOB, &reader(BOB));
    world.run(THERE, there);
    assert_eq!(ask(&mut world, &reader(CAROL)), Reply::Parked);
    world.give_back(&writer);
    assert_eq!(world.holders(), vec![]);
    assert_eq!(world.settle(HERE), Reply::Settled { look_in: None, is_free: true });
    world.settle(THERE);
    assert_eq!(world.holders(), ids(&world, &[BOB]), "carol is parked at the other node");
    world.settle(HERE);
    assert_eq!(world.holders(), ids(&world, &[BOB, CAROL]));
}

#[test]
fn another_kind_or_number_of_permits_is_refused_while_the_lock_is_in_use() {
    let plain = terms("x");
    for (first, other, permits) in [
        (permit(ALICE, 2), plain.clone(), Some(2)),
        (permit(ALICE, 2), reader("x"), Some(2)),
        (permit(ALICE, 2), permit("x", 3), Some(2)),
        (plain.clone(), permit("x", 2), None),
        (reader(ALICE), permit("x", 2), None),
    ] {
        let mut world = World::default();
        let first = world.take_as(ALICE, &first);
        let mismatch = Reply::ModeMismatch { permits };
        let now = world.acquire("x", &other);
        assert_eq!(world.run(HERE, now).reply, mismatch);
        assert_eq!(ask(&mut world, &other), mismatch);
        world.give_back(&first);
        world.take_as("x", &other);
    }
}

#[test]
fn a_lock_of_dead_holders_may_be_used_as_another_kind() {
    let mut world = World::default();
    for number in 0..20 {
        let name = format!("r{number}");
        world.take_as(&name, &reader(&name));
    }
    world.advance(TTL);
    let granted = world.take_as("x", &permit("x", 2));
    assert_eq!(world.holders(), vec![granted.id]);
    assert_eq!(world.memo(world.id("r19")).unwrap().fate, Fate::Expired);
}

#[test]
fn many_dead_holders_are_ended_in_as_many_commits_as_it_takes() {
    let mut world = World::default();
    for number in 0..100 {
        let name = format!("r{number}");
        world.take_as(&name, &reader(&name));
    }
    assert_eq!(ask(&mut world, &terms("w")), Reply::Parked);
    world.advance(TTL);
    world.settle(HERE);
    assert_eq!(world.holders(), ids(&world, &["w"]));
}

#[test]
fn only_those_whose_lease_is_over_are_ended_and_the_next_look_is_at_the_first_end() {
    let mut world = World::default();
    world.take_as(ALICE, &permit(ALICE, 2));
    world.advance(TTL / 2);
    let bob = world.take_as(BOB, &permit(BOB, 2));
    assert_eq!(ask(&mut world, &permit(CAROL, 2)), Reply::Parked);
    assert_eq!(world.settle(HERE), Reply::Settled { look_in: Some(TTL / 2), is_free: false });
    world.advance(TTL / 2);
    world.settle(HERE);
    assert_eq!(world.holders(), vec![bob.id, world.id(CAROL)]);
}

#[test]
fn one_holder_of_several_is_forced_by_its_token() {
    let mut world = World::default();
    let alice = world.take_as(ALICE, &permit(ALICE, 3));
    let bob = world.take_as(BOB, &permit(BOB, 3));
    let Command::Force(mut force) = force(None) else { unreachable!() };
    force.fencing = Some(bob.fencing.resolve(crate::Revision(0)));
    let reply = world.run(HERE, Command::Force(force)).reply;
    assert!(matches!(reply, Reply::Forced { id, others, .. } if id == bob.id && others.is_empty()));
    assert_eq!(world.holders(), vec![alice.id]);
    let carol = world.take_as(CAROL, &permit(CAROL, 3));
    let carols = carol.fencing.resolve(crate::Revision(0));
    let reply = world.force(None);
    assert!(matches!(reply, Reply::Forced { id, others, .. } if id == alice.id && others == [carols]));
}

#[test]
fn who_else_holds_it_is_told_also_when_forcing_has_to_be_decided_again_or_was_done_unheard() {
    let mut world = World::default();
    let alice = world.take_as(ALICE, &permit(ALICE, 3));
    let bob = world.take_as(BOB, &permit(BOB, 3));
    let bobs = bob.fencing.resolve(crate::Revision(0));
    // A first draft has chosen alice, and its commit didn't hold.
    let reply = world.force(Some(alice.id));
    assert!(matches!(&reply, Reply::Forced { id, others, .. } if *id == alice.id && *others == [bobs]));
    // Or it did, and nobody heard of it; meanwhile somebody else has come.
    world.take_as(CAROL, &permit(CAROL, 3));
    assert_eq!(world.force(Some(alice.id)), reply);
    assert_eq!(world.holders(), vec![bob.id, world.id(CAROL)]);
}

#[test]
fn a_repeated_acquire_of_one_holder_among_several_is_the_same_grant() {
    let mut world = World::default();
    world.take_as(ALICE, &reader(ALICE));
    let bob = world.take_as(BOB, &reader(BOB));
    let again = world.take_as(BOB, &reader(BOB));
    assert_eq!((again.fencing, again.hold, again.is_new), (bob.fencing, Hold::Shared, false));
    assert_eq!(world.give_back(&bob), Reply::Released);
    let late = world.acquire(BOB, &reader(BOB));
    assert_eq!(world.run(HERE, late).reply, Reply::AlreadyReleased);
    let other = world.acquire(ALICE, &terms(ALICE));
    assert_eq!(world.run(HERE, other).reply, Reply::RequestIdReused, "another mode is another request");
}

#[test]
fn what_one_of_several_says_about_itself_is_in_its_own_grant() {
    let mut world = World::default();
    let about = |text: &[u8]| Some(text.into());
    world.take_as(ALICE, &Terms { metadata: about(b"{}"), ..reader(ALICE) });
    let bob = world.take_as(BOB, &Terms { metadata: about(b"[]"), ..reader(BOB) });
    let record = world.grant_record(bob.id).unwrap();
    assert_eq!(Grant::decode(&record.value).unwrap().metadata.as_deref(), Some(&b"[]"[..]));
    assert_eq!(world.roster().unwrap().metadata, None);
}

#[test]
fn acquires_and_releases_that_arrive_together_make_one_grant_a_commit() {
    let mut world = World::default();
    let commands = [ALICE, BOB, CAROL].map(|name| world.acquire(name, &permit(name, 2)));
    let answers = world.run_all(HERE, &commands);
    let granted: Vec<Granted> = answers[..2].iter().map(Answer::granted).collect();
    assert_ne!(granted[0].fencing, granted[1].fencing);
    assert!(matches!(answers[2].reply, Reply::Held(_)));
    for name in ["d", "e"] {
        assert_eq!(ask(&mut world, &permit(name, 2)), Reply::Parked);
    }
    let releases: Vec<_> = granted.iter().map(|granted| world.release(granted, None)).collect();
    world.run_all(HERE, &releases);
    assert_eq!(world.holders(), ids(&world, &["d", "e"]));
}

#[test]
fn a_permit_that_couldnt_be_delivered_is_taken_back_and_goes_on() {
    let mut world = World::default();
    world.take_as(ALICE, &permit(ALICE, 2));
    let bob = world.take_as(BOB, &permit(BOB, 2));
    assert_eq!(ask(&mut world, &permit(CAROL, 2)), Reply::Parked);
    let fencing = bob.fencing.resolve(crate::Revision(0));
    world.run(HERE, Command::Undo { id: bob.id, fencing });
    assert_eq!(world.holders(), ids(&world, &[ALICE, CAROL]));
    world.advance(Duration::from_millis(1));
    assert_eq!(world.give_back(&bob), Reply::Expired);
}
