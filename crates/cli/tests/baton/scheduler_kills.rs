//! Schedulers that are killed, or stopped and woken, at random moments: each guarantee holds as it is worded (J3 to J6).
//!
//! One node on the embedded store, or three on the store that `with-store` has started. `BATON_JOB_KILLS` says how often, and
//! `BATON_JOB_SEED` by which chance.

use crate::hook::{Call, Hook, ok};
use crate::http;
use crate::jobs::{apply, node_id, runs};
use crate::process::{eventually, within};
use crate::server::Server;
use crate::stores::on_redis;
use baton_testkit::{Dice, store_url};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What is under way when a node is killed has its lease for so long: timeout and grace.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// Longer than a node's session: what it did another has certainly taken over.
const TAKEN_OVER: (u64, u64) = (11_000, 13_000);
/// One kill of so many leaves a node away for so long, where there are others.
const LONG_EACH: u32 = 5;

fn job(name: &str, hook: &Hook, guarantee: &str, more: &str) -> String {
    let url = format!("http://{}/{name}", hook.address);
    format!(
        "  {name}: {{schedule: '@every 1s', guarantee: {guarantee}, timeoutMillis: 1000, keepRuns: 1000, {more}\
         target: {{http: {{url: '{url}'}}}}}}\n"
    )
}

/// What came for a job, by the time that it was for.
fn by_time(calls: &[Call], job: &str) -> BTreeMap<u64, Vec<Call>> {
    let mut times = BTreeMap::<_, Vec<_>>::new();
    for call in calls.iter().filter(|call| call.job() == job) {
        times.entry(call.scheduled_at()).or_default().push(call.clone());
    }
    times
}

/// No attempt is made twice, all attempts for a time are of one run, and each has a higher token than those before it.
fn are_told_apart(times: &BTreeMap<u64, Vec<Call>>) {
    for (time, calls) in times {
        let keys: BTreeSet<_> = calls.iter().map(Call::key).collect();
        assert_eq!(keys.len(), 1, "{time} is one run: {calls:#?}");
        let rises = |number: fn(&Call) -> u64| calls.is_sorted_by(|one, other| number(one) < number(other));
        assert!(rises(Call::attempt) && rises(Call::token), "{time}: {calls:#?}");
    }
}

/// Waits until nothing is under way.
fn settle(server: &Server, jobs: &[&str]) {
    let until = Instant::now() + SETTLED_WITHIN;
    for job in jobs {
        assert_eq!(server.run(&["cron", "pause", job]).code, 0);
        loop {
            let path = format!("/v1/jobs/{job}");
            let body = http::get(&server.url, &path, Duration::from_secs(10)).unwrap().body;
            if ["active", "queued", "catchingUp"].iter().all(|field| body[field] == 0) {
                break;
            }
            assert!(Instant::now() < until, "{job} doesn't come to rest: {body}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn whenever_the_scheduler_is_killed_each_guarantee_holds() {
    let kills: u32 = std::env::var("BATON_JOB_KILLS").map_or(5, |kills| kills.parse().unwrap());
    let seed = std::env::var("BATON_JOB_SEED").map_or(u64::from(kills), |seed| seed.parse().unwrap());
    println!("BATON_JOB_SEED={seed}");
    let dice = Mutex::new(Dice::new(!seed));
    let hook = Hook::start(move |_| (dice.lock().unwrap().millis((100, 600)), ok("")));
    let directory = tempfile::tempdir().unwrap();
    let store = store_url(directory.path());
    let count = if store == "embedded:" { 1 } else { 3 };
    let mut servers: Vec<_> =
        (0..count).map(|_| Server::start_on_a_store_with(&store, hook.allowed())).collect();
    let all = "missed: all, missedMax: 1000, overlap: allow, ";
    let retry = "retry: {maxAttempts: 100, backoffMillis: 10}, ";
    let jobs = [
        job("once", &hook, "at_most_once", all),
        job("least", &hook, "at_least_once", &format!("{all}{retry}")),
        job("effective", &hook, "effectively_once", &format!("{all}{retry}")),
    ];
    apply(&servers[0], &format!("jobs:\n{}", jobs.concat()));
    let mut dice = Dice::new(seed);
    for round in 0..kills {
        std::thread::sleep(dice.millis((300, 2_500)));
        if round % 2 == 0 {
            // In the middle of a request that must not be repeated; the other times wherever chance has it.
            let sent = || hook.calls().iter().filter(|call| call.job() == "once").count();
            let before = sent();
            eventually("it is sent", || sent() > before);
        }
        let server = &mut servers[dice.below(count) as usize];
        server.kill();
        let is_long = count > 1 && round % LONG_EACH == LONG_EACH / 2;
        std::thread::sleep(dice.millis(if is_long { TAKEN_OVER } else { (0, 500) }));
        server.restart();
    }
    std::thread::sleep(Duration::from_secs(2));
    let names = ["once", "least", "effective"];
    settle(&servers[0], &names);
    let calls = hook.calls();
    for name in names {
        let times = by_time(&calls, name);
        are_told_apart(&times);
        let records = runs(&servers[0], name);
        let decided: BTreeSet<_> = records.iter().map(|run| run["scheduledAt"].as_u64().unwrap()).collect();
        let (first, last) = (*decided.first().unwrap(), *decided.last().unwrap());
        assert!(last - first >= u64::from(kills) * 300, "{name}: hardly anything happened");
        let mut lost = 0;
        for time in (first..=last).step_by(1_000) {
            let record = records.iter().find(|run| run["scheduledAt"] == time);
            let record = record.unwrap_or_else(|| {
                let after = records.iter().rev().find(|run| run["scheduledAt"].as_u64() > Some(time));
                panic!("{name}: {time} has no record; the one after it: {after:?}")
            });
            let sent = times.get(&time).map_or(0, Vec::len);
            match (name, record["outcome"].as_str().unwrap()) {
                ("once", outcome) => {
                    assert!(sent <= 1, "sent twice: {:#?}", times[&time]);
                    // It was recorded, and whoever was to send it has gone: nobody knows, and it isn't sent again.
                    assert!(sent == 1 || outcome == "unknown", "{record}");
                    lost += u32::from(outcome == "unknown");
                }
                (_, outcome) => assert!(outcome == "succeeded" && sent >= 1, "{name}: lost: {record}"),
            }
        }
        assert!(lost <= kills, "{lost} of {kills} kills left something unknown");
    }
    let repeated = calls.iter().filter(|call| call.attempt() > 1).count();
    println!("{kills} kills by seed {seed}, {} requests, {repeated} of them repetitions", calls.len());
}

#[test]
fn overlaps_are_skipped_although_the_node_that_ran_the_one_before_has_crashed() {
    let hook = Hook::start(|call| {
        let takes = if call.attempt() == 1 { Duration::from_secs(30) } else { Duration::ZERO };
        (takes, ok(""))
    });
    let mut server = Server::start_on_a_store_with("embedded:", hook.allowed());
    let more = "overlap: skip, missed: skip, retry: {maxAttempts: 9, backoffMillis: 10}, ";
    apply(&server, &format!("jobs:\n{}", job("j", &hook, "at_least_once", more)));
    eventually("it begins", || !hook.calls().is_empty());
    server.kill();
    server.restart();
    eventually("it is tried again", || hook.calls().len() > 1);
    let calls = hook.calls();
    assert_eq!(calls[1].key(), calls[0].key(), "nothing else began while that one's lease lasted");
    assert!(calls[1].attempt() == 2 && calls[1].token() > calls[0].token(), "{calls:#?}");
    let skipped = runs(&server, "j").iter().filter(|run| run["reason"] == "overlap").count();
    assert!(skipped >= 5, "{skipped} times came while it lasted");
}

/// The node that ran it stays dead: another leaves out what comes while that one's lease lasts.
fn left_out_by_another(store: &str) {
    let hook = Hook::start(|call| {
        let takes = if call.attempt() == 1 { Duration::from_secs(60) } else { Duration::ZERO };
        (takes, ok(""))
    });
    let mut servers: Vec<_> = (0..2).map(|_| Server::start_on_a_store_with(store, hook.allowed())).collect();
    let more = "overlap: skip, missed: skip, retry: {maxAttempts: 9, backoffMillis: 10}, ";
    // Its lease outlives its node's session by far.
    let job = job("j", &hook, "at_least_once", more).replace("timeoutMillis: 1000", "timeoutMillis: 15000");
    apply(&servers[0], &format!("jobs:\n{job}"));
    eventually("it begins", || !hook.calls().is_empty());
    let first = hook.calls()[0].clone();
    let runner = http::get(&servers[0].url, &format!("/v1/runs/{}", first.key()), SETTLED_WITHIN).unwrap();
    let place = servers.iter().position(|server| runner.body["runner"] == node_id(server)).unwrap();
    let mut dead = servers.remove(place);
    dead.kill();
    within(SETTLED_WITHIN, "it is tried again", || hook.count() > 1);
    let second = hook.calls()[1].clone();
    assert_eq!(second.key(), first.key(), "nothing else began while that one's lease lasted");
    assert!(second.attempt() == 2 && second.token() > first.token(), "{first:?} {second:?}");
    let skipped = runs(&servers[0], "j").iter().filter(|run| run["reason"] == "overlap").count();
    assert!(skipped >= 5, "{skipped} times came while it lasted");
}

#[test]
fn overlaps_are_skipped_by_another_node_although_the_one_that_ran_the_one_before_stays_dead() {
    match std::env::var("BATON_TEST_STORE") {
        Ok(_) => left_out_by_another(&store_url(tempfile::tempdir().unwrap().path())),
        Err(_) => on_redis(left_out_by_another),
    }
}

/// Both nodes are stopped for longer than their session lasts, one after the other and in the middle of a look, and woken: what they had
/// read is long over, and for a moment both believe that the jobs are theirs.
fn stopped_and_woken(store: &str) {
    let hook = Hook::willing();
    let servers: Vec<_> = (0..2).map(|_| Server::start_on_a_store_with(store, hook.allowed())).collect();
    // So many that a look at them takes a while.
    let names: Vec<_> = (0..60).map(|number| format!("j{number}")).collect();
    let more = "missed: all, missedMax: 1000, overlap: allow, ";
    let jobs: Vec<_> = names.iter().map(|name| job(name, &hook, "at_most_once", more)).collect();
    apply(&servers[0], &format!("jobs:\n{}", jobs.concat()));
    eventually("they run", || hook.count() > 2 * names.len());
    let mut dice = Dice::new(3);
    for stopped in &servers {
        // They are due at whole seconds.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let second = Duration::from_secs(now.as_secs() + 1);
        std::thread::sleep(second.saturating_sub(now) + dice.millis((2, 30)));
        stopped.pause();
        let before = hook.count();
        within(SETTLED_WITHIN, "the other has them all", || {
            let calls = hook.since(before);
            calls.iter().map(Call::job).collect::<BTreeSet<_>>().len() == names.len()
        });
        stopped.resume();
        let before = hook.count();
        eventually("it goes on", || hook.count() > before + 2 * names.len());
        are_begun_once(&hook.calls(), &names);
    }
    settle(&servers[0], &names.iter().map(String::as_str).collect::<Vec<_>>());
    are_begun_once(&hook.calls(), &names);
}

fn are_begun_once(calls: &[Call], names: &[String]) {
    for name in names {
        for (time, calls) in by_time(calls, name) {
            assert_eq!(calls.len(), 1, "{time} was begun twice: {calls:#?}");
        }
    }
}

#[test]
fn two_nodes_that_both_believe_to_own_a_job_start_nothing_twice() {
    match std::env::var("BATON_TEST_STORE") {
        Ok(_) => stopped_and_woken(&store_url(tempfile::tempdir().unwrap().path())),
        Err(_) => on_redis(stopped_and_woken),
    }
}
