//! How writes get to the disk: together, one batch behind the other, with syncs that take as long as the test wants.

use super::replica::{add, count};
use super::replica_crash::up_again;
use baton_core::crdt::{Edit, Kind, Object};
use baton_engine::replica::{Failure, Replica, Request, Written};
use baton_store::embedded::disk::simulated::SimulatedDisk;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

type Writes = JoinSet<Result<Written, Failure>>;

/// So many writes, all of which have been decided when this returns.
async fn begin(replica: &Arc<Replica>, count: usize, writes: &mut Writes) {
    for _ in 0..count {
        let replica = replica.clone();
        writes.spawn(async move { replica.write(&add(1), None).await });
    }
    // There is one thread: each time some have their turn.
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// Returns once another sync than those before has begun.
async fn sync_begins(disk: &SimulatedDisk, before: u64) {
    let begun = async {
        while disk.syncs() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), begun).await.expect("what is written is synced");
}

/// A replica with one write that is being synced, and takes.
async fn with_one_under_way(disk: &SimulatedDisk) -> (Arc<Replica>, Writes) {
    let (replica, mut writes) = (Arc::new(up_again(disk).await), JoinSet::new());
    let before = disk.syncs();
    disk.hold_syncs(true);
    begin(&replica, 1, &mut writes).await;
    sync_begins(disk, before).await;
    (replica, writes)
}

#[tokio::test]
async fn nobody_reads_a_write_before_it_is_durable() {
    let disk = SimulatedDisk::new(1);
    let replica = Arc::new(up_again(&disk).await);
    let (mut told, mut writes, before) = (replica.changes(), Writes::new(), disk.syncs());
    disk.hold_syncs(true);
    begin(&replica, 1, &mut writes).await;
    sync_begins(&disk, before).await;
    assert_eq!(count(&replica), 0);
    assert!(replica.context().is_empty() && told.try_recv().is_err());
    disk.hold_syncs(false);
    let written = writes.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(count(&replica), 1);
    assert_eq!(told.try_recv().unwrap().delta.context(), written.context());
}

#[tokio::test]
async fn what_comes_while_others_are_synced_goes_together() {
    let disk = SimulatedDisk::new(2);
    let (replica, mut writes) = with_one_under_way(&disk).await;
    let before = disk.syncs();
    begin(&replica, 100, &mut writes).await;
    // One more waits at the store, and the others behind it.
    assert_eq!(replica.size().pending, 99);
    disk.hold_syncs(false);
    while let Some(written) = writes.join_next().await {
        written.unwrap().unwrap();
    }
    assert_eq!(count(&replica), 101);
    assert!(disk.syncs() - before <= 2, "{} syncs of 100 writes", disk.syncs() - before);
}

#[tokio::test]
async fn whatever_is_on_its_way_when_the_disk_fails_is_unknown_and_nothing_more_is_taken() {
    let disk = SimulatedDisk::new(3);
    let (replica, mut writes) = with_one_under_way(&disk).await;
    begin(&replica, 50, &mut writes).await;
    disk.fail_syncs(true);
    disk.hold_syncs(false);
    while let Some(written) = writes.join_next().await {
        assert_eq!(written.unwrap(), Err(Failure::Unknown));
    }
    assert_eq!(replica.write(&add(1), None).await, Err(Failure::Broken));
    assert_eq!((count(&replica), replica.size().pending), (0, 0));
    tokio::time::timeout(Duration::from_secs(10), replica.close()).await.expect("nothing is waited for");
}

#[tokio::test]
async fn who_only_waits_for_a_write_that_is_lost_hears_so_too() {
    let disk = SimulatedDisk::new(5);
    let replica = Arc::new(up_again(&disk).await);
    let (before, mut writes) = (disk.syncs(), Writes::new());
    disk.hold_syncs(true);
    for _ in 0..2 {
        let replica = replica.clone();
        // The second is the same again: nothing has to be written for it.
        let request = Request { writer: "writer", id: "once" };
        writes.spawn(async move { replica.write(&add(1), Some(request)).await });
    }
    sync_begins(&disk, before).await;
    let closing = tokio::spawn({
        let replica = replica.clone();
        async move { replica.close().await }
    });
    tokio::task::yield_now().await;
    disk.fail_syncs(true);
    disk.hold_syncs(false);
    while let Some(written) = writes.join_next().await {
        assert_eq!(written.unwrap(), Err(Failure::Unknown));
    }
    tokio::time::timeout(Duration::from_secs(10), closing).await.expect("nothing is waited for").unwrap();
}

#[tokio::test]
async fn more_in_line_than_the_store_takes_at_once_goes_bit_by_bit() {
    const WRITES: usize = 4_500;
    let disk = SimulatedDisk::new(6);
    let (replica, mut writes) = with_one_under_way(&disk).await;
    for number in 0..WRITES {
        let replica = replica.clone();
        let object = Object::plain("n", &number.to_string());
        let edit = Edit::put(&object, Kind::Register, &[7; 16 << 10]);
        writes.spawn(async move { replica.write(&[edit], None).await });
    }
    for _ in 0..WRITES {
        tokio::task::yield_now().await;
    }
    assert!(replica.size().pending > WRITES - 10);
    disk.hold_syncs(false);
    while let Some(written) = writes.join_next().await {
        written.unwrap().unwrap();
    }
    assert_eq!(replica.size().rows, WRITES + 1);
}

#[tokio::test]
async fn closing_waits_for_what_is_in_line() {
    let disk = SimulatedDisk::new(4);
    let (replica, mut writes) = with_one_under_way(&disk).await;
    begin(&replica, 20, &mut writes).await;
    let closing = tokio::spawn({
        let replica = replica.clone();
        async move { replica.close().await }
    });
    tokio::task::yield_now().await;
    assert_eq!(replica.write(&add(1), None).await, Err(Failure::Busy), "it is closing");
    disk.hold_syncs(false);
    while let Some(written) = writes.join_next().await {
        written.unwrap().unwrap();
    }
    closing.await.unwrap();
    drop(replica);
    assert_eq!(count(&up_again(&disk).await), 21);
}
