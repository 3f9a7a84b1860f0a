//! Every answer.

use super::world::{KEPT, Step, Way, World, call};
use crate::bundle::record::STALE_MAX;
use crate::bundle::{self, Begun, Nonce, Phase};
use crate::commit::Outcome;
use alloc::vec::Vec;

fn trying(nonce: Nonce, stale: &[Nonce], at: Option<u8>) -> Begun {
    Begun::Trying { nonce, stale: stale.to_vec(), at }
}

#[test]
fn a_first_call_begins_and_what_it_sealed_is_given_out_again() {
    for way in [Way::Answered, Way::Repeated] {
        let mut world = World::new();
        assert_eq!(world.begin(call(1), way), trying(call(1), &[], None));
        assert!(world.step(call(1), Step::Seal(call(1)), way));
        assert_eq!(world.begin(call(2), way), Begun::Held { nonce: call(1) });
        assert_eq!(world.begin_as(call(3), 9, way), Begun::RequestIdReused);
    }
}

#[test]
fn a_call_that_was_taken_over_can_do_nothing_any_more() {
    for step in [Step::Seal(call(1)), Step::Rest(1), Step::Renew(call(7)), Step::Close, Step::Forsake] {
        let mut world = World::new();
        world.begin(call(1), Way::Answered);
        let late = world.unsent(call(1), step);
        assert_eq!(world.begin(call(2), Way::Answered), trying(call(2), &[call(1)], None));
        let before = world.record();
        assert!(!world.step(call(1), step, Way::Answered) || step == Step::Close, "{step:?}");
        if let Some(late) = late {
            assert!(matches!(world.store.commit(&late), Outcome::Conflict { .. }), "{step:?} late");
        }
        assert_eq!(world.record(), before, "{step:?}");
    }
}

#[test]
fn who_takes_over_hears_of_everybody_before_it_who_may_have_left_something() {
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    world.begin(call(2), Way::Repeated);
    assert_eq!(world.begin(call(3), Way::Repeated), trying(call(3), &[call(1), call(2)], None));
    for number in 4..10 {
        let Begun::Trying { stale, .. } = world.begin(call(number), Way::Answered) else { panic!() };
        let newest: Vec<_> = (1..number).rev().take(STALE_MAX).map(call).collect();
        assert_eq!(stale.into_iter().rev().collect::<Vec<_>>(), newest);
    }
}

#[test]
fn a_call_that_rests_is_resumed_with_its_grants_ids_and_its_place() {
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    assert!(world.step(call(1), Step::Rest(3), Way::Repeated));
    assert_eq!(world.begin(call(2), Way::Answered), trying(call(1), &[], Some(3)));
    assert!(!world.step(call(1), Step::Seal(call(1)), Way::Answered), "the call that rested is over");
    assert_eq!(world.begin(call(3), Way::Answered), trying(call(3), &[call(1)], None));
}

#[test]
fn two_calls_that_resume_one_bundle_know_themselves_from_each_other() {
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    world.step(call(1), Step::Rest(0), Way::Answered);
    // Its commit was made, but it doesn't know; another one came in between.
    world.begin(call(2), Way::Answered);
    world.begin(call(3), Way::Answered);
    assert_eq!(world.begin(call(2), Way::Answered), trying(call(2), &[call(1), call(3)], None));
}

#[test]
fn a_fresh_nonce_takes_the_place_of_the_old_one() {
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    assert!(world.step(call(1), Step::Renew(call(8)), Way::Repeated));
    assert!(world.step(call(1), Step::Seal(call(8)), Way::Answered));
    assert_eq!(world.begin(call(2), Way::Answered), Begun::Held { nonce: call(8) });
    assert!(!world.step(call(2), Step::Renew(call(9)), Way::Answered), "what is held stays as it is");
}

#[test]
fn what_came_to_nothing_is_forgotten_and_what_is_held_is_not() {
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    world.step(call(1), Step::Close, Way::Repeated);
    assert_eq!(world.record(), None);
    assert_eq!(world.begin_as(call(2), 9, Way::Answered), trying(call(2), &[], None));
    world.step(call(2), Step::Seal(call(2)), Way::Answered);
    world.step(call(2), Step::Close, Way::Answered);
    assert_eq!(world.record().map(|bundle| bundle.phase), Some(Phase::Held));
}

#[test]
fn what_was_not_delivered_is_forsaken_unless_another_call_was_given_it() {
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    world.step(call(1), Step::Seal(call(1)), Way::Answered);
    let late = world.unsent(call(1), Step::Forsake).unwrap();
    world.begin(call(2), Way::Answered);
    assert!(!world.step(call(1), Step::Forsake, Way::Answered));
    assert!(matches!(world.store.commit(&late), Outcome::Conflict { .. }));
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    world.step(call(1), Step::Seal(call(1)), Way::Answered);
    assert!(world.step(call(1), Step::Forsake, Way::Repeated));
    assert_eq!(world.begin(call(2), Way::Answered), trying(call(2), &[call(1)], None), "it takes it back");
}

/// Found by the simulation: the call took back what another one had been given.
#[test]
fn a_seal_whose_answer_got_lost_counts_also_if_another_call_was_given_it_since() {
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    world.step(call(1), Step::Seal(call(1)), Way::Answered);
    assert_eq!(world.begin(call(2), Way::Answered), Begun::Held { nonce: call(1) });
    assert!(world.step(call(1), Step::Seal(call(1)), Way::Answered));
    assert!(!world.step(call(1), Step::Forsake, Way::Answered), "it is the other one's by now");
}

#[test]
fn a_forgotten_bundle_cant_be_sealed() {
    let mut world = World::new();
    world.begin(call(1), Way::Answered);
    world.store.now += KEPT.as_millis() as u64 * 2;
    assert!(!world.step(call(1), Step::Seal(call(1)), Way::Answered));
}

#[test]
fn names_differ_in_every_part_of_their_scope() {
    let names = [("n", "p", "r"), ("m", "p", "r"), ("n", "q", "r"), ("n", "p", "s"), ("n", "", "pr")];
    let names = names.map(|(namespace, principal, request)| bundle::name(namespace, principal, request));
    assert_eq!(names[0], bundle::name("n", "p", "r"));
    for (index, name) in names.iter().enumerate() {
        assert!(!names[..index].contains(name), "{name:?}");
    }
}
