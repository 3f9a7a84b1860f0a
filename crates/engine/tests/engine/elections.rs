//! Leading, standing by, taking over: what elections promise on top of locks (E1, E2, E4 to E8).

use super::counting::Counting;
use super::locks::until;
use super::promptly::promptly;
use baton_core::lock::{FencingToken, LockName, Mode};
use baton_engine::election::{Observation, Observed, ProclaimCall};
use baton_engine::lock::{AcquireCall, Granted, LockError, Refusal, ReleaseCall, RenewCall, Wait};
use baton_engine::{Config, Engine, Random};
use baton_testkit::simulated::{Faults, Simulated};
use baton_testkit::store_url;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Nothing here takes as long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

struct Ground {
    engine: Engine,
    store: Arc<Counting>,
    // Dropped last: the store lives in it.
    _directory: tempfile::TempDir,
}

async fn ground() -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open(&store_url(directory.path()), directory.path()).await.unwrap();
    let store = Arc::new(Counting::new(store));
    let engine = Engine::start(store.clone(), Config::default(), Random::system()).await.unwrap();
    Ground { engine, store, _directory: directory }
}

/// An election of one's own: on a store that is a server, several tests share a namespace.
fn election(name: &str) -> LockName {
    LockName::election("default", name)
}

fn call(candidate: &str, ttl: Duration, wait: Wait) -> AcquireCall {
    AcquireCall {
        owner: candidate.into(),
        principal: "".into(),
        ttl,
        wait,
        request_id: None,
        reentrant: false,
        metadata: Some(format!("{{\"at\":\"{candidate}\"}}").into_bytes().into()),
        mode: Mode::Exclusive,
        delay: Duration::ZERO,
    }
}

async fn leads(engine: &Engine, election: &LockName, candidate: &str, ttl: Duration) -> Granted {
    engine.campaign(election, call(candidate, ttl, Wait::No), 0).await.unwrap()
}

type StandsBy = JoinHandle<(Arc<str>, Result<Granted, LockError>)>;

fn stands_by(engine: &Engine, election: &LockName, candidate: &str, priority: i16) -> StandsBy {
    let (engine, election, candidate) = (engine.clone(), election.clone(), Arc::<str>::from(candidate));
    tokio::spawn(async move {
        let elected = campaigns(&engine, &election, &candidate, priority).await;
        (candidate, elected)
    })
}

/// As every client does: what failed for want of an answer is asked again, under the same requestId.
async fn campaigns(
    engine: &Engine,
    election: &LockName,
    candidate: &str,
    priority: i16,
) -> Result<Granted, LockError> {
    let call = call(candidate, Duration::from_secs(60), Wait::Forever);
    let call = AcquireCall { request_id: Some(candidate.into()), ..call };
    loop {
        match engine.campaign(election, call.clone(), priority).await {
            Err(LockError::Failed(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            result => return result,
        }
    }
}

async fn standing_by(engine: &Engine, election: &LockName, count: u64) {
    let deadline = Instant::now() + PATIENCE;
    while !matches!(engine.lock_state(election).await, Ok(Some(state)) if state.waiting == count) {
        assert!(Instant::now() < deadline, "never {count} candidates");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The slowest of some looks, each of two reads; nothing on the embedded store, which is part of this process.
async fn store_time(engine: &Engine, election: &LockName) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..if engine.store().guarantees().shared { 20 } else { 0 } {
        let began = Instant::now();
        engine.lock_state(election).await.unwrap();
        slowest = slowest.max(began.elapsed());
    }
    slowest
}

fn resignation(candidate: &str, leader: &Granted) -> ReleaseCall {
    let token = leader.token.reveal();
    ReleaseCall { token, owner: candidate.into(), principal: "".into(), request_id: None }
}

fn renewal(candidate: &str, leader: &Granted, ttl: Duration) -> RenewCall {
    RenewCall { token: leader.token.reveal(), owner: candidate.into(), principal: "".into(), ttl }
}

async fn next(observation: &mut Observation) -> (Option<String>, Option<FencingToken>, Option<String>) {
    let news = tokio::time::timeout(PATIENCE, observation.next()).await.expect("in time").unwrap();
    match news {
        Observed::Leads(leader) => {
            let value = leader.value.map(|value| String::from_utf8(value.to_vec()).unwrap());
            (Some(leader.id.as_ref().into()), Some(leader.epoch), value)
        }
        Observed::Led(leader) => (Some(format!("past {}", leader.id)), Some(leader.epoch), None),
        Observed::Vacant { epoch } => (None, epoch, None),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_leader_with_a_thousand_candidates_dies_one_of_them_leads_in_time_by_a_handful_of_commits() {
    promptly(a_leader_with_a_thousand_candidates_dies).await;
}

async fn a_leader_with_a_thousand_candidates_dies() -> (Duration, Duration) {
    let ground = ground().await;
    let (engine, election) = (&ground.engine, election("a thousand"));
    let promised = engine.store().guarantees();
    let ttl = promised.ttl_min.max(Duration::from_secs(4));
    let leader = leads(engine, &election, "first", ttl).await;
    let candidates: Vec<_> =
        (0..1000).map(|number| stands_by(engine, &election, &format!("candidate {number}"), 0)).collect();
    let keeper = {
        let (engine, election, leader) = (engine.clone(), election.clone(), leader.clone());
        tokio::spawn(async move {
            loop {
                // A store that is busy may fail one of them: the next comes in time.
                drop(engine.renew(&election, renewal("first", &leader, ttl)).await);
                tokio::time::sleep(ttl / 4).await;
            }
        })
    };
    standing_by(engine, &election, 1000).await;
    // Who stands in the queue may not have been told yet, and its commit not been counted.
    until("parked", async || engine.metrics().parked.get() >= 1000).await;
    keeper.abort();
    let look = store_time(engine, &election).await;
    // The last renewal; whether the aborted one came through doesn't matter any more.
    engine.renew(&election, renewal("first", &leader, ttl)).await.unwrap();
    let renewed_by = Instant::now();
    let before = ground.store.commits();
    let state = loop {
        let state = engine.lock_state(&election).await;
        match state {
            Ok(Some(state)) if state.holders[0].owner.as_ref() != "first" => break state,
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
        assert!(renewed_by.elapsed() < PATIENCE, "nobody leads");
    };
    let took = renewed_by.elapsed();
    assert!(state.holders[0].fencing > leader.fencing, "a higher epoch");
    assert_eq!(state.waiting, 999);
    // The bar is 50 ms on the embedded store. Elsewhere it takes some round trips: to look, to read who is next, to commit,
    // and for this test to see it.
    let latest = ttl + promised.ttl_granularity + Duration::from_millis(50) + look * 4;
    let commits = ground.store.commits() - before;
    assert!(commits <= 2, "{commits} commits for one failover");
    let done = candidates.iter().filter(|candidate| candidate.is_finished()).count();
    assert!(done <= 1, "one new leader, not {done}");
    candidates.iter().for_each(|candidate| candidate.abort());
    (took, latest)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_resignation_the_next_one_of_a_thousand_leads_within_ten_milliseconds_of_the_stores_answer() {
    promptly(the_next_one_of_a_thousand_leads_on_resignation).await;
}

async fn the_next_one_of_a_thousand_leads_on_resignation() -> (Duration, Duration) {
    let ground = ground().await;
    let (engine, election) = (&ground.engine, election("resigned"));
    let leader = leads(engine, &election, "first", Duration::from_secs(60)).await;
    let mut candidates = tokio::task::JoinSet::new();
    for number in 0..1000 {
        let (engine, election) = (engine.clone(), election.clone());
        candidates.spawn(async move {
            let granted = campaigns(&engine, &election, &format!("candidate {number}"), 0).await;
            (granted, Instant::now())
        });
    }
    standing_by(engine, &election, 1000).await;
    // Who stands in the queue may not have been told yet, and its commit not been counted.
    until("parked", async || engine.metrics().parked.get() >= 1000).await;
    let before = ground.store.commits();
    engine.resign(&election, resignation("first", &leader), None).await.unwrap();
    let resigned = Instant::now();
    let (next, heard) = candidates.join_next().await.unwrap().unwrap();
    assert!(next.unwrap().fencing > leader.fencing);
    let late = heard.saturating_duration_since(resigned);
    let commits = ground.store.commits() - before;
    assert_eq!(commits, 1, "the resignation's own commit elects the next");
    // The bar is 10 ms; the rest is for a machine that is busy with other tests.
    (late, Duration::from_millis(10 + 90))
}

#[tokio::test]
async fn a_lock_and_an_election_of_one_name_dont_meet() {
    let ground = ground().await;
    let engine = &ground.engine;
    let (lock, election) = (LockName::new("default", "same"), election("same"));
    let held = engine.acquire(&lock, call("holder", Duration::from_secs(60), Wait::No)).await.unwrap();
    let leader = leads(engine, &election, "leader", Duration::from_secs(60)).await;
    let stolen = ReleaseCall { owner: "holder".into(), ..resignation("holder", &held) };
    let refused = engine.resign(&election, stolen, None).await.unwrap_err();
    assert_eq!(refused, LockError::Refused(Refusal::NotOwner), "a lockToken is no leaderToken");
    assert_eq!(engine.lock_state(&lock).await.unwrap().unwrap().holders[0].owner.as_ref(), "holder");
    engine.resign(&election, resignation("leader", &leader), None).await.unwrap();
    assert!(engine.lock_state(&lock).await.unwrap().is_some());
}

#[tokio::test]
async fn observers_hear_the_leader_at_once_and_every_change_in_the_order_of_epochs() {
    let ground = ground().await;
    let (engine, election) = (&ground.engine, election("observed"));
    let mut observed = engine.observe(&election, None);
    assert_eq!(next(&mut observed).await, (None, None, None), "nobody leads");
    let first = leads(engine, &election, "first", Duration::from_secs(60)).await;
    let value = |text: &str| Some(format!("{{\"at\":\"{text}\"}}"));
    assert_eq!(next(&mut observed).await, (Some("first".into()), Some(first.fencing), value("first")));
    let second = stands_by(engine, &election, "second", 0);
    standing_by(engine, &election, 1).await;
    let call = ProclaimCall {
        token: first.token.reveal(),
        candidate: "first".into(),
        principal: "".into(),
        value: value("elsewhere").map(|value| value.into_bytes().into()),
    };
    assert_eq!(engine.proclaim(&election, call.clone()).await, Ok(first.fencing));
    assert_eq!(next(&mut observed).await, (Some("first".into()), Some(first.fencing), value("elsewhere")));
    let mut late = engine.observe(&election, None);
    assert_eq!(next(&mut late).await.2, value("elsewhere"), "the present leader at once");

    engine.resign(&election, resignation("first", &first), None).await.unwrap();
    let second = second.await.unwrap().1.unwrap();
    let expected = (Some("second".into()), Some(second.fencing), value("second"));
    assert_eq!(next(&mut observed).await, expected);
    assert_eq!(next(&mut late).await, expected);
    let refused = engine.proclaim(&election, call).await.unwrap_err();
    assert_eq!(refused, LockError::Refused(Refusal::Expired), "its time is over");
    engine.resign(&election, resignation("second", &second), None).await.unwrap();
    assert_eq!(next(&mut observed).await, (None, Some(second.fencing), None));

    let mut resumed = engine.observe(&election, Some(first.fencing));
    assert_eq!(next(&mut resumed).await, (Some("past second".into()), Some(second.fencing), None));
    assert_eq!(next(&mut resumed).await, (None, Some(second.fencing), None));
}

#[tokio::test]
async fn candidates_are_shown_in_the_order_of_their_turns_page_by_page() {
    let ground = ground().await;
    let (engine, election) = (&ground.engine, election("paged"));
    leads(engine, &election, "leader", Duration::from_secs(60)).await;
    let mut standing = Vec::new();
    for (count, (candidate, priority)) in
        [("c", 0), ("e", -7), ("d", 0), ("a", 1000), ("b", 3)].into_iter().enumerate()
    {
        standing.push(stands_by(engine, &election, candidate, priority));
        standing_by(engine, &election, count as u64 + 1).await;
    }
    let mut shown = Vec::new();
    let mut cursor = None;
    loop {
        let page = engine.candidates(&election, 2, cursor.as_deref()).await.unwrap();
        assert!(page.candidates.len() <= 2);
        shown.extend(page.candidates.into_iter().map(|one| (one.id.to_string(), one.priority.unwrap())));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let expected = [("a", 1000), ("b", 3), ("c", 0), ("d", 0), ("e", -7)];
    assert_eq!(shown, expected.map(|(id, priority)| (id.to_owned(), priority)));
    let bad = engine.candidates(&election, 2, Some("nonsense")).await.unwrap_err();
    assert_eq!(bad, LockError::Refused(Refusal::BadCursor));
    standing.iter().for_each(|candidate| candidate.abort());
}

#[tokio::test(start_paused = true)]
async fn a_named_successor_leads_also_when_its_call_is_at_another_node() {
    let store = Simulated::for_many(3);
    let start = |seed| Engine::start(store.node(Faults::none()), Config::default(), Random::seeded(seed));
    let (here, there) = (start(1).await.unwrap(), start(2).await.unwrap());
    let election = election("successor");
    let leader = leads(&here, &election, "leader", Duration::from_secs(60)).await;
    let first = stands_by(&here, &election, "first", 1000);
    standing_by(&here, &election, 1).await;
    let named = stands_by(&there, &election, "named", 0);
    standing_by(&here, &election, 2).await;
    let nobody = here.resign(&election, resignation("leader", &leader), Some("nobody".into())).await;
    assert_eq!(nobody, Err(LockError::Refused(Refusal::NoSuchSuccessor)));
    assert_eq!(
        here.lock_state(&election).await.unwrap().unwrap().holders[0].owner.as_ref(),
        "leader",
        "still"
    );

    let before = tokio::time::Instant::now();
    here.resign(&election, resignation("leader", &leader), Some("named".into())).await.unwrap();
    let elected = named.await.unwrap().1.unwrap();
    assert!(
        before.elapsed() < Duration::from_millis(100),
        "{:?}: by a hint, not by a poll",
        before.elapsed()
    );
    assert!(elected.fencing > leader.fencing && !first.is_finished());
    there.resign(&election, resignation("named", &elected), None).await.unwrap();
    assert!(first.await.unwrap().1.unwrap().fencing > elected.fencing);
}
