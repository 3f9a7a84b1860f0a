//! Audited limits: every decision is in the store before it is answered, or it isn't answered.

use super::limits::{DAY_MS, Ground, call, check, definition, ground, name};
use baton_core::limit::{Definition, Event, Line, Log, Policy};
use baton_core::meter::Algorithm;
use baton_engine::limit::{Answered, Booked, LimitError, ReserveCall, Wanted};
use baton_engine::{Engine, Failure};
use baton_testkit::faulty::Fault;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// A bound on what should take no time.
const SOON: Duration = Duration::from_secs(30);

async fn audited(nodes: usize, said: Definition) -> Ground {
    let ground = ground(nodes).await;
    ground.engines[0].put_limit(&name("l"), Definition { audit: true, ..said }).await.unwrap();
    ground
}

async fn lines(engine: &Engine) -> Vec<Line> {
    let (mut lines, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let page = engine.limit_log(Log::Audit, &name("l"), None, 1_000, cursor.as_deref()).await.unwrap();
        lines.extend(page.lines.into_iter().map(|(_, line)| line));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return lines;
        }
    }
}

/// The log when it has as many lines.
async fn lines_when(engine: &Engine, count: usize) -> Vec<Line> {
    let deadline = Instant::now() + SOON;
    loop {
        let lines = lines(engine).await;
        if lines.len() >= count {
            return lines;
        }
        assert!(Instant::now() < deadline, "{} of {count}", lines.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn failed(answer: Result<Answered, LimitError>) -> Failure {
    match answer {
        Err(LimitError::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_decision_is_in_the_log_before_it_is_answered_at_whichever_node() {
    let ground = audited(2, definition(Algorithm::TokenBucket, 5, DAY_MS)).await;
    let [here, there] = &ground.engines[..] else { panic!("two") };
    let wanted = Wanted { principal: "ann".into(), request_id: Some("r1".into()), receipt: true };
    let mut answered = here.check_limits(&[call("l", "k", 4)], &wanted).await.unwrap();
    let receipt = answered.checks.remove(0).receipt.unwrap();
    let [line] = &lines(there).await[..] else { panic!("one line") };
    assert_eq!((line.event, line.key.as_str(), line.amount), (Event::Allowed, "k", 4));
    assert_eq!((line.by.as_str(), line.reference.as_str(), line.source.as_str()), ("ann", "r1", "central"));
    assert_eq!((line.remaining, line.node), (1, here.node().0));
    assert!(!check(there, "l", "k", 2).await.allowed);
    assert_eq!(lines(here).await[1].event, Event::Refused);
    there.refund(&name("l"), "k", &receipt, "bob").await.unwrap();
    let booking = ReserveCall { key: "k".into(), cost: 5, wait_max_ms: DAY_MS, request_id: None };
    let booked = here.reserve(&name("l"), &booking, "ann").await.unwrap();
    let Booked::At { reservation_id, .. } = booked else { panic!("{booked:?}") };
    here.refund(&name("l"), "k", &reservation_id, "ann").await.unwrap();
    let lines = lines(there).await;
    let events: Vec<_> = lines.iter().map(|line| (line.event, line.by.as_str())).collect();
    let expected = [
        (Event::Allowed, "ann"),
        (Event::Refused, ""),
        (Event::Refunded, "bob"),
        (Event::Reserved, "ann"),
        (Event::Refunded, "ann"),
    ];
    assert_eq!(events, expected);
    assert!(lines.is_sorted_by_key(|line| line.at.0), "{lines:?}");
    check(here, "l", "k", 0).await;
    assert_eq!(self::lines(here).await.len(), 5, "a look decides nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn places_are_in_the_log_from_when_they_are_taken_until_they_are_left() {
    let said = Definition { lease_ttl_ms: Some(60_000), ..definition(Algorithm::InFlight, 1, 1) };
    let ground = audited(1, said).await;
    let engine = &ground.engines[0];
    let place = check(engine, "l", "k", 1).await.checks.remove(0).place.unwrap();
    engine.leave(&name("l"), "k", &place.lease_id, "ann").await.unwrap();
    let lines = lines(engine).await;
    let events: Vec<_> = lines.iter().map(|line| (line.event, line.remaining)).collect();
    assert_eq!(events, [(Event::Allowed, 0), (Event::Left, 1)]);
    assert_eq!(lines[1].reference, place.lease_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_of_several_nodes_at_once_are_written_each_once() {
    let ground = audited(2, definition(Algorithm::FixedWindow, 1_000, DAY_MS)).await;
    let callers: Vec<_> = (0..300)
        .map(|caller| {
            let engine = ground.engines[caller % 2].clone();
            tokio::spawn(async move { check(&engine, "l", &format!("k{}", caller % 3), 1).await.allowed })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    let lines = lines(&ground.engines[0]).await;
    let told_apart: HashSet<_> = lines.iter().map(|line| (line.node, line.number)).collect();
    assert_eq!((lines.len(), told_apart.len()), (300, 300));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_cannot_be_written_down_is_never_a_yes_and_is_written_when_it_can_be() {
    let ground = audited(1, definition(Algorithm::FixedWindow, 2, DAY_MS)).await;
    let engine = &ground.engines[0];
    // Meters are charged, and nothing new is kept.
    ground.faulty.set(Fault::Full);
    for (unknown, used) in [(true, 1), (true, 2), (false, 2)] {
        let answer = engine.check_limits(&[call("l", "k", 1)], &Wanted::default()).await;
        assert_eq!(failed(answer), Failure::Unavailable { unknown }, "only a yes may have taken effect");
        assert_eq!(engine.usage(&name("l"), "k").await.unwrap().used, used);
    }
    assert_eq!(lines(engine).await, []);
    ground.faulty.set(Fault::None);
    let events: Vec<_> = lines_when(engine, 3).await.iter().map(|line| line.event).collect();
    assert_eq!(events, [Event::Allowed, Event::Allowed, Event::Refused]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_decides_in_an_outage_is_written_down_late_and_says_so() {
    let said = Definition { on_failure: Policy::Open, ..definition(Algorithm::FixedWindow, 2, DAY_MS) };
    let ground = audited(1, said).await;
    let engine = &ground.engines[0];
    assert!(check(engine, "l", "k", 1).await.allowed);
    ground.faulty.set(Fault::Unavailable);
    assert!(check(engine, "l", "k", 2).await.allowed);
    assert!(!check(engine, "l", "k", 1).await.allowed);
    ground.faulty.set(Fault::None);
    let lines = lines_when(engine, 3).await;
    let said: Vec<_> = lines.iter().map(|line| (line.event, line.source.as_str())).collect();
    let expected = [(Event::Allowed, "central"), (Event::Allowed, "fallback"), (Event::Refused, "fallback")];
    assert_eq!(said, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_most_lines_that_wait_nothing_more_is_decided_until_they_are_written_many_at_a_time() {
    let said = Definition { on_failure: Policy::Open, ..definition(Algorithm::FixedWindow, 100_000, DAY_MS) };
    let ground = audited(1, said).await;
    let engine = &ground.engines[0];
    assert!(check(engine, "l", "k", 1).await.allowed);
    ground.faulty.set(Fault::Unavailable);
    let mut admitted = 0;
    let refused = loop {
        match engine.check_limits(&[call("l", "k", 1)], &Wanted::default()).await {
            Ok(answered) => admitted += usize::from(answered.allowed),
            Err(error) => break error,
        }
        assert!(admitted < 20_000, "there is no end to it");
    };
    assert_eq!((refused, admitted), (LimitError::Failed(Failure::Overloaded), 10_000));
    let before = ground.store.logs();
    ground.faulty.set(Fault::None);
    assert_eq!(lines_when(engine, 10_001).await.len(), 10_001);
    let commits = ground.store.logs() - before;
    assert!(commits < 1_000, "{commits} commits for 10,000 lines");
    assert!(check(engine, "l", "k", 1).await.allowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_in_pages_of_one_key_or_of_all_also_when_the_limit_is_gone() {
    let ground = audited(1, definition(Algorithm::FixedWindow, 1_000, DAY_MS)).await;
    let engine = &ground.engines[0];
    for number in 0..150_u64 {
        check(engine, "l", if number % 3 == 0 { "third" } else { "other" }, number + 1).await;
    }
    engine.remove_limit(&name("l")).await.unwrap();
    for (key, count) in [(None, 150), (Some("third"), 50), (Some("nobody"), 0)] {
        let (mut found, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = engine.limit_log(Log::Audit, &name("l"), key, 7, cursor.as_deref()).await.unwrap();
            assert!(page.lines.len() <= 7);
            if let (Some((position, _)), Some(next)) = (page.lines.last(), &page.next_cursor) {
                assert!(page.lines.len() < 7 || position.to_string() == *next);
            }
            found.extend(page.lines.into_iter().map(|(_, line)| line));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), count, "{key:?}");
        assert!(found.is_sorted_by_key(|line| line.number), "each once, in order");
        assert!(found.iter().all(|line| key.is_none_or(|key| line.key == key)));
    }
    let bad = engine.limit_log(Log::Audit, &name("l"), None, 7, Some("x")).await;
    assert_eq!(bad, Err(LimitError::BadCursor));
    let nowhere = engine.limit_log(Log::Audit, &name("nowhere"), None, 7, None).await;
    assert_eq!(nowhere, Err(LimitError::NotFound { limit: "nowhere".into() }));
}
