//! A replica by itself: reads, writes, requests, bounds, restarts.

use super::promptly::promptly;
use baton_core::crdt::clock::DRIFT_MAX;
use baton_core::crdt::counter::Refused;
use baton_core::crdt::{Act, Actor, Edit, EditRefused, Kind, Object, counter};
use baton_engine::replica::{EDITS_MAX, Failure, Limits, Options, Replica, Request};
use baton_store::embedded::time::ManualTime;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn hits() -> Object {
    Object::plain("n", "hits")
}

pub fn add(amount: i64) -> [Edit; 1] {
    [Edit::add(&hits(), Kind::Counter, amount)]
}

pub fn count(replica: &Replica) -> i128 {
    replica.counter(&hits(), Kind::Counter).value
}

fn request(id: &str) -> Option<Request<'_>> {
    Some(Request { writer: "writer", id })
}

async fn open(directory: &tempfile::TempDir) -> Replica {
    Replica::open(directory.path(), Options::default()).await.unwrap()
}

#[tokio::test]
async fn every_kind_is_there_after_a_restart_under_a_new_actor() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(&directory).await;
    let (tags, color, cart) =
        (Object::plain("n", "tags"), Object::plain("n", "color"), Object::plain("n", "cart"));
    let field = Object::field("n", "map", "field");
    let edits = [
        add(5)[0].clone(),
        Edit::add(&hits(), Kind::GrowCounter, 2),
        Edit::insert(&tags, b"a"),
        Edit::insert(&tags, b"b"),
        Edit::put(&color, Kind::Register, b"red"),
        Edit::put(&cart, Kind::MultiValue, b"one"),
        Edit::add(&field, Kind::Counter, 7),
        Edit::insert(&field, b"x"),
    ];
    let written = replica.write(&edits, None).await.unwrap();
    assert!(replica.context().covers(&written.context()));
    let (actor, whole) = (replica.actor(), replica.whole());
    replica.close().await;
    let replica = open(&directory).await;
    assert_ne!(replica.actor(), actor);
    assert_eq!(replica.whole(), whole);
    assert_eq!(count(&replica), 5);
    assert_eq!(replica.counter(&hits(), Kind::GrowCounter).value, 2);
    let elements = replica.elements(&tags, None, 10).value;
    assert_eq!(elements.items, [b"a".as_slice().into(), b"b".as_slice().into()]);
    assert!(replica.contains(&tags, b"a").value && !replica.contains(&tags, b"c").value);
    assert_eq!(replica.register(&color).value.as_deref(), Some(b"red".as_slice()));
    assert_eq!(replica.values(&cart).value, [b"one".as_slice().into()]);
    let map = replica.map("n", "map", None, 10).value;
    assert_eq!(map.items.len(), 2);
    assert_eq!(counter::value(&map.items[0].1), 7);
    assert!(!map.more && replica.map("n", "map", None, 1).value.more);
    // What was written before goes on under the new actor.
    replica.write(&add(-1), None).await.unwrap();
    replica.write(&[Edit::remove(&tags, b"a", None)], None).await.unwrap();
    assert_eq!(count(&replica), 4);
    assert_eq!(replica.elements(&tags, None, 10).value.items.len(), 1);
}

#[tokio::test]
async fn a_retried_write_counts_once_also_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(&directory).await;
    let first = replica.write(&add(3), request("one")).await.unwrap();
    let again = replica.write(&add(3), request("one")).await.unwrap();
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(again.context(), first.context());
    assert_eq!(replica.write(&add(4), request("one")).await, Err(Failure::RequestReused));
    // Another writer's request of the same name is another request.
    let other = Some(Request { writer: "other", id: "one" });
    replica.write(&add(3), other).await.unwrap();
    replica.close().await;
    let replica = open(&directory).await;
    let again = replica.write(&add(3), request("one")).await.unwrap();
    assert!(again.replayed);
    assert_eq!((count(&replica), again.context()), (6, first.context()));
}

#[tokio::test]
async fn a_removal_that_found_nothing_finds_nothing_when_it_is_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let (replica, tags) = (open(&directory).await, Object::plain("n", "tags"));
    let removal = [Edit::remove(&tags, b"a", None)];
    assert!(replica.write(&removal, request("r")).await.unwrap().context().is_empty());
    replica.write(&[Edit::insert(&tags, b"a")], None).await.unwrap();
    assert!(replica.write(&removal, request("r")).await.unwrap().replayed);
    assert!(replica.contains(&tags, b"a").value);
}

#[tokio::test]
async fn a_removal_takes_only_what_its_context_has_seen() {
    let directory = tempfile::tempdir().unwrap();
    let (replica, tags) = (open(&directory).await, Object::plain("n", "tags"));
    replica.write(&[Edit::insert(&tags, b"a")], None).await.unwrap();
    let seen = replica.contains(&tags, b"a").context;
    replica.write(&[Edit::insert(&tags, b"a")], None).await.unwrap();
    replica.write(&[Edit::remove(&tags, b"a", Some((*seen).clone()))], None).await.unwrap();
    assert!(replica.contains(&tags, b"a").value, "it was added again after it was read");
    let seen = replica.contains(&tags, b"a").context;
    replica.write(&[Edit::remove(&tags, b"a", Some((*seen).clone()))], None).await.unwrap();
    assert!(!replica.contains(&tags, b"a").value);
    assert_eq!(replica.size().rows, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_of_one_row_all_count() {
    let directory = tempfile::tempdir().unwrap();
    let replica = Arc::new(open(&directory).await);
    let writers: Vec<_> = (0..16)
        .map(|_| {
            let replica = replica.clone();
            tokio::spawn(async move {
                for _ in 0..25 {
                    let written = replica.write(&add(1), None).await.unwrap();
                    assert!(replica.context().covers(&written.context()), "answered before it is seen");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(count(&replica), 400);
    replica.close().await;
    assert_eq!(count(&open(&directory).await), 400);
}

#[tokio::test]
async fn all_edits_of_a_write_happen_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let (replica, tags) = (open(&directory).await, Object::plain("n", "tags"));
    let wrong = Edit { key: hits().row(Kind::GrowCounter), act: Act::Add(-1) };
    let refused = replica.write(&[Edit::insert(&tags, b"a"), wrong], None).await;
    assert_eq!(refused, Err(Failure::Refused(EditRefused::Counter(Refused::GrowsOnly))));
    let wrong = Edit { key: tags.element(Kind::Set, b"a"), act: Act::Add(1) };
    assert_eq!(replica.write(&[wrong], None).await, Err(Failure::Refused(EditRefused::WrongKind)));
    let many = vec![add(1)[0].clone(); EDITS_MAX + 1];
    assert_eq!(replica.write(&many, None).await, Err(Failure::TooLarge));
    let large = Edit::put(&tags, Kind::Register, &[0; 17 << 10]);
    assert_eq!(replica.write(&[large], None).await, Err(Failure::Refused(EditRefused::TooLarge)));
    assert_eq!((replica.size().rows, replica.context().len()), (0, 0));
    // The same row twice in one write is changed twice.
    replica.write(&[add(1)[0].clone(), add(2)[0].clone()], None).await.unwrap();
    assert_eq!(count(&replica), 3);
}

#[tokio::test]
async fn a_writer_s_own_totals_count_once_however_they_are_sent() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(&directory).await;
    let report = |added, taken| {
        let act = Act::Report { writer: Actor([7; 16]), added, taken };
        [Edit { key: hits().row(Kind::Counter), act }]
    };
    for (added, taken) in [(5, 0), (5, 0), (9, 2), (7, 1)] {
        replica.write(&report(added, taken), None).await.unwrap();
    }
    assert_eq!(count(&replica), 7);
}

#[tokio::test]
async fn a_full_set_refuses_and_takes_again_after_a_removal() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { collection_max: 2, rows_max: 3, ..Limits::default() };
    let replica = Replica::open(directory.path(), Options { limits, ..Options::default() }).await.unwrap();
    let tags = Object::plain("n", "tags");
    for element in [b"a", b"b"] {
        replica.write(&[Edit::insert(&tags, element)], None).await.unwrap();
    }
    assert_eq!(replica.write(&[Edit::insert(&tags, b"c")], None).await, Err(Failure::Full));
    replica.write(&[Edit::insert(&tags, b"a")], None).await.unwrap();
    replica.write(&[Edit::remove(&tags, b"a", None)], None).await.unwrap();
    replica.write(&[Edit::insert(&tags, b"c")], None).await.unwrap();
    replica.write(&add(1), None).await.unwrap();
    let another = [Edit::add(&Object::plain("n", "other"), Kind::Counter, 1)];
    assert_eq!(replica.write(&another, None).await, Err(Failure::Full), "three rows in all");
}

#[tokio::test]
async fn a_wall_clock_that_fell_back_refuses_registers_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let time = Arc::new(ManualTime::new(Duration::from_secs(1_000_000)));
    let options = Options { time: time.clone(), ..Options::default() };
    let replica = Replica::open(directory.path(), options.clone()).await.unwrap();
    let color = Object::plain("n", "color");
    let put = |value: &[u8]| [Edit::put(&color, Kind::Register, value)];
    replica.write(&put(b"red"), None).await.unwrap();
    // Also if no register is left that would tell.
    replica.write(&[Edit { key: color.row(Kind::Register), act: Act::Remove(None) }], None).await.unwrap();
    replica.close().await;
    time.step_wall(Duration::from_secs(1_000_000) - DRIFT_MAX - Duration::from_secs(1));
    let replica = Replica::open(directory.path(), options).await.unwrap();
    let refused = replica.write(&put(b"blue"), None).await;
    assert!(matches!(refused, Err(Failure::Refused(EditRefused::ClockSkew(_)))), "{refused:?}");
    // What needs no clock goes on.
    replica.write(&add(1), None).await.unwrap();
    time.advance(Duration::from_secs(2));
    replica.write(&put(b"blue"), None).await.unwrap();
    assert_eq!(replica.register(&color).value.as_deref(), Some(b"blue".as_slice()));
}

#[tokio::test]
async fn a_set_that_changes_a_lot_stays_in_proportion_to_what_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let (replica, tags) = (open(&directory).await, Object::plain("n", "tags"));
    for round in 0..200_u32 {
        let inserts: Vec<_> = (0..20).map(|n| Edit::insert(&tags, &(round * 20 + n).to_le_bytes())).collect();
        replica.write(&inserts, None).await.unwrap();
        let removes: Vec<_> =
            (0..20).map(|n| Edit::remove(&tags, &(round * 20 + n).to_le_bytes(), None)).collect();
        replica.write(&removes, None).await.unwrap();
    }
    assert_eq!(replica.size().rows, 0);
    assert!(replica.context().encode().len() < 32);
    assert!(super::replica_merge::rows(&replica).await.is_empty());
}

#[tokio::test]
async fn a_local_read_takes_microseconds() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(&directory).await;
    replica.write(&add(1), None).await.unwrap();
    promptly(async || {
        let since = Instant::now();
        (0..1000).for_each(|_| assert_eq!(count(&replica), 1));
        (since.elapsed() / 1000, Duration::from_micros(5))
    })
    .await;
}
