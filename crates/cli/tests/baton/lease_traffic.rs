//! What leases ask of the store, as it counts itself: three nodes, and a limit of which seven tenths are used (M2).

use crate::server::Server;
use baton_client::Baton;
use baton_client::limit::Checked;
use baton_testkit::servers::redis::Redis;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// A minute.
const LIMIT: u64 = 180_000;
const NODES: u64 = 3;
/// At each node, in turn.
const CALLERS: u64 = 4;
/// Seven tenths of the limit, of each caller, in microseconds between two.
const EVERY_US: u64 = 60_000_000 * 10 * NODES * CALLERS / (LIMIT * 7);
/// Until every node has leases as large as it needs.
const WARM: Duration = Duration::from_secs(12);
const MEASURED: Duration = Duration::from_secs(20);

/// Commands that were sent by nodes: what Redis has counted, less what Baton has only its scripts call, which counts once, as the script.
fn commands(redis: &Redis) -> u64 {
    let statistics = redis.say(&["INFO", "commandstats"]).unwrap();
    let calls = statistics.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<u64>().unwrap();
        (!IN_SCRIPTS.contains(&command) && !OF_THIS_TEST.contains(&command)).then_some(calls)
    });
    calls.sum()
}

const IN_SCRIPTS: [&str; 13] = [
    "del",
    "get",
    "mget",
    "mset",
    "persist",
    "pexpireat",
    "pubsub|numsub",
    "set",
    "setrange",
    "time",
    "zadd",
    "zrangebyscore",
    "zrem",
];
const OF_THIS_TEST: [&str; 1] = ["info"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_below_a_leased_limit_ask_redis_a_hundredth_as_often_as_they_are_asked() {
    let redis = Redis::start(&[]).await.unwrap();
    let nodes: Vec<_> =
        (0..NODES).map(|_| Server::start_on_a_store(&format!("redis://{}", redis.address))).collect();
    let limit = LIMIT.to_string();
    let put = ["limits", "put", "l", "--limit", &limit, "--per", "1m", "--mechanism", "leased"];
    let made = nodes[0].run(&put);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let counts: [Arc<AtomicU64>; 2] = Default::default();
    let callers: Vec<_> = (0..NODES * CALLERS)
        .map(|caller| {
            let (url, counts) = (nodes[(caller % NODES) as usize].url.clone(), counts.clone());
            tokio::spawn(async move {
                let limit = Baton::connect(&url).await.unwrap().limit("l");
                sleep(Duration::from_micros(EVERY_US * caller / (NODES * CALLERS))).await;
                let mut due = interval(Duration::from_micros(EVERY_US));
                // What a busy machine was late with is made up for: it is offered evenly, on the whole.
                due.set_missed_tick_behavior(MissedTickBehavior::Burst);
                loop {
                    due.tick().await;
                    let checked = limit.check("k").await.unwrap();
                    counts[usize::from(matches!(checked, Checked::Refused(_)))]
                        .fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let so_far = || [&counts[0], &counts[1]].map(|count| count.load(Ordering::SeqCst));
    sleep(WARM).await;
    let (began, commands_before, [passed, refused]) = (Instant::now(), commands(&redis), so_far());
    sleep(MEASURED).await;
    let sent = commands(&redis) - commands_before;
    let (passed, refused) = (so_far()[0] - passed, so_far()[1] - refused);
    let elapsed = began.elapsed();
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    let statistics = redis.say(&["INFO", "commandstats"]).unwrap();
    let offered = LIMIT as f64 * 0.7 / 60.0 * elapsed.as_secs_f64();
    assert!(
        passed as f64 > offered * 0.8,
        "{passed} passed of {offered} offered: too little to say anything"
    );
    assert!(refused * 100 <= passed, "{refused} refused, {passed} passed, below the limit");
    assert!(sent * 100 <= passed, "{sent} commands for {passed} checks: {statistics}");
}
