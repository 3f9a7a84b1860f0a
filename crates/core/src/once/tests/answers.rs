//! Every answer, and what it costs.

use super::world::{KEPT, World, bytes, millis};
use crate::commit::Outcome;
use crate::lock::tests::store::Asked;
use crate::once::claim::Claimed;
use crate::once::holder::Ended;
use alloc::vec::Vec;
use core::time::Duration;

fn result_of(claimed: &Claimed) -> Option<&[u8]> {
    match claimed {
        Claimed::Done { done, .. } => Some(&done.result),
        _ => None,
    }
}

#[test]
fn the_first_caller_has_it_to_do_and_others_hear_who_is_at_it() {
    let mut world = World::new();
    let token = world.first("a");
    world.store.now = 300;
    match world.claim("b") {
        Claimed::Running { running, fencing, expires_in } => {
            assert_eq!((&*running.owner, expires_in), ("of a", millis(700)));
            assert_eq!(fencing.resolve(Default::default()).0, token.fencing.0);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_known_state_answers_is_not_held_up_by_what_is_not_looked_at() {
    let mut world = World::new();
    world.first("a");
    let key = crate::once::state_key(&world.name);
    let mut view = crate::view::View::new(world.name.group());
    // As after a conflict that showed the state alone.
    view.learn(&key, world.store.look(&key));
    let claimed = crate::once::claim::claim(&world.name, &world.request("b"), &mut view, crate::WallTime(0));
    assert!(matches!(claimed, Ok(Claimed::Running { .. })), "{claimed:?}");
    assert!(!view.is_assuming(), "and nothing is left to be found out");
}

#[test]
fn the_result_comes_back_to_everyone_also_to_the_first() {
    let mut world = World::new();
    let token = world.first("a");
    assert_eq!(world.complete(&token, "42"), Ended::Yes);
    for request in ["b", "c", "a"] {
        let claimed = world.claim(request);
        assert_eq!(result_of(&claimed), Some(&b"42"[..]), "{request}: {claimed:?}");
    }
    world.store.now = KEPT.as_millis() as u64 - 1;
    assert!(result_of(&world.claim("b")).is_some());
    world.store.now += 1;
    assert!(world.first("b").fencing > token.fencing, "what is forgotten is done again, with a higher token");
}

#[test]
fn a_crashed_caller_s_claim_passes_on_with_a_higher_token_and_the_crashed_one_changes_nothing_any_more() {
    let mut world = World::new();
    let crashed = world.first("a");
    world.store.now = 1000;
    let next = world.first("b");
    assert!(next.fencing > crashed.fencing);
    assert_eq!(world.complete(&crashed, "late"), Ended::Lost);
    assert_eq!(world.renew(&crashed, millis(1000)), Ended::Lost);
    assert_eq!(world.fail(&crashed), Ended::Lost);
    assert!(matches!(world.claim("c"), Claimed::Running { running, .. } if &*running.owner == "of b"));
    assert_eq!(world.complete(&next, "mine"), Ended::Yes);
    assert_eq!(world.complete(&crashed, "late"), Ended::Lost);
    assert_eq!(result_of(&world.claim("c")), Some(&b"mine"[..]));
}

#[test]
fn a_claim_that_ran_out_is_lost_also_if_nobody_took_it() {
    let mut world = World::new();
    let token = world.first("a");
    world.store.now = 1000;
    assert_eq!(world.complete(&token, "late"), Ended::Lost);
    assert_eq!(world.renew(&token, millis(1000)), Ended::Lost);
    assert!(matches!(world.claim("b"), Claimed::First { .. }));
}

#[test]
fn the_first_caller_s_retry_gets_the_same_claim_renewed() {
    let mut world = World::new();
    let token = world.first("a");
    world.store.now = 900;
    assert_eq!(world.first("a"), token);
    world.store.now = 1899;
    assert!(matches!(world.claim("b"), Claimed::Running { .. }));
    let mut other = world.request("a");
    other.ttl = millis(2000);
    assert_eq!(world.claim_as(&other), Claimed::RequestIdReused);
    let mut other = world.request("a");
    other.owner = "another".into();
    assert_eq!(world.claim_as(&other), Claimed::RequestIdReused);
    world.store.now = 1900;
    assert!(world.first("b").fencing > token.fencing);
}

#[test]
fn renewing_never_shortens() {
    let mut world = World::new();
    let token = world.first("a");
    for (ttl, ends) in [(5000, 5000), (100, 5000)] {
        assert_eq!(world.renew(&token, millis(ttl)), Ended::Yes);
        world.store.now = ends - 1;
        assert!(matches!(world.claim("b"), Claimed::Running { .. }));
        world.store.now = 0;
    }
    world.store.now = 5000;
    assert_eq!(world.renew(&token, millis(100)), Ended::Lost);
}

#[test]
fn what_is_done_stays_as_it_is() {
    let mut world = World::new();
    let token = world.first("a");
    assert_eq!(world.complete(&token, "one"), Ended::Yes);
    world.store.now = 100;
    for (result, ended) in [("one", Ended::Yes), ("two", Ended::AlreadyCompleted)] {
        assert_eq!(world.complete(&token, result), ended, "{result}");
    }
    assert_eq!(world.renew(&token, Duration::from_secs(99_999)), Ended::AlreadyCompleted);
    assert_eq!(world.fail(&token), Ended::AlreadyCompleted);
    match world.claim("b") {
        Claimed::Done { done, expires_in, .. } => {
            assert_eq!((done.result, done.completed_at.0), (bytes("one"), 0));
            assert_eq!(expires_in, KEPT - millis(100), "nor is it kept for longer");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_gives_up_lets_the_next_one_try_at_once_and_isn_t_given_it_again_by_a_late_copy() {
    let mut world = World::new();
    let token = world.first("a");
    assert_eq!(world.fail(&token), Ended::Yes);
    assert_eq!(world.fail(&token), Ended::Yes, "the same again");
    assert_eq!(world.claim("a"), Claimed::Lost);
    assert_eq!(world.complete(&token, "late"), Ended::Lost);
    let next = world.first("b");
    assert!(next.fencing > token.fencing);
    assert_eq!(world.fail(&token), Ended::Yes, "also when somebody else has it");
    assert_eq!(world.complete(&next, "done"), Ended::Yes);
    assert_eq!(result_of(&world.claim("a")), Some(&b"done"[..]), "a result is for everyone");
}

#[test]
fn a_late_copy_of_a_commit_stays_out_whatever_it_was_decided_on() {
    let mut world = World::new();
    // The first was decided on no memo, the second on a void one.
    for next in ["b", "c"] {
        let late = world.unsent("a");
        world.void("a");
        assert!(matches!(world.store.commit(&late), Outcome::Conflict { .. }), "at once");
        let token = world.first(next);
        assert_eq!(world.fail(&token), Ended::Yes);
        assert!(matches!(world.store.commit(&late), Outcome::Conflict { .. }), "after {next}");
    }
    world.first("a");
}

#[test]
fn each_call_asks_the_store_once_unless_something_is_in_its_way() {
    let mut world = World::new();
    let mut costs = Vec::new();
    let mut cost = |world: &mut World, call: &mut dyn FnMut(&mut World)| {
        let before = world.store.asked;
        call(world);
        let (commits, reads) =
            (world.store.asked.commits - before.commits, world.store.asked.reads - before.reads);
        costs.push(Asked { commits, reads });
    };
    let mut token = None;
    cost(&mut world, &mut |world| token = Some(world.first("a")));
    let token = token.unwrap();
    cost(&mut world, &mut |world| drop(world.claim("b")));
    cost(&mut world, &mut |world| assert_eq!(world.renew(&token, millis(1000)), Ended::Yes));
    cost(&mut world, &mut |world| assert_eq!(world.fail(&token), Ended::Yes));
    let token = world.first("b");
    cost(&mut world, &mut |world| assert_eq!(world.complete(&token, "x"), Ended::Yes));
    cost(&mut world, &mut |world| drop(world.claim("c")));
    assert!(costs.iter().all(|cost| *cost == Asked { commits: 1, reads: 0 }), "{costs:?}");
}
