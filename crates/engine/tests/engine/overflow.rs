//! Keys beyond the most that have a meter of their own: what outlives a call finds its meter again, at whichever node (A1, A6, A7).

use super::limits::{DAY_MS, Ground, call, check, definition, ground, name};
use baton_core::limit::{Definition, Identity, Mechanism};
use baton_core::meter::Algorithm;
use baton_engine::Engine;
use baton_engine::limit::{Booked, LendCall, ReserveCall, Wanted};

/// Two nodes, and a limit at which one key has a meter of its own: of the first that is "first", of the second "k".
async fn two_that_differ(said: Definition) -> Ground {
    let ground = ground(2).await;
    ground.engines[0].put_limit(&name("l"), Definition { keys_max: 1, ..said }).await.unwrap();
    check(&ground.engines[0], "l", "first", 1).await;
    check(&ground.engines[1], "l", "k", 1).await;
    ground
}

async fn receipt(engine: &Engine, key: &str, cost: u64) -> String {
    let wanted = Wanted { receipt: true, ..Wanted::default() };
    let mut answered = engine.check_limits(&[call("l", key, cost)], &wanted).await.unwrap();
    answered.checks.remove(0).receipt.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_gives_back_to_the_meter_it_was_counted_on_at_any_node_and_once() {
    let ground = two_that_differ(definition(Algorithm::FixedWindow, 5, DAY_MS)).await;
    let [here, there] = &ground.engines[..] else { panic!("two") };
    let receipt = receipt(here, "k", 4).await;
    assert!(!check(here, "l", "other", 2).await.allowed, "all but one have used up what they share");
    for engine in [there, here, there] {
        assert_eq!(engine.refund(&name("l"), "k", &receipt, "").await.unwrap(), 4, "the same answer");
    }
    assert_eq!(here.usage(&name("l"), "k").await.unwrap().used, 1, "its own count is as it was");
    assert!(check(here, "l", "other", 5).await.allowed);
    assert!(!check(here, "l", "other", 1).await.allowed, "it was given back once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_is_cancelled_on_the_meter_it_was_booked_on() {
    let ground = two_that_differ(definition(Algorithm::TokenBucket, 5, DAY_MS)).await;
    let [here, there] = &ground.engines[..] else { panic!("two") };
    let wanted = ReserveCall { key: "k".into(), cost: 5, wait_max_ms: DAY_MS, request_id: None };
    let booked = here.reserve(&name("l"), &wanted, "").await.unwrap();
    let Booked::At { reservation_id, .. } = booked else { panic!("{booked:?}") };
    assert!(there.refund(&name("l"), "k", &reservation_id, "").await.unwrap() >= 4);
    assert!(check(here, "l", "other", 4).await.allowed, "those who share it have it again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_kept_and_left_on_the_meter_it_is_on_at_any_node() {
    let said = Definition { lease_ttl_ms: Some(60_000), ..definition(Algorithm::InFlight, 1, 1) };
    let ground = two_that_differ(said).await;
    let [here, there] = &ground.engines[..] else { panic!("two") };
    let place = check(here, "l", "k", 1).await.checks.remove(0).place.unwrap();
    let kept = there.lend(&name("l"), &lend("k", &place.lease_id, 2)).await.unwrap();
    assert_eq!(kept.amount, 1, "the other node finds it");
    assert!(!check(here, "l", "other", 1).await.allowed);
    there.leave(&name("l"), "k", &place.lease_id, "").await.unwrap();
    assert!(check(here, "l", "other", 1).await.allowed, "it was left");
    assert!(!check(there, "l", "k", 1).await.allowed, "the one on its own meter was not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lent_by_one_node_is_the_same_lease_at_another() {
    let said =
        Definition { mechanism: Mechanism::Leased, ..definition(Algorithm::FixedWindow, 1_000, DAY_MS) };
    let ground = two_that_differ(said).await;
    let [here, there] = &ground.engines[..] else { panic!("two") };
    let lent = here.lend(&name("l"), &LendCall { want: 20, ..lend("k", "mine.1", 1) }).await.unwrap();
    assert_eq!(lent.amount, 20);
    let said = LendCall { spent: 5, kept: Some(15), ..lend("k", &lent.lease_id, 2) };
    let renewed = there.lend(&name("l"), &said).await.unwrap();
    assert_eq!((renewed.amount, &renewed.lease_id), (15, &lent.lease_id), "the other node finds it");
    let said = LendCall { spent: 20, kept: Some(0), ..lend("k", &lent.lease_id, 3) };
    assert_eq!(there.lend(&name("l"), &said).await.unwrap().amount, 0);
    assert_eq!(there.usage(&name("l"), "k").await.unwrap().used, 1, "its own count is as it was");
    let shared = check(here, "l", "other", 1).await.checks.remove(0);
    assert_eq!(shared.remaining, 1_000 - 21, "what was spent of it is counted where it was lent");
}

fn lend(key: &str, lease_id: &str, sequence: u64) -> LendCall {
    LendCall {
        key: key.into(),
        identity: Identity::default(),
        owner: "somebody".into(),
        lease_id: lease_id.into(),
        sequence,
        spent: 0,
        kept: None,
        want: 0,
        version: None,
        ttl_ms: 0,
    }
}
