//! What elections add: priorities, a value that the leader changes, a successor that it names (E1, E2, E5, E7, E8).

use super::world::*;
use crate::lock::command::Acquire;
use crate::lock::election::rank;
use crate::lock::{Command, Granted, LockName, NodeId, Reply};
use alloc::vec;
use alloc::vec::Vec;

fn election() -> World {
    World { lock: LockName::election("n", "k"), ..World::default() }
}

fn campaign(world: &mut World, node: NodeId, candidate: &str, priority: i16) -> Reply {
    let (command, _) = world.acquire_waiting(node, candidate, &terms(candidate));
    let Command::Acquire(acquire) = command else { unreachable!("an acquire") };
    world.run(node, Command::Acquire(Acquire { rank: rank(priority), ..acquire })).reply
}

fn leader(world: &mut World, candidate: &str) -> Granted {
    let (command, _) = world.acquire_waiting(HERE, candidate, &terms(candidate));
    world.run(HERE, command).granted()
}

fn value(world: &World) -> Option<Vec<u8>> {
    world.roster().and_then(|roster| roster.metadata).map(|value| value.to_vec())
}

#[test]
fn ranks_are_in_the_order_of_priorities_and_never_the_favoured_one() {
    assert!(rank(1000) < rank(1) && rank(1) < rank(0) && rank(0) < rank(-1) && rank(-1) < rank(-1000));
    assert!(rank(i16::MAX) > 0 && rank(i16::MIN) == u16::MAX);
}

#[test]
fn higher_priorities_lead_first_and_equal_ones_in_the_order_they_came() {
    let mut world = election();
    let mut leads = leader(&mut world, ALICE);
    for (candidate, priority) in [("low", -1), ("first", 0), ("second", 0), ("high", 5), ("higher", 1000)] {
        assert_eq!(campaign(&mut world, HERE, candidate, priority), Reply::Parked);
    }
    for candidate in ["higher", "high", "first", "second", "low"] {
        let epoch = leads.fencing;
        assert_eq!(world.give_back(&leads), Reply::Released);
        leads = world.handed_over();
        assert_eq!(leads.id, world.id(candidate));
        assert!(leads.fencing.resolve(crate::Revision(0)) > epoch.resolve(crate::Revision(0)), "epochs grow");
    }
}

#[test]
fn a_priority_deposes_nobody() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    campaign(&mut world, HERE, BOB, 1000);
    world.settle(HERE);
    assert_eq!(world.holder(), Some(alice.id));
}

#[test]
fn a_newcomer_of_higher_priority_goes_before_one_whose_node_has_not_taken_its_turn_yet() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    campaign(&mut world, THERE, BOB, 0);
    world.give_back(&alice);
    assert_eq!(world.holder(), None, "its own node takes it");
    assert_eq!(campaign(&mut world, HERE, CAROL, 1), Reply::Parked);
    assert_eq!(world.holder(), Some(world.id(CAROL)), "in the commit that queued it");
}

#[test]
fn a_rejoining_candidate_keeps_its_place_whatever_priority_it_says_now() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    campaign(&mut world, HERE, BOB, 0);
    campaign(&mut world, HERE, CAROL, 0);
    campaign(&mut world, HERE, CAROL, 1000);
    world.give_back(&alice);
    assert_eq!(world.holder(), Some(world.id(BOB)));
}

#[test]
fn a_named_successor_leads_in_the_commit_of_the_resignation() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    for (candidate, priority) in [(BOB, 1000), (CAROL, 0), ("dave", -1000)] {
        campaign(&mut world, HERE, candidate, priority);
    }
    let (resign, commits) = (world.release_to(&alice, "dave"), world.made.len());
    assert_eq!(world.run(HERE, resign.clone()).reply, Reply::Released);
    assert_eq!((world.holder(), world.made.len() - commits), (Some(world.id("dave")), 1));
    assert_eq!(world.queue(), vec![world.id(BOB), world.id(CAROL)], "the others keep their order");
    assert_eq!(world.run(HERE, resign).reply, Reply::Released, "once more, the same answer");
    assert_eq!(world.holder(), Some(world.id("dave")));
}

#[test]
fn a_named_successor_is_first_also_when_it_is_parked_at_another_node() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    campaign(&mut world, HERE, BOB, 1000);
    campaign(&mut world, THERE, CAROL, 0);
    let resign = world.release_to(&alice, CAROL);
    assert_eq!(world.run(HERE, resign).reply, Reply::Released);
    assert_eq!((world.holder(), world.queue()), (None, vec![world.id(CAROL), world.id(BOB)]));
    world.settle(THERE);
    assert_eq!(world.holder(), Some(world.id(CAROL)));
}

#[test]
fn a_refused_successor_leaves_the_leader_s_value_to_whoever_comes_in_the_same_commit() {
    let mut world = election();
    let with_value = crate::lock::grant::Terms { metadata: Some(b"{}"[..].into()), ..terms(ALICE) };
    let (command, _) = world.acquire_waiting(HERE, ALICE, &with_value);
    let alice = world.run(HERE, command).granted();
    let commands = [world.release_to(&alice, BOB), world.acquire_waiting(HERE, BOB, &terms(BOB)).0];
    let answers = world.run_all(HERE, &commands);
    assert_eq!((&answers[0].reply, &answers[1].reply), (&Reply::NoSuchSuccessor, &Reply::Parked));
    assert_eq!(value(&world), Some(b"{}".to_vec()));
}

#[test]
fn a_successor_that_does_not_wait_is_refused_and_nothing_changes() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    let resign = world.release_to(&alice, BOB);
    assert_eq!(world.run(HERE, resign.clone()).reply, Reply::NoSuchSuccessor, "nobody waits at all");
    campaign(&mut world, HERE, CAROL, 0);
    let gone = world.park(HERE, BOB);
    world.lose_call(HERE, gone);
    let (roster, commits) = (world.roster_record(), world.made.len());
    assert_eq!(world.run(HERE, resign).reply, Reply::NoSuchSuccessor, "its call is gone");
    assert_eq!((world.roster_record(), world.made.len()), (roster, commits));
    assert_eq!(world.holder(), Some(alice.id), "who still leads");
}

#[test]
fn a_proclaimed_value_is_the_leaders_until_it_resigns() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    campaign(&mut world, HERE, BOB, 0);
    let proclaim = world.proclaim(&alice, b"{\"v\":1}");
    assert_eq!(world.run(HERE, proclaim.clone()).reply, Reply::Proclaimed);
    let commits = world.made.len();
    assert_eq!(world.run(HERE, proclaim.clone()).reply, Reply::Proclaimed);
    assert_eq!(world.made.len(), commits, "saying it twice is saying it once");
    assert_eq!(value(&world).as_deref(), Some(&b"{\"v\":1}"[..]));
    world.give_back(&alice);
    assert_eq!(value(&world), None, "the next leader has its own");
    assert_eq!(world.run(HERE, proclaim).reply, Reply::Expired);
    assert_eq!(value(&world), None);
}

#[test]
fn a_leader_whose_lease_ran_out_proclaims_nothing_and_the_next_one_leads() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    campaign(&mut world, HERE, BOB, 0);
    world.advance(TTL);
    let proclaim = world.proclaim(&alice, b"{}");
    assert_eq!(world.run(HERE, proclaim).reply, Reply::Expired);
    assert_eq!((world.holder(), value(&world)), (Some(world.id(BOB)), None));
}

#[test]
fn a_resignation_that_guesses_the_roster_sees_what_was_proclaimed_since() {
    let mut world = election();
    let alice = leader(&mut world, ALICE);
    assert!(alice.flags.alone, "so that its release guesses");
    let (proclaim, resign) = (world.proclaim(&alice, b"{}"), world.release(&alice, None));
    let answers = world.run_racing(HERE, &[resign], |world| {
        world.run(HERE, proclaim);
    });
    assert_eq!((&answers[0].reply, world.roster_record()), (&Reply::Released, None));
}
