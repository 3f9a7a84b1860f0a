//! Redis: the laws and the faults, against real servers.

use crate::simulated::{commit, key, put};
use baton_core::meter::{Meter, Take, Verdict};
use baton_core::{Check, Commit, Group, Key, Outcome, Revision, Ttl, Write};
use baton_store::conformance::{self, Ending, Harness};
use baton_store::{Charge, Reason, Store, StoreError, open};
use baton_testkit::proxy::Proxy;
use baton_testkit::servers::redis::{Cluster, Redis, Replicated};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

const PATIENCE: Duration = Duration::from_secs(30);

pub async fn store(url: &str) -> Arc<dyn Store> {
    open(url, Path::new("unused")).await.unwrap()
}

pub fn url(redis: &Redis) -> String {
    format!("redis://{}", redis.address)
}

pub async fn committed(store: &dyn Store, name: &str) -> Revision {
    match store.commit(commit([put(name, "1")])).await.unwrap() {
        Outcome::Committed { revision, .. } => revision,
        conflict => panic!("{conflict:?}"),
    }
}

/// Waits for what comes by itself.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

struct Servers {
    url: String,
    servers: Mutex<Vec<Redis>>,
}

impl Harness for Servers {
    async fn open(&self) -> Arc<dyn Store> {
        store(&self.url).await
    }

    async fn reopen(&self, store: Arc<dyn Store>, ending: Ending) -> Arc<dyn Store> {
        drop(store);
        let mut servers = self.servers.lock().await;
        for server in servers.iter_mut() {
            server.end(ending == Ending::Crash).await.unwrap();
            server.start_again().await.unwrap();
        }
        // A cluster takes a moment to agree that it is one.
        let begun = Instant::now();
        let agreed = |server: &Redis| {
            !self.url.starts_with("redis-cluster")
                || server.say(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:ok")
        };
        loop {
            if servers.iter().all(agreed)
                && let Ok(store) = open(&self.url, Path::new("unused")).await
                && store.commit(commit([put("usable", "")])).await.is_ok()
            {
                return store;
            }
            assert!(begun.elapsed() < PATIENCE, "it opens again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws() {
    let server = Redis::start(&[]).await.unwrap();
    conformance::all(&Servers { url: url(&server), servers: Mutex::new(vec![server]) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws_on_a_cluster() {
    let cluster = Cluster::start(3).await.unwrap();
    conformance::all(&Servers { url: cluster.url(), servers: Mutex::new(cluster.servers) }).await;
}

/// A crash is one of the primary, and the replica takes its place.
struct Guarded(Mutex<Replicated>);

impl Harness for Guarded {
    async fn open(&self) -> Arc<dyn Store> {
        let url = self.0.lock().await.url();
        store(&format!("{url}?wait=1")).await
    }

    async fn reopen(&self, store: Arc<dyn Store>, ending: Ending) -> Arc<dyn Store> {
        drop(store);
        {
            let mut replicated = self.0.lock().await;
            let primary = replicated.primary().unwrap();
            replicated.servers[primary].end(ending == Ending::Crash).await.unwrap();
            replicated.failed_over(primary).await.unwrap();
            replicated.servers[primary].start_again().await.unwrap();
            replicated.settled().await.unwrap();
        }
        self.open().await
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws_when_sentinel_puts_the_replica_it_waited_for_in_the_primarys_place() {
    let replicated = Replicated::start(Duration::from_secs(1), &[]).await.unwrap();
    conformance::all(&Guarded(Mutex::new(replicated))).await;
}

/// How often scripts were run: by their hash, and whole.
pub fn scripts(server: &Redis) -> (u64, u64) {
    let statistics = server.say(&["INFO", "commandstats"]).unwrap();
    let count = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(":calls=")?.split(',').next()?.parse::<u64>().ok()
    };
    (count("cmdstat_evalsha").unwrap_or(0), count("cmdstat_eval").unwrap_or(0))
}

#[tokio::test]
async fn an_uncontended_commit_is_one_command() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    committed(&*store, "a").await;
    let before = scripts(&server);
    for _ in 0..10 {
        committed(&*store, "a").await;
    }
    assert_eq!(scripts(&server), (before.0 + 10, before.1));
}

#[tokio::test]
async fn a_charge_is_one_command_also_over_several_groups_and_with_others_at_once() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    assert!(store.guarantees().charge_spans_groups);
    let keys: Vec<_> = (0..4).map(|group| Key::new(Group(group), b"meter".as_slice())).collect();
    let claims: Vec<_> =
        keys.iter().map(|key| crate::redis_charge::claim(key.clone(), 100, Take::AllOrNone(1))).collect();
    let charge = Charge { claims, memo: None };
    store.charge(charge.clone()).await.unwrap();
    let before = scripts(&server);
    let charges: Vec<_> = (0..40)
        .map(|_| {
            let (store, charge) = (store.clone(), charge.clone());
            tokio::spawn(async move { store.charge(charge).await.unwrap() })
        })
        .collect();
    for charged in charges {
        assert_eq!(charged.await.unwrap().verdict, Verdict::Charged);
    }
    assert_eq!(scripts(&server), (before.0 + 40, before.1));
    for record in store.read(keys).await.unwrap().records {
        assert_eq!(Meter::decode(&record.unwrap().value).unwrap().used(), 41);
    }
}

#[tokio::test]
async fn a_server_that_evicts_and_a_replica_are_refused() {
    let server = Redis::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await.unwrap();
    let error = open(&url(&server), Path::new("unused")).await.err().unwrap().to_string();
    assert!(error.contains("noeviction"), "{error}");
    let port = server.address.port().to_string();
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    let mut error = String::new();
    until("the replica has loaded", async || {
        error = open(&url(&replica), Path::new("unused")).await.err().unwrap().to_string();
        !error.contains("LOADING")
    })
    .await;
    assert!(error.contains("is a replica"), "{error}");
}

#[tokio::test]
async fn a_url_with_a_mistake_is_refused_without_its_password() {
    for query in ["?colour=red", "?wait=x", "/x"] {
        let url = format!("redis://user:secret@127.0.0.1:1{query}");
        let error = open(&url, Path::new("unused")).await.err().unwrap().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_paused_server_is_unknown_in_time_and_works_again_after() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    let before = committed(&*store, "a").await;
    server.process().unwrap().pause().unwrap();
    let begun = Instant::now();
    let answer = store.commit(commit([put("a", "2")])).await;
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_millis(1_900), "{:?}", begun.elapsed());
    server.process().unwrap().resume().unwrap();
    until("it works again", async || store.commit(commit([put("a", "3")])).await.is_ok()).await;
    assert!(committed(&*store, "a").await > before);
}

#[tokio::test]
async fn a_full_server_says_so_and_still_deletes() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    committed(&*store, "a").await;
    assert_eq!(server.say(&["CONFIG", "SET", "maxmemory", "1"]).unwrap(), "OK");
    let answer = store.commit(commit([put("b", "1")])).await;
    assert!(matches!(answer, Err(StoreError::NotApplied { reason: Reason::Full, .. })), "{answer:?}");
    let answer = store.commit(commit([crate::simulated::delete("a")])).await.unwrap();
    assert!(matches!(&answer, Outcome::Committed { witnessed, .. } if witnessed[0].is_some()), "{answer:?}");
}

#[tokio::test]
async fn without_the_replica_it_was_to_wait_for_a_commit_is_unknown() {
    let server = Redis::start(&[]).await.unwrap();
    let port = server.address.port().to_string();
    let mut replica = Redis::start(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    let store = store(&format!("{}?wait=1&wait_millis=500", url(&server))).await;
    until("the replica follows", async || store.commit(commit([put("a", "1")])).await.is_ok()).await;
    replica.end(true).await.unwrap();
    let answer = store.commit(commit([put("a", "2")])).await;
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
}

#[tokio::test]
async fn what_expires_is_collected_and_told() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    let mut expired = store.expirations(b""[..].into());
    store.commit(commit([crate::simulated::put_for("a", "1", 1)])).await.unwrap();
    let told = tokio::time::timeout(PATIENCE, expired.next()).await.unwrap();
    assert_eq!(told, Some(baton_store::watch::Change::Expired { key: crate::simulated::key("a") }));
    let left = server.say(&["KEYS", "*"]).unwrap();
    assert!(left.lines().all(|key| key.ends_with(":revision")), "{left}");
}

#[tokio::test]
async fn what_no_list_shows_is_collected_and_told_in_any_group_when_it_has_expired_and_not_before() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    let mut expired = store.expirations(b""[..].into());
    let names = [(7, "Lgone", 1), (200, "Lgone", 1), (7, "Lgliving", 600), (7, "Lgdeleted", 600)];
    let [gone, elsewhere, living, deleted] = names.map(|(group, name, seconds)| {
        let key = Key::new(Group(group), name.as_bytes());
        (
            key.clone(),
            Write::Put { key, value: b"1"[..].into(), ttl: Ttl::Exactly(Duration::from_secs(seconds)) },
        )
    });
    for (_, put) in [&gone, &elsewhere, &living, &deleted] {
        store.commit(commit([put.clone()])).await.unwrap();
    }
    store.commit(commit([Write::Delete { key: deleted.0 }])).await.unwrap();
    // As if it had been touched since.
    server.say(&["ZADD", "baton:ends", "1", "baton:{007}:=Lgliving"]).unwrap();
    let mut told = Vec::new();
    while told.len() < 2 {
        told.extend(tokio::time::timeout(PATIENCE, expired.next()).await.unwrap());
    }
    told.sort_by_key(|change| format!("{change:?}"));
    let expected = [gone, elsewhere].map(|(key, _)| baton_store::watch::Change::Expired { key });
    assert_eq!(told, expected);
    assert_eq!(server.say(&["KEYS", "*=Lgone"]).unwrap().trim(), "", "what is told has gone");
    // What lives longer than was noted is noted anew.
    until("the living one is all that is noted", async || {
        let noted = server.say(&["ZRANGE", "baton:ends", "0", "-1", "WITHSCORES"]).unwrap();
        let mut noted = noted.lines();
        let now_us = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
        noted.next() == Some("baton:{007}:=Lgliving")
            && noted.next().is_some_and(|expires| expires.parse::<f64>().unwrap() > now_us as f64)
            && noted.next().is_none()
    })
    .await;
    assert!(store.read(vec![living.0]).await.unwrap().records[0].is_some());
}

#[tokio::test]
async fn what_no_list_shows_is_collected_as_fast_as_a_busy_node_lets_it_expire() {
    let server = Redis::start(&[]).await.unwrap();
    // Of records that have gone: to look at each of them is all the work there is.
    let fill =
        "for number = 1, 40000 do redis.call('ZADD', 'baton:ends', 1, 'baton:{007}:=Lg' .. number) end";
    server.say(&["EVAL", fill, "0"]).unwrap();
    let _store = store(&url(&server)).await;
    let begun = Instant::now();
    until("all are looked at", async || server.say(&["ZCARD", "baton:ends"]).unwrap().trim() == "0").await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}: fewer than 5,000 a second", begun.elapsed());
}

#[tokio::test]
async fn what_no_list_shows_is_in_no_index_and_what_need_not_end_exactly_goes_by_itself() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    let second = Duration::from_secs(1);
    // As a lock's grants and memos are called.
    let put = |name, ttl| Write::Put { key: key(name), value: b"1"[..].into(), ttl };
    let writes = [put("Lgrant", Ttl::Exactly(60 * second)), put("Lememo", Ttl::AtLeast(second))];
    store.commit(commit([&writes[..], &[put("Lroster", Ttl::Forever)]].concat())).await.unwrap();
    let members = |index: &str| server.say(&["ZRANGE", index, "0", "-1"]).unwrap().trim().to_owned();
    assert_eq!(
        (members("baton:{007}:names"), members("baton:{007}:expiry")),
        ("Lroster".into(), String::new())
    );
    assert_eq!(members("baton:ends"), "baton:{007}:=Lgrant", "one index for all groups");
    // The server keeps it a little longer than it is there for anybody.
    let kept = server.say(&["PTTL", "baton:{007}:=Lememo"]).unwrap().trim().parse::<i64>().unwrap();
    assert!((1..=1_002).contains(&kept), "{kept}");
    until("it has gone", async || server.say(&["KEYS", "*=Lememo"]).unwrap().trim().is_empty()).await;
    store.commit(commit([Write::Delete { key: key("Lgrant") }])).await.unwrap();
    assert_eq!((members("baton:{007}:names"), members("baton:ends")), ("Lroster".into(), String::new()));
}

#[tokio::test]
async fn what_an_older_version_kept_in_its_indexes_is_read_and_leaves_them_when_it_expires() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    let revision = committed(&*store, "a").await;
    let expires_us =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() + 2_000_000;
    let record = format!("{0:016}{0:016}{1:016}{expires_us:016}1", revision.0, 0);
    server.say(&["SET", "baton:{007}:=Lememo", &record]).unwrap();
    server.say(&["ZADD", "baton:{007}:names", "0", "Lememo"]).unwrap();
    server.say(&["ZADD", "baton:{007}:expiry", &expires_us.to_string(), "Lememo"]).unwrap();
    // It is found, and replaced by one that goes by itself; the old one's traces go with time.
    let next = Commit {
        checks: vec![Check::At(key("Lememo"), revision)],
        writes: vec![Write::Put {
            key: key("Lememo"),
            value: b"2"[..].into(),
            ttl: Ttl::AtLeast(Duration::from_secs(3)),
        }],
    };
    assert!(matches!(store.commit(next).await.unwrap(), Outcome::Committed { .. }));
    until("no index has it any more", async || {
        let index =
            |index: &str| server.say(&["ZRANGE", &format!("baton:{{007}}:{index}"), "0", "-1"]).unwrap();
        index("names").trim() == "a" && index("expiry").trim().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_moved_to_a_new_primary_is_used_again_after_one_refusal() {
    let primary = Redis::start(&[]).await.unwrap();
    let port = primary.address.port().to_string();
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    let proxy = Proxy::start(primary.address).await.unwrap();
    let store = store(&format!("redis://{}", proxy.address())).await;
    let before = committed(&*store, "a").await;
    until("the replica has it", async || !replica.say(&["KEYS", "*=a"]).unwrap().is_empty()).await;
    // The roles change, nobody hangs up, and connections from now on lead to the new primary.
    assert_eq!(replica.say(&["REPLICAOF", "NO", "ONE"]).unwrap(), "OK");
    let port = replica.address.port().to_string();
    assert_eq!(primary.say(&["REPLICAOF", "127.0.0.1", &port]).unwrap(), "OK");
    proxy.redirect(replica.address);
    let answer = store.commit(commit([put("a", "2")])).await;
    let Err(StoreError::NotApplied { reason: Reason::Unavailable, detail }) = &answer else {
        panic!("{answer:?}")
    };
    assert!(detail.contains("READONLY"), "{detail}");
    assert!(committed(&*store, "a").await > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_to_another_server_while_it_is_used_loses_and_repeats_nothing() {
    let cluster = Cluster::start(3).await.unwrap();
    let store = store(&cluster.url()).await;
    let mut last = committed(&*store, "a").await;
    for name in 0..20 {
        committed(&*store, &name.to_string()).await;
    }
    let (slot, from) = cluster.slot("baton:{007}:revision").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move {
            // Each step is sent until it is known to have happened: then the next one builds on it.
            for step in 0.. {
                let value = step.to_string();
                let next = Commit { checks: vec![Check::At(key("a"), last)], writes: vec![put("a", &value)] };
                let before = last;
                last = loop {
                    match store.commit(next.clone()).await {
                        Ok(Outcome::Committed { revision, .. }) => break revision,
                        Ok(Outcome::Conflict { found, .. }) => {
                            let found = found[0].1.as_ref().expect("it is never deleted");
                            assert_eq!(
                                found.value[..],
                                *value.as_bytes(),
                                "step {step} is lost or came twice"
                            );
                            break found.revision;
                        }
                        Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                };
                assert!(last > before);
                if stop.load(Ordering::Acquire) {
                    return step;
                }
            }
            unreachable!("goes on until it is stopped")
        }
    });
    // Whose records stay where they are notices nothing.
    let elsewhere = Key::new(Group(8), b"b".as_slice());
    assert_ne!(cluster.slot("baton:{008}:revision").unwrap().1, from, "choose another group");
    let moving = cluster.move_slot((&slot, from), (from + 1) % 3, async || {
        let write = Write::Put { key: elsewhere.clone(), value: b"1"[..].into(), ttl: Ttl::Forever };
        let answer = store.commit(commit([write])).await;
        assert!(matches!(answer, Ok(Outcome::Committed { .. })), "{answer:?}");
    });
    moving.await.unwrap();
    let begun = Instant::now();
    committed(&*store, "after").await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    stop.store(true, Ordering::Release);
    let steps = tokio::time::timeout(PATIENCE, writer).await.expect("it goes on").unwrap();
    assert!(steps > 0);
    for name in 0..20 {
        let found = store.read(vec![key(&name.to_string())]).await.unwrap();
        assert!(found.records[0].is_some(), "{name} is lost");
    }
    assert_eq!(cluster.slot("baton:{007}:revision").unwrap().1, (from + 1) % 3);
}
