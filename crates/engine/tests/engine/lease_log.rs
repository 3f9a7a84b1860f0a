//! What became of leases is written down behind the answers; and what a changed definition had given goes back at once.

use super::limits::{DAY_MS, check, definition, ground, name};
use baton_core::limit::{Definition, Event, Identity, Line, Log, Mechanism};
use baton_core::meter::Algorithm;
use baton_engine::Engine;
use baton_engine::limit::{LendCall, Source};
use baton_testkit::faulty::Fault;
use std::time::Duration;
use tokio::time::Instant;

/// A bound on what should take no time.
const SOON: Duration = Duration::from_secs(30);
/// A lease that doesn't end, and isn't idle, for as long as a test takes.
const HOUR_MS: u64 = 3_600_000;

/// The same as slack: it lives for four rounds.
fn approximate() -> Definition {
    Definition { mechanism: Mechanism::Approximate, sync_ms: Some(500), ..leased(HOUR_MS) }
}

fn leased(ttl_ms: u64) -> Definition {
    Definition {
        mechanism: Mechanism::Leased,
        lease_ttl_ms: Some(ttl_ms),
        lease_size: Some(50),
        ..definition(Algorithm::FixedWindow, 1_000, DAY_MS)
    }
}

/// The log when its last line says so.
async fn lines_until(engine: &Engine, event: Event) -> Vec<Line> {
    let deadline = Instant::now() + SOON;
    loop {
        let page = engine.limit_log(Log::Leases, &name("l"), None, 1_000, None).await.unwrap();
        let lines: Vec<_> = page.lines.into_iter().map(|(_, line)| line).collect();
        if lines.last().is_some_and(|line| line.event == event) {
            return lines;
        }
        assert!(Instant::now() < deadline, "{lines:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_nothing_is_outstanding(engine: &Engine) {
    let deadline = Instant::now() + SOON;
    loop {
        let usage = engine.usage(&name("l"), "k").await.unwrap();
        if usage.outstanding == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{usage:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_s_lease_is_in_the_log_from_its_grant_until_it_goes_back() {
    is_in_the_log_until_it_goes_back(leased(HOUR_MS), HOUR_MS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_s_slack_and_what_was_reconciled_is_in_the_log_from_its_grant_until_it_goes_back() {
    is_in_the_log_until_it_goes_back(approximate(), 2_000).await;
}

async fn is_in_the_log_until_it_goes_back(definition: Definition, ttl_ms: u64) {
    let ground = ground(2).await;
    let [here, there] = &ground.engines[..] else { panic!("two") };
    here.put_limit(&name("l"), definition).await.unwrap();
    let mut local = 0;
    for _ in 0..60 {
        local += u64::from(check(here, "l", "k", 1).await.checks[0].source != Source::Central);
    }
    here.drain().await;
    let lines = lines_until(there, Event::Returned).await;
    assert_eq!(lines[0].event, Event::Granted);
    assert_eq!((lines[0].key.as_str(), lines[0].amount, lines[0].ttl_ms), ("k", 50, ttl_ms));
    assert!(lines[1..lines.len() - 1].iter().all(|line| line.event == Event::Renewed), "{lines:?}");
    let holder = format!("{:016x}", here.node().0);
    assert!(lines.iter().all(|line| line.by == holder && line.reference == lines[0].reference), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!((last.spent, last.amount), (local, 0), "all that was ever spent of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lent_lease_is_in_the_log_and_who_gets_nothing_is_not() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    engine.put_limit(&name("l"), leased(HOUR_MS)).await.unwrap();
    let said = |sequence, spent, kept, want| LendCall {
        key: "k".into(),
        identity: Identity::default(),
        owner: "me".into(),
        lease_id: "me.1".into(),
        sequence,
        spent,
        kept: Some(kept),
        want,
        version: None,
        ttl_ms: 0,
    };
    for (sequence, spent, kept, want) in [(1, 0, 0, 30), (2, 10, 20, 10), (3, 40, 0, 0)] {
        engine.lend(&name("l"), &said(sequence, spent, kept, want)).await.unwrap();
    }
    assert!(check(engine, "l", "k", 960).await.allowed);
    let nothing = engine.lend(&name("l"), &said(4, 40, 0, 10)).await.unwrap();
    assert_eq!(nothing.amount, 0);
    let lines = lines_until(engine, Event::Returned).await;
    let told: Vec<_> = lines.iter().map(|line| (line.event, line.amount, line.spent)).collect();
    assert_eq!(told, [(Event::Granted, 30, 0), (Event::Renewed, 30, 10), (Event::Returned, 0, 40)]);
    assert!(lines.iter().all(|line| line.by == "me" && line.reference == "me.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ended_with_something_left_in_it_is_in_the_log() {
    is_in_the_log_when_it_ends(leased(1_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_that_ended_with_something_left_in_it_is_in_the_log() {
    is_in_the_log_when_it_ends(approximate()).await;
}

async fn is_in_the_log_when_it_ends(definition: Definition) {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    engine.put_limit(&name("l"), definition).await.unwrap();
    for _ in 0..3 {
        check(engine, "l", "k", 1).await;
    }
    ground.faulty.set(Fault::Unavailable);
    // It is spent in the outage, so that it isn't given back, until it closes.
    let deadline = Instant::now() + SOON;
    let mut used = 0;
    while check(engine, "l", "k", 1).await.checks[0].source != Source::Fallback {
        used += 1;
        assert!(Instant::now() < deadline, "it never closes");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ground.faulty.set(Fault::None);
    let lines = lines_until(engine, Event::Lapsed).await;
    let lapsed = lines.last().unwrap();
    assert!(lapsed.amount > 0 && lapsed.amount + used <= 50, "{lapsed:?}, {used} used in the outage");
    assert_eq!(lapsed.reference, lines[0].reference);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_changed_definition_had_given_goes_back_although_its_key_does_not_come_again() {
    for changed in [
        Definition { mechanism: Mechanism::Central, ..leased(HOUR_MS) },
        Definition { limit: 500, ..leased(HOUR_MS) },
    ] {
        let ground = ground(2).await;
        let [here, there] = &ground.engines[..] else { panic!("two") };
        here.put_limit(&name("l"), leased(HOUR_MS)).await.unwrap();
        while check(here, "l", "k", 1).await.checks[0].source == Source::Central {}
        assert!(there.usage(&name("l"), "k").await.unwrap().outstanding > 0);
        there.put_limit(&name("l"), changed).await.unwrap();
        until_nothing_is_outstanding(there).await;
        assert_eq!(there.usage(&name("l"), "k").await.unwrap().used, 2, "and what was spent is counted");
    }
}
