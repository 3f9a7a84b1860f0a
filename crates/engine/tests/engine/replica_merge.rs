//! Two replicas that tell each other what changed, or are compared.

use super::replica::{add, count};
use baton_core::crdt::clock::DRIFT_MAX;
use baton_core::crdt::sync::{Adoption, Answer, Ask, BUCKETS, Next, Range, Reply, Request};
use baton_core::crdt::{Actor, Change, Context, Delta, Dot, Edit, Entry, Hlc, Kind, Object, Row, RowKey};
use baton_engine::replica::{EDITS_MAX, Merged, Options, Origin, Replica};
use baton_store::embedded::time::ManualTime;
use std::sync::Arc;
use std::time::Duration;

struct Pair {
    _directories: [tempfile::TempDir; 2],
    one: Replica,
    other: Replica,
}

async fn pair() -> Pair {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let one = Replica::open(directories[0].path(), Options::default()).await.unwrap();
    let other = Replica::open(directories[1].path(), Options::default()).await.unwrap();
    Pair { _directories: directories, one, other }
}

/// What replication does when deltas were missed; whether anything had to be told.
pub async fn repair(from: &Replica, to: &Replica) -> usize {
    let (mut repair, mut ask) = to.begin_repair();
    let mut told = 0;
    loop {
        let request = Request { from: to.actor(), number: 1, to: Some(from.actor()), ask };
        let reply = from.answer(Request::decode(&request.encode()).unwrap()).await.unwrap();
        let reply = Reply::decode(&reply.encode()).unwrap();
        let (shown, next) = to.take_answer(&mut repair, reply.answer).unwrap();
        for shown in shown {
            let merged = to.compare(&shown, repair.context().unwrap()).await.unwrap();
            assert!(merged.is_complete());
            told += merged.taken;
        }
        match next {
            Next::Ask(next) => ask = next,
            Next::Same => return told,
            Next::Adopt(adoption) => {
                to.adopt(adoption).await.unwrap();
                return told;
            }
        }
    }
}

/// Everything a replica shows to others.
pub async fn rows(replica: &Replica) -> Vec<(RowKey, Row)> {
    let mut rows = Vec::new();
    for bucket in 0..BUCKETS {
        let range = Range { bucket, after: None, to: None, known: vec![] };
        let ask = Ask::Rows { context: 0, ranges: vec![range] };
        let request = Request { from: replica.actor(), number: 1, to: None, ask };
        let Answer::Pages { pages, .. } = replica.answer(request).await.unwrap().answer else {
            unreachable!()
        };
        rows.extend(pages.into_iter().flat_map(|page| page.rows));
    }
    rows
}

#[tokio::test]
async fn deltas_make_replicas_equal_in_any_order_and_again() {
    let Pair { one, other, .. } = pair().await;
    let mut told = one.changes();
    let tags = Object::plain("n", "tags");
    one.write(&add(5), None).await.unwrap();
    one.write(&[Edit::insert(&tags, b"a"), Edit::insert(&tags, b"b")], None).await.unwrap();
    let removed = one.write(&[Edit::remove(&tags, b"a", None)], None).await.unwrap();
    other.write(&add(2), None).await.unwrap();
    let mut deltas = Vec::new();
    while let Ok(change) = told.try_recv() {
        assert_eq!(change.origin, Origin::Local);
        deltas.push(Delta::decode(&change.delta.encode()).unwrap());
    }
    assert_eq!(deltas.len(), 3);
    let mut heard = other.changes();
    assert!(!other.context().covers(&removed.context()));
    for delta in deltas.iter().rev() {
        other.merge(delta.clone()).await.unwrap();
    }
    assert_eq!(heard.try_recv().unwrap().origin, Origin::Merged);
    // The removal is seen although it left nothing, and nothing brings back what it removed.
    other.after(&removed.context()).await;
    assert_eq!(other.merge(deltas[1].clone()).await.unwrap(), Merged::default());
    assert_eq!(other.elements(&tags, None, 9).value.items, [b"b".as_slice().into()]);
    assert_eq!((count(&one), count(&other)), (5, 7));
}

#[tokio::test]
async fn a_read_after_a_context_waits_until_it_was_told_that_much() {
    let Pair { one, other, .. } = pair().await;
    let mut told = one.changes();
    let written = one.write(&add(5), None).await.unwrap();
    let delta = told.recv().await.unwrap().delta.clone();
    let (value, merged) = tokio::join!(
        async {
            other.after(&written.context()).await;
            count(&other)
        },
        async {
            assert_eq!(count(&other), 0);
            other.merge(delta).await.unwrap()
        }
    );
    assert_eq!((value, merged.taken), (5, 1));
}

#[tokio::test]
async fn comparing_repairs_whatever_was_missed_removals_too() {
    let Pair { one, other, .. } = pair().await;
    let tags = Object::plain("n", "tags");
    for round in 0..10_u8 {
        let inserts: Vec<_> = (0..30).map(|n| Edit::insert(&tags, &[round, n])).collect();
        one.write(&inserts, None).await.unwrap();
    }
    repair(&one, &other).await;
    assert_eq!(other.whole(), one.whole());
    // Apart: each removes and adds, and nobody is told.
    let removes: Vec<_> = (0..30).map(|n| Edit::remove(&tags, &[3, n], None)).collect();
    one.write(&removes, None).await.unwrap();
    one.write(&add(5), None).await.unwrap();
    other.write(&[Edit::insert(&tags, &[3, 7])], None).await.unwrap();
    other.write(&[Edit::remove(&tags, &[4, 4], None)], None).await.unwrap();
    other.write(&add(2), None).await.unwrap();
    assert!(repair(&one, &other).await > 0);
    assert!(repair(&other, &one).await > 0);
    assert_eq!(one.whole(), other.whole());
    assert_eq!(repair(&one, &other).await, 0);
    assert!(one.contains(&tags, &[3, 7]).value, "added while it was removed elsewhere");
    assert!(!one.contains(&tags, &[4, 4]).value && !other.contains(&tags, &[3, 8]).value);
    assert_eq!((count(&one), one.size().rows), (7, 300 - 30 + 1 - 1 + 1));
}

#[tokio::test]
async fn a_directory_restored_from_an_old_copy_loses_nothing_that_others_have() {
    let directory = tempfile::tempdir().unwrap();
    let Pair { other, .. } = pair().await;
    let (tags, color) = (Object::plain("n", "tags"), Object::plain("n", "color"));
    let one = Replica::open(directory.path(), Options::default()).await.unwrap();
    one.write(&add(5), None).await.unwrap();
    one.write(&[Edit::insert(&tags, b"a"), Edit::insert(&tags, b"b"), Edit::insert(&tags, b"c")], None)
        .await
        .unwrap();
    one.write(&[Edit::put(&color, Kind::Register, b"red")], None).await.unwrap();
    one.close().await;
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let one = Replica::open(directory.path(), Options::default()).await.unwrap();
    one.write(&add(10), None).await.unwrap();
    one.write(&[Edit::remove(&tags, b"a", None)], None).await.unwrap();
    one.write(&[Edit::put(&color, Kind::Register, b"blue")], None).await.unwrap();
    repair(&one, &other).await;
    other.write(&[Edit::remove(&tags, b"b", None)], None).await.unwrap();
    drop(one);
    let restored = Replica::open(copy.path(), Options::default()).await.unwrap();
    // Before it has heard of anything: it still has what was removed, and what the register was.
    assert_eq!(restored.elements(&tags, None, 9).value.items.len(), 3);
    restored.write(&add(100), None).await.unwrap();
    restored.write(&[Edit::insert(&tags, b"d")], None).await.unwrap();
    repair(&restored, &other).await;
    repair(&other, &restored).await;
    assert_eq!((count(&other), count(&restored)), (115, 115));
    for replica in [&other, &restored] {
        assert_eq!(
            replica.elements(&tags, None, 9).value.items,
            [b"c".as_slice().into(), b"d".as_slice().into()]
        );
        assert_eq!(replica.register(&color).value.as_deref(), Some(b"blue".as_slice()));
    }
    assert_eq!(other.whole(), restored.whole());
}

#[tokio::test]
async fn a_change_from_the_future_waits_and_holds_nothing_else_up() {
    let directory = tempfile::tempdir().unwrap();
    let time = Arc::new(ManualTime::new(Duration::from_secs(1_000_000)));
    let options = Options { time: time.clone(), ..Options::default() };
    let replica = Replica::open(directory.path(), options).await.unwrap();
    let color = Object::plain("n", "color");
    let ahead = DRIFT_MAX + Duration::from_secs(10);
    let at = Hlc { ms: (Duration::from_secs(1_000_000) + ahead).as_millis() as u64, count: 0 };
    let dot = |number| Dot { actor: Actor([9; 16]), number };
    let value = b"red".as_slice().into();
    let early = Change {
        key: color.row(Kind::Register),
        added: vec![(dot(1), Entry::Value { at, value })],
        removed: vec![],
    };
    let tally = Entry::Tally { slot: Actor([9; 16]), added: 4, taken: 0 };
    let near = Change {
        key: super::replica::hits().row(Kind::Counter),
        added: vec![(dot(2), tally)],
        removed: vec![],
    };
    let delta = Delta { changes: vec![early, near] };
    let merged = replica.merge(delta.clone()).await.unwrap();
    assert_eq!(merged, Merged { taken: 1, held: 1, skipped: 0 });
    assert!(!merged.is_complete());
    replica.merge(delta).await.unwrap();
    assert_eq!((count(&replica), replica.size().held), (4, 1));
    assert_eq!(replica.register(&color).value, None);
    // Its own clock was not dragged along.
    replica.write(&[Edit::put(&color, Kind::Register, b"blue")], None).await.unwrap();
    time.advance(Duration::from_secs(10));
    replica.after(&[dot(1)].into_iter().collect()).await;
    assert_eq!(replica.register(&color).value.as_deref(), Some(b"red".as_slice()));
    assert_eq!(replica.size().held, 0);
}

/// Something is badly wrong with a clock, and memory has a bound.
#[tokio::test]
async fn only_so_many_changes_from_the_future_are_held_and_the_others_come_when_it_is_their_time() {
    const HELD_MAX: usize = 1024;
    const MORE: usize = 20;
    let [directory, theirs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let time = Arc::new(ManualTime::new(Duration::from_secs(1_000_000)));
    let options = Options { time: time.clone(), ..Options::default() };
    let replica = Replica::open(directory.path(), options).await.unwrap();
    let fast = Arc::new(ManualTime::new(Duration::from_secs(1_000_000) + 2 * DRIFT_MAX));
    let fast = Replica::open(theirs.path(), Options { time: fast, ..Options::default() }).await.unwrap();
    let mut told = fast.changes();
    let colors: Vec<_> = (0..HELD_MAX + MORE).map(|n| Object::plain("n", &format!("color {n}"))).collect();
    for colors in colors.chunks(EDITS_MAX) {
        let puts: Vec<_> = colors.iter().map(|color| Edit::put(color, Kind::Register, b"red")).collect();
        fast.write(&puts, None).await.unwrap();
    }
    let (mut held, mut skipped) = (0, 0);
    while let Ok(told) = told.try_recv() {
        let merged = replica.merge(told.delta.clone()).await.unwrap();
        (held, skipped) = (held + merged.held, skipped + merged.skipped);
    }
    assert_eq!((held, skipped), (HELD_MAX, MORE));
    assert_eq!((replica.size().held, replica.size().rows), (HELD_MAX, 0));
    assert!(replica.context().is_empty(), "it will be told again");
    time.advance(2 * DRIFT_MAX);
    repair(&fast, &replica).await;
    assert_eq!((replica.whole(), replica.size().rows), (fast.whole(), HELD_MAX + MORE));
    // What was held is known by now, and goes.
    let gone = async {
        while replica.size().held > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::replication::SOON, gone).await.expect("nothing is held for ever");
}

/// It was only cut off when it was taken for dead, and what it wrote then nobody had heard of.
#[tokio::test]
async fn a_run_that_is_retired_too_early_comes_with_what_it_had_and_can_be_retired_again() {
    let Pair { one, other, .. } = pair().await;
    let directory = tempfile::tempdir().unwrap();
    let cut = Replica::open(directory.path(), Options::default()).await.unwrap();
    let (tags, color, gone) = (Object::plain("n", "tags"), Object::plain("n", "color"), cut.actor());
    cut.write(&[Edit::insert(&tags, b"heard of"), Edit::put(&color, Kind::Register, b"red")], None)
        .await
        .unwrap();
    cut.write(&add(1), None).await.unwrap();
    repair(&cut, &one).await;
    cut.write(&[Edit::insert(&tags, b"unheard of"), Edit::put(&color, Kind::Register, b"blue")], None)
        .await
        .unwrap();
    cut.write(&add(10), None).await.unwrap();
    cut.close().await;
    assert_eq!(one.retire(gone).await.unwrap(), 2);
    let back = Replica::open(directory.path(), Options::default()).await.unwrap();
    assert_ne!(back.actor(), gone);
    for _ in 0..2 {
        for (from, to) in [(&back, &one), (&one, &other), (&other, &back), (&one, &back)] {
            repair(from, to).await;
        }
    }
    assert_eq!((one.whole(), one.whole()), (back.whole(), other.whole()));
    // All of it, and once.
    assert_eq!((count(&one), one.elements(&tags, None, 9).value.items.len()), (11, 2));
    assert_eq!(one.register(&color).value.as_deref(), Some(b"blue".as_slice()));
    one.retire(gone).await.unwrap();
    for to in [&other, &back] {
        repair(&one, to).await;
    }
    for replica in [&one, &other, &back] {
        assert_eq!((count(replica), replica.elements(&tags, None, 9).value.items.len()), (11, 2));
        assert_eq!(replica.register(&color).value.as_deref(), Some(b"blue".as_slice()));
        let rows = rows(replica).await;
        let of_it = rows.iter().filter(|(_, row)| row.dots().any(|dot| dot.actor == gone));
        // Only its total, which nobody else may move.
        assert!(of_it.clone().all(|(key, _)| key.kind() == Kind::Counter), "{:?}", of_it.collect::<Vec<_>>());
        assert!(replica.runs().iter().any(|run| run.actor == gone && run.is_retired));
    }
}

#[tokio::test]
async fn dots_that_this_run_never_made_are_not_believed() {
    let Pair { one, other, .. } = pair().await;
    let dot = Dot { actor: one.actor(), number: 1 };
    let tally = Entry::Tally { slot: one.actor(), added: 4, taken: 0 };
    let key = super::replica::hits().row(Kind::Counter);
    let delta = Delta { changes: vec![Change { key, added: vec![(dot, tally)], removed: vec![] }] };
    assert_eq!(one.merge(delta.clone()).await.unwrap().skipped, 1);
    other.merge(delta).await.unwrap();
    let adoption = Adoption { context: other.context(), known: Context::default() };
    assert!(one.adopt(adoption).await.is_err());
    one.write(&add(1), None).await.unwrap();
    assert_eq!(count(&one), 1);
}

#[tokio::test]
async fn rows_let_go_of_runs_that_are_over_and_say_what_they_said() {
    let directory = tempfile::tempdir().unwrap();
    let Pair { other, .. } = pair().await;
    let tags = Object::plain("n", "tags");
    let mut old = Vec::new();
    for run in 0..3_u8 {
        let replica = Replica::open(directory.path(), Options::default()).await.unwrap();
        let inserts: Vec<_> = (0..30).map(|n| Edit::insert(&tags, &[run, n])).collect();
        replica.write(&inserts, None).await.unwrap();
        replica.write(&add(5), None).await.unwrap();
        old.push(replica.actor());
        replica.close().await;
    }
    let replica = Replica::open(directory.path(), Options::default()).await.unwrap();
    repair(&replica, &other).await;
    let (mut renewed_rows, mut after) = (0, None);
    loop {
        let renewed = replica.renew(|actor| old.contains(&actor), after.as_ref()).await.unwrap();
        renewed_rows += renewed.rows;
        after = renewed.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(renewed_rows, 90);
    repair(&replica, &other).await;
    for one in [&replica, &other] {
        assert_eq!((count(one), one.elements(&tags, None, 100).value.items.len()), (15, 90));
        // A counter's slots stay: only their heir may end them.
        let rows: Vec<_> = rows(one).await.into_iter().filter(|(key, _)| key.kind() == Kind::Set).collect();
        assert!(rows.iter().flat_map(|(_, row)| row.dots()).all(|dot| dot.actor == replica.actor()));
    }
}
