//! What is appended: in the order of calls, and nothing after what wasn't done.

use baton_core::{Bytes, COMMIT_OPERATIONS_MAX, Commit, Group, Key, Ttl, Write};
use baton_store::embedded::disk::simulated::SimulatedDisk;
use baton_store::embedded::{Embedded, Options};
use baton_store::{Reason, Store, StoreError};
use std::sync::Arc;
use tokio::sync::oneshot;

fn key(number: usize) -> Key {
    Key::new(Group(0), number.to_be_bytes())
}

fn put(number: usize, bytes: usize) -> Write {
    Write::Put { key: key(number), value: vec![7; bytes].into(), ttl: Ttl::Forever }
}

fn open(full_bytes: u64) -> Embedded {
    let options = Options { full_bytes, on_fatal: Arc::new(|_| {}), ..Options::default() };
    Embedded::open_on(Arc::new(SimulatedDisk::new(1)), options).unwrap()
}

/// In line when this returns; the answer comes when it is durable.
fn append(store: &Embedded, writes: Vec<Write>) -> oneshot::Receiver<Result<(), StoreError>> {
    let (said, heard) = oneshot::channel();
    store.appender().append(writes, |done| drop(said.send(done))).unwrap();
    heard
}

async fn value(store: &Embedded, number: usize) -> Option<Bytes> {
    store.read(vec![key(number)]).await.unwrap().records[0].as_ref().map(|record| record.value.clone())
}

#[tokio::test]
async fn more_than_a_commit_has_room_for_is_appended_in_order() {
    let store = open(u64::MAX);
    let many = 3 * COMMIT_OPERATIONS_MAX;
    let first = append(&store, (0..many).map(|number| put(number, 1)).collect());
    let second = append(&store, vec![put(0, 2), Write::Delete { key: key(1) }]);
    second.await.unwrap().unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(value(&store, 0).await.map(|value| value.len()), Some(2));
    assert_eq!((value(&store, 1).await, value(&store, many - 1).await), (None, Some([7].into())));
}

#[tokio::test]
async fn after_what_was_not_done_nothing_is_appended() {
    let store = open(10_000);
    append(&store, vec![put(0, 1)]).await.unwrap().unwrap();
    // Asked for at once, so that the second can't know what became of the first.
    let large = append(&store, vec![put(1, 20_000)]);
    let small = append(&store, vec![put(0, 2)]);
    assert!(matches!(large.await.unwrap(), Err(StoreError::NotApplied { reason: Reason::Full, .. })));
    assert!(matches!(small.await.unwrap(), Err(StoreError::NotApplied { .. })));
    assert_eq!(value(&store, 0).await, Some([7].into()));
    // What others ask for goes on.
    let commit = Commit { checks: Vec::new(), writes: vec![put(0, 2)] };
    store.commit(commit).await.unwrap();
}

#[tokio::test]
async fn only_what_always_holds_is_appended() {
    let store = open(u64::MAX);
    let touch = Write::Touch { key: key(0), ttl: std::time::Duration::from_secs(1) };
    let refused = append(&store, vec![touch]).await.unwrap();
    assert!(matches!(refused, Err(StoreError::NotApplied { reason: Reason::Invalid, .. })));
}
