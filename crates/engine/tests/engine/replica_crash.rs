//! Crashes at every point, of a disk that tears and reorders what wasn't synced.

use super::replica::{add, count};
use super::replica_merge::repair;
use baton_core::crdt::{Delta, Edit, Object};
use baton_engine::replica::{Failure, Options, Replica, Request};
use baton_store::embedded::disk::simulated::{Random, SimulatedDisk};
use baton_store::embedded::{Embedded, Options as StoreOptions};
use std::sync::Arc;

fn store(disk: &SimulatedDisk) -> Option<Embedded> {
    let options = StoreOptions {
        segment_bytes: 2 << 20,
        snapshot_bytes: 1 << 20,
        on_fatal: Arc::new(|_| {}),
        ..StoreOptions::default()
    };
    Embedded::open_on(Arc::new(disk.clone()), options).ok()
}

/// Opens a replica, unless the disk goes down meanwhile.
pub async fn open_with(disk: &SimulatedDisk, options: Options) -> Option<Replica> {
    Replica::open_on(store(disk)?, options).await.ok()
}

pub async fn up_again(disk: &SimulatedDisk) -> Replica {
    up_again_with(disk, Options::default()).await
}

pub async fn up_again_with(disk: &SimulatedDisk, options: Options) -> Replica {
    disk.crash_at(None);
    disk.restart();
    open_with(disk, options).await.expect("a disk that works")
}

#[tokio::test]
async fn a_crash_loses_nothing_acknowledged_and_a_retry_counts_once() {
    for seed in 0..8 {
        let (disk, mut random) = (SimulatedDisk::new(seed), Random::new(seed));
        let tags = Object::plain("n", "tags");
        let (mut requests, mut elements) = (0_u32, Vec::new());
        for _ in 0..4 {
            let replica = up_again(&disk).await;
            disk.crash_at(Some(disk.operations() + random.below(30)));
            loop {
                // Some at once, so that they share a commit.
                let batch: Vec<_> = (requests..requests + 5).map(|n| format!("request {n}")).collect();
                let writes: Vec<_> = batch
                    .iter()
                    .map(|id| (add(1), [Edit::insert(&tags, id.as_bytes())], id.as_str()))
                    .collect();
                let ask = async |write: &([Edit; 1], [Edit; 1], &str)| {
                    let request = |id| Some(Request { writer: "writer", id });
                    let counted = replica.write(&write.0, request(write.2)).await;
                    let inserted = replica.write(&write.1, None).await;
                    (counted.is_ok(), inserted.is_ok())
                };
                let answers: [_; 5] = tokio::join!(
                    ask(&writes[0]),
                    ask(&writes[1]),
                    ask(&writes[2]),
                    ask(&writes[3]),
                    ask(&writes[4])
                )
                .into();
                let known = answers.iter().zip(&batch).filter(|((_, inserted), _)| *inserted);
                elements.extend(known.map(|(_, id)| id.clone()));
                if answers.iter().any(|(counted, inserted)| !counted || !inserted) {
                    break;
                }
                requests += 5;
            }
            drop(replica);
            // What got no answer is sent again, with all that did.
            let replica = up_again(&disk).await;
            for number in requests..requests + 5 {
                let id = format!("request {number}");
                replica.write(&add(1), Some(Request { writer: "writer", id: &id })).await.unwrap();
            }
            requests += 5;
            assert_eq!(count(&replica), i128::from(requests), "seed {seed}");
            for element in &elements {
                assert!(replica.contains(&tags, element.as_bytes()).value, "seed {seed}: {element}");
            }
            drop(replica);
        }
    }
}

#[tokio::test]
async fn what_was_lost_in_a_crash_while_merging_does_not_count_as_seen() {
    let directory = tempfile::tempdir().unwrap();
    let source = Replica::open(directory.path(), Options::default()).await.unwrap();
    let mut told = source.changes();
    let tags = Object::plain("n", "tags");
    for round in 0..12_u8 {
        let inserts: Vec<_> = (0..30).map(|n| Edit::insert(&tags, &[round, n])).collect();
        source.write(&inserts, None).await.unwrap();
    }
    let mut all = Delta::default();
    while let Ok(change) = told.try_recv() {
        all.changes.extend(change.delta.changes.iter().cloned());
    }
    for seed in 0..30 {
        let (disk, mut random) = (SimulatedDisk::new(seed), Random::new(seed));
        let replica = up_again(&disk).await;
        disk.crash_at(Some(disk.operations() + random.below(3)));
        drop(replica.merge(all.clone()).await);
        drop(replica);
        let replica = up_again(&disk).await;
        repair(&source, &replica).await;
        assert_eq!(replica.whole(), source.whole(), "seed {seed}");
    }
}

#[tokio::test]
async fn a_disk_that_fails_answers_unknown_then_refuses_and_reads_go_on() {
    let disk = SimulatedDisk::new(1);
    let replica = up_again(&disk).await;
    replica.write(&add(1), None).await.unwrap();
    disk.fail_syncs(true);
    assert_eq!(replica.write(&add(1), None).await, Err(Failure::Unknown));
    assert_eq!(replica.write(&add(1), None).await, Err(Failure::Broken));
    assert_eq!(count(&replica), 1);
}
