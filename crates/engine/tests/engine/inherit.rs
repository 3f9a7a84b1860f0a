//! Replicas that start again and again: what their earlier runs counted becomes the last one's, once, and not before all others know.

use super::replica::{add, count, hits};
use super::replica_merge::rows;
use super::replication::{SOON, SYNC, World, address};
use baton_core::crdt::Kind;
use baton_core::crdt::heirs::FOLD_FROM_RUNS;
use baton_engine::replica::{Options, Replica};
use std::time::Duration;

/// Nobody asks anybody by itself.
const NEVER: Duration = Duration::from_secs(3600);

async fn slots(replica: &Replica) -> usize {
    let rows = rows(replica).await;
    let of_hits = rows.iter().find(|(key, _)| *key == hits().row(Kind::Counter));
    of_hits.map_or(0, |(_, row)| row.entries().len())
}

async fn becomes(what: &str, is_so: impl AsyncFn() -> bool) {
    let so = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, so).await.unwrap_or_else(|_| panic!("not so in time: {what}"));
}

/// Starts the first of them so often that its runs are worth taking over, and adds one in each run.
async fn start_often(world: &mut World, sync: Duration) {
    world.replicas[0].write(&add(1), None).await.unwrap();
    for start in 1..=FOLD_FROM_RUNS {
        world.restart(0, if start == FOLD_FROM_RUNS { sync } else { NEVER }).await;
        world.replicas[0].write(&add(1), None).await.unwrap();
    }
}

const STARTS: i128 = FOLD_FROM_RUNS as i128 + 1;

#[tokio::test]
async fn a_replica_alone_takes_over_what_its_earlier_runs_counted_and_says_the_same_after_a_restart() {
    let mut world = World::new(1, NEVER).await;
    start_often(&mut world, SYNC).await;
    becomes("one slot, and no claim", async || {
        slots(&world.replicas[0]).await == 1 && rows(&world.replicas[0]).await.len() == 1
    })
    .await;
    // The claims go before it is noted that there is nothing more to take over.
    becomes("nothing to take over", async || world.replicas[0].inheritance().is_empty()).await;
    assert_eq!(count(&world.replicas[0]), STARTS);
    world.restart(0, NEVER).await;
    assert_eq!(count(&world.replicas[0]), STARTS);
    assert!(world.replicas[0].inheritance().is_empty() && world.replicas[0].was_always_alone());
}

#[tokio::test]
async fn nothing_is_taken_over_while_another_replica_is_away_and_all_of_it_when_it_is_back() {
    let mut world = World::new(2, SYNC).await;
    world.network.cut.lock().unwrap().insert(address(1));
    start_often(&mut world, SYNC).await;
    let other = || world.replications[0].peers().into_iter().find(|peer| !peer.is_self).unwrap();
    becomes("it was asked in vain", async || other().failures > 5).await;
    assert_eq!(slots(&world.replicas[0]).await, FOLD_FROM_RUNS + 1);
    world.replicas[1].write(&add(100), None).await.unwrap();
    world.network.cut.lock().unwrap().clear();
    becomes("a slot for each", async || {
        slots(&world.replicas[0]).await == 2 && slots(&world.replicas[1]).await == 2
    })
    .await;
    world.equal().await;
    assert_eq!([count(&world.replicas[0]), count(&world.replicas[1])], [100 + STARTS; 2]);
    becomes("no claim is left", async || rows(&world.replicas[1]).await.len() == 1).await;
}

#[tokio::test]
async fn a_copy_of_a_directory_takes_nothing_over_that_the_original_may_take_over_too() {
    let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for _ in 0..FOLD_FROM_RUNS {
        let replica = Replica::open(original.path(), Options::default()).await.unwrap();
        replica.write(&add(1), None).await.unwrap();
        replica.close().await;
    }
    for file in std::fs::read_dir(original.path()).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let replica = Replica::open(copy.path(), Options::default()).await.unwrap();
    assert_eq!(count(&replica), FOLD_FROM_RUNS as i128);
    assert!(replica.inheritance().is_empty() && !replica.was_always_alone());
    let replica = Replica::open(original.path(), Options::default()).await.unwrap();
    assert_eq!(replica.inheritance().len(), FOLD_FROM_RUNS);
}
