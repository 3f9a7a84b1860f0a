//! What is compared before all of it was: its dots have gaps around them, and nobody is told of too many.

use super::replica::{add, count};
use super::replica_merge::repair;
use super::replication::SOON;
use baton_core::crdt::sync::{Next, Reply, Request, Shown};
use baton_core::crdt::{
    Act, Actor, Change, Context, Delta, Dot, Edit, Entry, Hlc, Kind, Object, Row, RowKey,
};
use baton_engine::replica::{Failure, Limits, Options, Replica};

/// Hardly anything is told of that isn't contiguous.
fn few_gaps() -> Options {
    with_gaps(2)
}

fn with_gaps(gaps_max: usize) -> Options {
    Options { limits: Limits { gaps_max, ..Limits::default() }, ..Options::default() }
}

fn tags() -> Object {
    Object::plain("n", "tags")
}

async fn with_elements(count: u32) -> (tempfile::TempDir, Replica) {
    let directory = tempfile::tempdir().unwrap();
    let replica = Replica::open(directory.path(), Options::default()).await.unwrap();
    for n in 0..count {
        replica.write(&[Edit::insert(&tags(), &n.to_be_bytes())], None).await.unwrap();
    }
    (directory, replica)
}

/// All rows are compared, and then nothing follows: the other is away.
async fn compare_only(from: &Replica, to: &Replica) {
    let (mut repair, mut ask) = to.begin_repair();
    loop {
        let request = Request { from: to.actor(), number: 1, to: Some(from.actor()), ask };
        let reply = Reply::decode(&from.answer(request).await.unwrap().encode()).unwrap();
        let (shown, next) = to.take_answer(&mut repair, reply.answer).unwrap();
        for shown in shown {
            assert!(to.compare(&shown, repair.context().unwrap()).await.unwrap().is_complete());
        }
        match next {
            Next::Ask(next) => ask = next,
            Next::Same | Next::Adopt(_) => return,
        }
    }
}

#[tokio::test]
async fn what_was_compared_is_read_and_removed_and_stays_over_a_restart_before_it_is_told_of() {
    let (_kept, from) = with_elements(20).await;
    let directory = tempfile::tempdir().unwrap();
    let to = Replica::open(directory.path(), few_gaps()).await.unwrap();
    compare_only(&from, &to).await;
    assert!(to.context().len() < 10, "most may not be told of yet");
    let read = to.elements(&tags(), None, 5);
    assert_eq!((read.value.items.len(), to.size().rows), (5, 20));
    assert!(
        read.context.len() < 15
            && (1..=5).all(|number| read.context.contains(Dot { actor: from.actor(), number }))
    );
    // Also with one that says so, at once: nobody would tell of it later.
    let again = tokio::time::timeout(SOON, to.after(&read.context)).await;
    assert!(again.is_ok() && to.has_seen(&read.context), "it has read that itself");
    // What was read is what a removal with its context removes.
    let seen = Some((*read.context).clone());
    for n in [0_u32, 9] {
        to.write(&[Edit::remove(&tags(), &n.to_be_bytes(), seen.clone())], None).await.unwrap();
    }
    to.close().await;
    let to = Replica::open(directory.path(), few_gaps()).await.unwrap();
    let has = |replica: &Replica, n: u32| replica.contains(&tags(), &n.to_be_bytes()).value;
    assert!(!has(&to, 0) && has(&to, 9) && has(&to, 19));
    to.write(&[Edit::remove(&tags(), &19_u32.to_be_bytes(), None)], None).await.unwrap();
    from.write(&[Edit::remove(&tags(), &7_u32.to_be_bytes(), None)], None).await.unwrap();
    repair(&from, &to).await;
    repair(&to, &from).await;
    assert_eq!(from.whole(), to.whole());
    for n in 0..20 {
        assert_eq!(has(&from, n), ![0, 7, 19].contains(&n), "{n}");
    }
}

#[tokio::test]
async fn more_gaps_than_others_can_read_are_not_made_until_all_was_compared() {
    let (_kept, from) = with_elements(40).await;
    let (_also, to) = {
        let directory = tempfile::tempdir().unwrap();
        let to = Replica::open(directory.path(), with_gaps(4)).await.unwrap();
        (directory, to)
    };
    compare_only(&from, &to).await;
    let mut removed = 0;
    for n in (0..40_u32).step_by(2) {
        match to.write(&[Edit::remove(&tags(), &n.to_be_bytes(), None)], None).await {
            Ok(_) => removed += 1,
            Err(failure) => assert_eq!(failure, Failure::Partial),
        }
    }
    assert!((4..20).contains(&removed), "{removed}");
    assert!(to.context().span_count(from.actor()) <= 8);
    // What isn't about any of it is written all the same.
    to.write(&add(3), None).await.unwrap();
    repair(&from, &to).await;
    for n in (0..40_u32).step_by(2) {
        to.write(&[Edit::remove(&tags(), &n.to_be_bytes(), None)], None).await.unwrap();
    }
    repair(&to, &from).await;
    assert_eq!((from.whole(), from.size().rows, count(&from)), (to.whole(), 21, 3));
}

/// Rows that another shows, whatever it has seen.
pub async fn show(replica: &Replica, mut rows: Vec<(RowKey, Row)>) {
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    let shown = Shown { bucket: 0, after: None, to: None, rows, same: Default::default() };
    assert!(replica.compare(&shown, &Context::default()).await.unwrap().is_complete());
}

/// A row with these.
pub fn row(key: &RowKey, entries: Vec<(Dot, Entry)>) -> Row {
    let change = Change { key: key.clone(), added: entries, removed: Vec::new() };
    Row::default().after(&change, &Context::default())
}

#[tokio::test]
async fn what_is_taken_in_while_rows_are_gathered_is_not_forgotten() {
    const ENTRIES: u64 = 3000;
    let directory = tempfile::tempdir().unwrap();
    let replica = Replica::open(directory.path(), with_gaps(16)).await.unwrap();
    let dot = |number: u64| Dot { actor: Actor([7; 16]), number: 2 * number };
    let counter = |n: u64| {
        let key = Object::plain("n", &format!("hits {n}")).row(Kind::Counter);
        let entry = |number: u64| {
            let slot = Actor(u128::from(number).to_be_bytes());
            (dot(number), Entry::Tally { slot, added: 1, taken: 0 })
        };
        let entries = (1 + n * ENTRIES..=(n + 1) * ENTRIES).map(entry).collect();
        (key.clone(), row(&key, entries))
    };
    let element = |n: u64| {
        let key = tags().element(Kind::Set, &n.to_be_bytes());
        (key.clone(), row(&key, vec![(dot(1_000_000 + n), Entry::Member)]))
    };
    // Until what is implied was gathered from rows, with each unit.
    for n in 0..24 {
        show(&replica, vec![counter(n), element(n)]).await;
    }
    for n in 20..24_u64 {
        replica.write(&[Edit::remove(&tags(), &n.to_be_bytes(), None)], None).await.unwrap();
        assert!(!replica.contains(&tags(), &n.to_be_bytes()).value, "{n} was known");
    }
}

#[tokio::test]
async fn what_tells_of_more_gaps_than_can_be_read_back_is_not_taken_in() {
    let directory = tempfile::tempdir().unwrap();
    let replica = Replica::open(directory.path(), Options::default()).await.unwrap();
    // What was removed while it waited to be told, as one change.
    let told = |run: u8, count: u64| {
        let removed = (1..=count).map(|number| Dot { actor: Actor([run; 16]), number: 2 * number }).collect();
        let key = tags().element(Kind::Set, b"x");
        let there = (Dot { actor: Actor([run; 16]), number: 2 * count + 2 }, Entry::Member);
        Delta { changes: vec![Change { key, added: vec![there], removed }] }
    };
    assert_eq!(replica.merge(told(7, 4096)).await.unwrap().skipped, 1);
    assert!(replica.merge(told(8, 1000)).await.unwrap().is_complete());
    replica.close().await;
    let replica = Replica::open(directory.path(), Options::default()).await.unwrap();
    let context = replica.context();
    let spans = |run| context.span_count(Actor([run; 16]));
    assert_eq!((spans(7), spans(8)), (0, 1001));
    assert_eq!(Context::decode(&context.encode()).as_ref(), Ok(&*context), "others can read it");
}

/// What only the one that is lost had may still come: nobody takes it for removed.
#[tokio::test]
async fn what_was_learned_of_half_from_a_replica_that_is_lost_can_be_ended_only_in_part_until_its_copy_is_back()
 {
    let (lost, from) = with_elements(40).await;
    let gone = from.actor();
    let (directories, [to, other]) = {
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let to = Replica::open(directories[0].path(), with_gaps(4)).await.unwrap();
        let other = Replica::open(directories[1].path(), with_gaps(4)).await.unwrap();
        (directories, [to, other])
    };
    // Every second one has come when it is lost.
    let half = |n: u32| {
        let key = tags().element(Kind::Set, &n.to_be_bytes());
        (key.clone(), row(&key, vec![(Dot { actor: gone, number: u64::from(n) + 1 }, Entry::Member)]))
    };
    show(&to, (0..40).step_by(2).map(half).collect()).await;
    from.close().await;
    repair(&to, &other).await;
    repair(&other, &to).await;
    assert_eq!((to.whole(), to.size().rows, other.size().rows), (other.whole(), 20, 20));
    let mut removed = Vec::new();
    for n in (0..40_u32).step_by(2) {
        match to.write(&[Edit::remove(&tags(), &n.to_be_bytes(), None)], None).await {
            Ok(_) => removed.push(n),
            Err(failure) => assert_eq!(failure, Failure::Partial),
        }
    }
    assert!((4..20).contains(&removed.len()), "{removed:?}");
    // Retiring its run doesn't help, and loses nothing: all else is written.
    assert_eq!(to.retire(gone).await, Err(Failure::Partial));
    to.write(&add(3), None).await.unwrap();
    to.write(&[Edit::insert(&tags(), &100_u32.to_be_bytes())], None).await.unwrap();
    repair(&to, &other).await;
    assert_eq!(to.whole(), other.whole());
    // A copy of its directory is found.
    let from = Replica::open(lost.path(), Options::default()).await.unwrap();
    for replica in [&to, &other] {
        repair(&from, replica).await;
        repair(replica, &from).await;
    }
    assert!(to.retire(gone).await.is_ok());
    for replica in [&from, &other] {
        repair(&to, replica).await;
    }
    assert_eq!((to.whole(), to.whole()), (from.whole(), other.whole()));
    for n in 0..40_u32 {
        assert_eq!(to.contains(&tags(), &n.to_be_bytes()).value, !removed.contains(&n), "{n}");
    }
    drop(directories);
}

/// A counter that three replicas gave all their slots while they were apart.
#[tokio::test]
async fn whatever_is_taken_in_can_be_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let one = Replica::open(directory.path(), Options::default()).await.unwrap();
    let key = Object::plain("n", "hits").row(Kind::Counter);
    let told = |run: u8, count: u64| {
        let entry = |number: u64| {
            let mut slot = [run; 16];
            slot[8..].copy_from_slice(&number.to_be_bytes());
            (Dot { actor: Actor([run; 16]), number }, Entry::Tally { slot: Actor(slot), added: 1, taken: 0 })
        };
        let added = (1..=count).map(entry).collect();
        Delta { changes: vec![Change { key: key.clone(), added, removed: Vec::new() }] }
    };
    for run in 1..=3 {
        assert!(one.merge(told(run, 1024)).await.unwrap().is_complete());
    }
    assert!(!one.merge(told(4, 1100)).await.unwrap().is_complete(), "nobody could read it");
    let other_directory = tempfile::tempdir().unwrap();
    let other = Replica::open(other_directory.path(), Options::default()).await.unwrap();
    repair(&one, &other).await;
    one.close().await;
    let one = Replica::open(directory.path(), Options::default()).await.unwrap();
    assert_eq!((count(&one), count(&other)), (3072, 3072));
}

/// Nobody takes in what nobody could read, so nobody has all, and what others had seen is never adopted: until it is removed wherever it is.
#[tokio::test]
async fn a_counter_that_apart_became_too_large_stands_in_the_way_until_it_is_removed_at_each_replica() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let one = Replica::open(directories[0].path(), Options::default()).await.unwrap();
    let other = Replica::open(directories[1].path(), Options::default()).await.unwrap();
    let key = Object::plain("n", "hits").row(Kind::Counter);
    let told = |run: u8| {
        let entry = |number: u64| {
            let mut slot = [run; 16];
            slot[8..].copy_from_slice(&number.to_be_bytes());
            (Dot { actor: Actor([run; 16]), number }, Entry::Tally { slot: Actor(slot), added: 1, taken: 0 })
        };
        Delta {
            changes: vec![Change {
                key: key.clone(),
                added: (1..=1024).map(entry).collect(),
                removed: vec![],
            }],
        }
    };
    for run in 1..=3 {
        assert!(one.merge(told(run)).await.unwrap().is_complete());
        assert!(other.merge(told(run + 3)).await.unwrap().is_complete());
    }
    let (mut repair_of_other, mut ask) = other.begin_repair();
    let is_complete = loop {
        let request = Request { from: other.actor(), number: 1, to: Some(one.actor()), ask };
        let answer = one.answer(request).await.unwrap().answer;
        let (shown, next) = other.take_answer(&mut repair_of_other, answer).unwrap();
        let mut is_complete = true;
        for shown in shown {
            let context = repair_of_other.context().unwrap();
            is_complete &= other.compare(&shown, context).await.unwrap().is_complete();
        }
        match next {
            Next::Ask(next) => ask = next,
            _ => break is_complete,
        }
    };
    assert!(!is_complete && count(&other) == 3072, "nobody could read it");
    let remove = [Edit { key: key.clone(), act: Act::Remove(None) }];
    for replica in [&one, &other] {
        replica.write(&remove, None).await.unwrap();
    }
    repair(&one, &other).await;
    repair(&other, &one).await;
    assert_eq!((one.whole(), count(&one)), (other.whole(), 0));
    other.write(&add(1), None).await.unwrap();
    repair(&other, &one).await;
    assert_eq!(count(&one), 1);
}

/// Of so many runs that what was seen doesn't fit beside the rows of one commit.
#[tokio::test]
async fn very_many_runs_and_large_rows_are_written_in_turn() {
    const RUNS: u64 = 16_000;
    let directory = tempfile::tempdir().unwrap();
    let replica = Replica::open(directory.path(), Options::default()).await.unwrap();
    let actor = |run: u64| {
        Actor(u128::from(run).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes())
    };
    let dot = |run: u64, number| Dot { actor: actor(run), number };
    for first in (0..RUNS).step_by(1000) {
        let member = |run: u64| Change {
            key: tags().element(Kind::Set, &run.to_be_bytes()),
            added: vec![(dot(run, 1), Entry::Member)],
            removed: Vec::new(),
        };
        let delta = Delta { changes: (first..first + 1000).map(member).collect() };
        assert!(replica.merge(delta).await.unwrap().is_complete());
    }
    let register = |number: u64| Change {
        key: Object::plain("n", &format!("register {number}")).row(Kind::Register),
        added: vec![(dot(number, 2), Entry::Value { at: Hlc::default(), value: vec![7; 15 << 10].into() })],
        removed: Vec::new(),
    };
    // By runs of every part of what was seen, so that all of it is written with them.
    let of_part = |part: u8| (0..RUNS).find(|run| actor(*run).0[0] % 16 == part).unwrap();
    let writers: Vec<_> = (0..16).map(of_part).collect();
    let large = Delta { changes: writers.iter().map(|run| register(*run)).collect() };
    assert!(replica.merge(large).await.unwrap().is_complete());
    replica.write(&add(1), None).await.unwrap();
    replica.close().await;
    let replica = Replica::open(directory.path(), Options::default()).await.unwrap();
    assert_eq!((replica.size().rows, count(&replica)), (RUNS as usize + 17, 1));
    assert!(writers.iter().all(|run| replica.context().contains(dot(*run, 2))));
}
