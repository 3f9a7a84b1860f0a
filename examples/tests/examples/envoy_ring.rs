//! `examples/envoy/ring.yaml`, as it is but for its ports and times, between a client and three real nodes: how many checks are forwarded with
//! Envoy's ring, and without it (M3).

use super::web::{HERE, Upstream, ask, get, replaced};
use baton_client::Baton;
use baton_testkit::process::free_address;
use baton_testkit::servers::{baton::Node, envoy::Envoy, redis::Redis};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

const CONFIGURATION: &str = include_str!("../../envoy/ring.yaml");
const LIMITS: &str = include_str!("../../envoy/limits.yaml");
const KEYS: usize = 40;
const CHECKS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(30);

/// A counter's value at a node, over all its labels that contain this.
async fn counted(node: &Node, name: &str) -> u64 {
    let answer = ask(node.process().address, HERE, "GET /metrics HTTP/1.1\r\n", "").await;
    let values = answer.body.lines().filter(|line| line.starts_with(name));
    values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// What became of checks through Envoy.
struct Seen {
    forwarded: u64,
    /// How many checks came to each node.
    came: Vec<u64>,
    /// Who holds a part of each key's limit.
    holders: HashMap<String, HashSet<String>>,
}

async fn seen(configuration: &str, limits: &str) -> Seen {
    let redis = Redis::start(&[]).await.unwrap();
    let (mut nodes, mut ports) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        nodes.push(Node::with_limits(&format!("redis://{}", redis.address), limits).await.unwrap());
        ports.push(nodes.last().unwrap().process().address.port());
    }
    let baton = Baton::connect(&nodes[0].url()).await.unwrap();
    let until = Instant::now() + PATIENCE;
    while baton.ring().await.unwrap().nodes.len() < nodes.len() {
        assert!(Instant::now() < until, "the nodes don't know each other");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let upstream = Upstream::start().await;
    let port = |number: u16| format!("port_value: {number} }}");
    let by_key = free_address().unwrap().port();
    let mut text = replaced(configuration, " 0.25s", " 30s");
    let others = [(8001, by_key), (8080, upstream.address.port())];
    for (from, to) in (7117..).zip(ports).chain(others) {
        text = replaced(&text, &port(from), &port(to));
    }
    let envoy = Envoy::start(|address| replaced(&text, &port(8000), &port(address.port()))).await.unwrap();
    for _ in 0..CHECKS {
        for key in 0..KEYS {
            let answer = get(envoy.address(), HERE, &format!("X-Api-Key: key-{key}\r\n")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(answer.headers.contains_key("ratelimit"), "it was asked about: {answer:?}");
        }
    }
    let mut seen = Seen { forwarded: 0, came: Vec::new(), holders: HashMap::new() };
    for node in &nodes {
        seen.forwarded += counted(node, "baton_limit_forwards_total").await;
        seen.came.push(counted(node, "baton_envoy_descriptors_total").await);
    }
    for lease in baton.limit("edge/api_key").leases().await.unwrap().leases {
        seen.holders.entry(lease.key).or_default().insert(lease.holder);
    }
    seen
}

#[tokio::test]
async fn with_envoy_s_ring_a_key_is_decided_where_it_arrives_and_without_it_most_are_forwarded() {
    let all = (KEYS * CHECKS) as u64;
    let ring = seen(CONFIGURATION, LIMITS).await;
    assert_eq!((ring.forwarded, ring.came.iter().sum::<u64>()), (0, all));
    assert!(ring.came.iter().all(|came| *came > 0), "all nodes have some: {:?}", ring.came);
    assert!(ring.holders.len() > KEYS / 2, "most are leased: {}", ring.holders.len());
    assert!(ring.holders.values().all(|holders| holders.len() == 1), "{:?}", ring.holders);

    let random = replaced(CONFIGURATION, "lb_policy: RING_HASH", "lb_policy: ROUND_ROBIN");
    let owned = replaced(LIMITS, "mechanism: leased\n", "mechanism: owned\n");
    let without = seen(&random, &owned).await;
    // Two of three nodes don't own a key. What goes to the store instead, because its owner doesn't answer in time, isn't counted here.
    let share = without.forwarded * 100 / all;
    assert!((30..=80).contains(&share), "{share} % of {all} were forwarded");

    // Envoy's ring isn't Baton's: it sends a key to the same node each time, and to its owner as seldom as no ring does.
    let by_its_ring = seen(CONFIGURATION, &owned).await;
    let of_owned = by_its_ring.forwarded * 100 / all;
    assert!((30..=95).contains(&of_owned), "{of_owned} % of {all} were forwarded");
    println!(
        "forwarded: of a leased limit 0 % with Envoy's ring; of an owned one {share} % without it, and {of_owned} % with it: {} % hit the \
         owner directly",
        100 - of_owned
    );
}
