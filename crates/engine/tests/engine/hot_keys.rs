//! What is done about hot keys: who decides them, and that the limit holds however many do (M3).

use super::limits::{DAY_MS, check, definition, name};
use super::owned::Ground;
use baton_core::limit::{Definition, Mechanism, Mitigation};
use baton_core::lock::NodeId;
use baton_core::meter::Algorithm;
use baton_engine::Engine;
use baton_engine::limit::Source;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

const LIMIT: u64 = 25_000;
/// Rounds until a key is hot everywhere, at one a millisecond.
const ROUNDS: u64 = 1_200;
const QUIET: u64 = 1_000;

fn owned(hot_key: Mitigation) -> Definition {
    Definition {
        mechanism: Mechanism::Owned,
        lease_ttl_ms: Some(2_000),
        hot_key,
        ..definition(Algorithm::FixedWindow, LIMIT, DAY_MS)
    }
}

/// Checks one key often, beside quiet ones, at each of these nodes. How many were admitted.
async fn heat(nodes: &[&Engine], rounds: u64) -> u64 {
    let mut admitted = 0;
    for round in 0..rounds {
        for node in nodes {
            for _ in 0..4 {
                admitted += u64::from(check(node, "l", "k", 1).await.allowed);
            }
            check(node, "l", &format!("quiet-{}", round % QUIET), 1).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    admitted
}

/// Who holds a part of the key's limit.
async fn holders(ground: &Ground) -> BTreeSet<String> {
    let (leases, _) = ground.nodes[0].0.leases(&name("l"), 5_000).await.unwrap();
    leases.into_iter().filter(|lease| lease.key == "k").map(|lease| lease.row.owner).collect()
}

fn id(node: NodeId) -> String {
    format!("{:016x}", node.0)
}

/// Spends all there is, at every node. How much that was.
async fn spend_the_rest(ground: &Ground) -> u64 {
    let (mut rest, mut refused) = (0, 0);
    while refused < 20 {
        let mut any = false;
        for (engine, _) in &ground.nodes {
            let is_allowed = check(engine, "l", "k", 1).await.allowed;
            any |= is_allowed;
            rest += u64::from(is_allowed);
        }
        refused = if any { 0 } else { refused + 1 };
        if !any {
            // What others hold and don't spend comes back.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    rest
}

#[tokio::test(start_paused = true)]
async fn a_split_key_is_decided_by_so_many_nodes_and_never_beyond_the_limit() {
    let ground = Ground::start(4).await;
    ground.nodes[0].0.put_limit(&name("l"), owned(Mitigation::Split { parts: 2 })).await.unwrap();
    let nodes: Vec<_> = ground.nodes.iter().map(|(engine, _)| engine).collect();
    let admitted = heat(&nodes, ROUNDS).await;
    let place = baton_core::limit::meter_key(&name("l"), "k");
    let parts: BTreeSet<_> = nodes[0].ring().nearest(&place, 2).into_iter().map(id).collect();
    assert_eq!(holders(&ground).await, parts, "those hold a lease on it, and no other");
    let usage = nodes[0].usage(&name("l"), "k").await.unwrap();
    let left = usage.capacity - usage.used - usage.outstanding;
    assert_eq!(usage.remaining, left, "what its parts have used and hold is in one sum");
    assert!(usage.used + usage.outstanding >= admitted, "{usage:?}, {admitted} admitted");
    let rest = spend_the_rest(&ground).await;
    assert_eq!(admitted + rest, LIMIT, "all of it, and no more");
}

#[tokio::test(start_paused = true)]
async fn a_pinned_key_is_decided_by_the_node_kept_for_it_and_by_its_owner_if_there_is_none() {
    let mut ground = Ground::start(2).await;
    ground.nodes[0].0.put_limit(&name("l"), owned(Mitigation::Pin)).await.unwrap();
    let owner = ground.owner("k");
    let others: Vec<_> = ground.others(owner);
    let before = heat(&others, ROUNDS).await;
    assert_eq!(holders(&ground).await, BTreeSet::from([id(ground.nodes[owner].0.node())]));
    ground.join_as(true).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let kept = ground.nodes[2].0.node();
    assert!(!ground.nodes[0].0.ring().owners().contains(&kept), "it owns nothing");
    let asking: Vec<_> = ground.nodes[..2].iter().map(|(engine, _)| engine).collect();
    let after = heat(&asking, ROUNDS).await;
    assert_eq!(holders(&ground).await, BTreeSet::from([id(kept)]), "the owner has given its part back");
    let decided = check(asking[1 - owner], "l", "k", 1).await;
    assert_eq!((decided.allowed, decided.checks[0].source), (true, Source::Owner));
    assert_eq!(before + after, (4 + 8) * ROUNDS, "below the limit all pass");
    let rest = spend_the_rest(&ground).await;
    assert_eq!(before + after + 1 + rest, LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_capped_key_gets_so_many_checks_a_second_at_a_node_and_quiet_ones_all() {
    let ground = Ground::start(1).await;
    let node = &ground.nodes[0].0;
    for (limit, mechanism) in [("central", Mechanism::Central), ("owned", Mechanism::Owned)] {
        let capped = Definition { mechanism, ..owned(Mitigation::Cap { per_second: 100 }) };
        node.put_limit(&name(limit), capped).await.unwrap();
        // Until it is hot.
        for round in 0..ROUNDS {
            for _ in 0..4 {
                check(node, limit, "k", 1).await;
            }
            assert!(check(node, limit, &format!("quiet-{}", round % QUIET), 1).await.allowed);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let used = node.usage(&name(limit), "k").await.unwrap();
        let (mut admitted, began) = (0, Instant::now());
        for round in 0..3_000_u64 {
            for _ in 0..4 {
                let answered = check(node, limit, "k", 1).await;
                admitted += u64::from(answered.allowed);
                if let Some((_, denial)) = answered.refused {
                    assert_eq!(denial.reason, "hot_key_capped");
                    assert!(denial.retry_after_ms.is_some_and(|ms| (1..=1_000).contains(&ms)));
                }
            }
            assert!(check(node, limit, &format!("quiet-{}", round % QUIET), 1).await.allowed);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Of the first second a part is over, and so is all of it of what the last one may have.
        let seconds = began.elapsed().as_secs();
        assert!(
            (100 * seconds..=100 * (seconds + 2)).contains(&admitted),
            "{admitted} of {limit} in {seconds} s"
        );
        let usage = node.usage(&name(limit), "k").await.unwrap();
        let taken = usage.used + usage.outstanding - used.used - used.outstanding;
        assert!(taken <= admitted + LIMIT / 20, "what is refused isn't counted: {taken}");
        // So that the next limit is looked at by itself.
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_isn_t_hot_or_only_counted_is_not_capped() {
    let ground = Ground::start(1).await;
    let node = &ground.nodes[0].0;
    node.put_limit(&name("l"), owned(Mitigation::Cap { per_second: 1 })).await.unwrap();
    for _ in 0..100 {
        assert!(check(node, "l", "k", 1).await.allowed);
    }
    let counted = Definition { dry_run: true, ..owned(Mitigation::Cap { per_second: 1 }) };
    node.put_limit(&name("l"), counted).await.unwrap();
    assert_eq!(heat(&[node], ROUNDS).await, 4 * ROUNDS);
    assert_eq!(node.hot_keys().len(), 1, "although it is hot");
}
