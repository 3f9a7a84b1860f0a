//! What was seen is of so many runs that it doesn't fit beside the rows of one commit.

use super::replica::{add, count};
use super::replica_crash::{open_with, up_again_with};
use super::replica_gaps::{row, show};
use baton_core::crdt::{Actor, Change, Delta, Dot, Edit, Entry, Hlc, Kind, Object};
use baton_engine::replica::{Limits, Options, Replica, Request};
use baton_store::embedded::disk::simulated::SimulatedDisk;
use std::sync::Arc;

const RUNS: u64 = 16_000;
const ROUNDS: u64 = 24;
/// Dots of one run with gaps between them that are told of; what is more is only in rows.
const TOLD: u64 = 64;

fn tags() -> Object {
    Object::plain("n", "tags")
}

fn actor(run: u64) -> Actor {
    Actor(u128::from(run).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes())
}

/// Runs of every part of what was seen.
fn writers() -> Vec<Actor> {
    let of_part = |part: u8| (0..RUNS).map(actor).find(|actor| actor.0[0] % 16 == part).unwrap();
    (0..16).map(of_part).collect()
}

fn options() -> Options {
    let limits = Limits { gaps_max: TOLD as usize, ..Limits::default() };
    Options { limits, ..Options::default() }
}

/// Takes in a change of every run.
async fn widen(replica: &Replica) {
    for first in (0..RUNS).step_by(1000) {
        let member = |run: u64| Change {
            key: tags().element(Kind::Set, &run.to_be_bytes()),
            added: vec![(Dot { actor: actor(run), number: 1 }, Entry::Member)],
            removed: Vec::new(),
        };
        let delta = Delta { changes: (first..first + 1000).map(member).collect() };
        assert!(replica.merge(delta).await.unwrap().is_complete());
    }
}

/// An element that a run added.
fn element(run: Actor, number: u64) -> Vec<u8> {
    [&run.0[..], &number.to_be_bytes()].concat()
}

/// What the runs added, with gaps between, for as many rounds and as many again.
async fn show_elements(replica: &Replica) {
    for writer in writers() {
        let shown = |number: u64| {
            let key = tags().element(Kind::Set, &element(writer, number));
            (key.clone(), row(&key, vec![(Dot { actor: writer, number: 2 * number + 1 }, Entry::Member)]))
        };
        show(replica, (1..TOLD + ROUNDS).map(shown).collect()).await;
    }
}

/// Writes whose commits are on their way, so that what comes next goes together.
fn occupy(replica: &Arc<Replica>, round: u64) {
    for n in 0..2 {
        let replica = replica.clone();
        let name = format!("busy {round} {n}");
        tokio::spawn(async move { replica.write(&[Edit::insert(&tags(), name.as_bytes())], None).await });
    }
}

/// Sets as many registers as fill a commit.
fn large_puts() -> Vec<Edit> {
    let put = |n: u64| Edit::put(&Object::plain("n", &format!("register {n}")), Kind::Register, &[7; 15_900]);
    (0..15).map(put).collect()
}

fn large_merge(round: u64) -> Delta {
    let change = |(n, writer): (usize, Actor)| Change {
        key: Object::plain("n", &format!("told {n} {round}")).row(Kind::Register),
        added: vec![(
            Dot { actor: writer, number: 1_000_000 + round },
            Entry::Value { at: Hlc::default(), value: vec![7; 15 << 10].into() },
        )],
        removed: Vec::new(),
    };
    Delta { changes: writers().into_iter().enumerate().map(change).collect() }
}

#[tokio::test]
async fn a_request_counts_once_whatever_it_shared_a_commit_with() {
    let disk = SimulatedDisk::new(3);
    let replica = open_with(&disk, options()).await.expect("a disk that works");
    widen(&replica).await;
    replica.close().await;
    for round in 0..ROUNDS / 3 {
        let replica = Arc::new(up_again_with(&disk, options()).await);
        disk.hold_syncs(true);
        occupy(&replica, round);
        let id = format!("request {round}");
        let (writing, merging) = (replica.clone(), replica.clone());
        let write =
            tokio::spawn(
                async move { writing.write(&add(1), Some(Request { writer: "writer", id: &id })).await },
            );
        let merge = tokio::spawn(async move { merging.merge(large_merge(round)).await });
        crash_soon(&disk, round).await;
        drop((write.await, merge.await, replica));
        let replica = up_again_with(&disk, options()).await;
        let id = format!("request {round}");
        replica.write(&add(1), Some(Request { writer: "writer", id: &id })).await.unwrap();
        assert_eq!(count(&replica), i128::from(round) + 1, "round {round}");
        replica.close().await;
    }
}

#[tokio::test]
async fn a_request_that_doesn_t_fit_in_one_commit_counts_once_and_what_it_removed_stays_so() {
    let disk = SimulatedDisk::new(4);
    let replica = open_with(&disk, options()).await.expect("a disk that works");
    widen(&replica).await;
    show_elements(&replica).await;
    replica.close().await;
    for round in 0..ROUNDS {
        let number = TOLD + round;
        let removed: Vec<_> = writers().into_iter().map(|run| element(run, number)).collect();
        let mut edits = large_puts();
        edits.extend(removed.iter().map(|element| Edit::remove(&tags(), element, None)));
        edits.extend(add(1));
        let id = format!("request {round}");
        let replica = Arc::new(up_again_with(&disk, options()).await);
        disk.hold_syncs(true);
        let write = tokio::spawn({
            let (replica, edits, id) = (replica.clone(), edits.clone(), id.clone());
            async move { replica.write(&edits, Some(Request { writer: "writer", id: &id })).await }
        });
        crash_soon(&disk, round).await;
        drop((write.await, replica));
        let replica = up_again_with(&disk, options()).await;
        replica.write(&edits, Some(Request { writer: "writer", id: &id })).await.unwrap();
        assert_eq!(count(&replica), i128::from(round) + 1, "round {round}");
        // Who still has it shows it again.
        show_elements(&replica).await;
        for element in &removed {
            assert!(!replica.contains(&tags(), element).value, "round {round}");
        }
        replica.close().await;
    }
}

/// What is under way gets further with every round, and then the machine goes down.
async fn crash_soon(disk: &SimulatedDisk, round: u64) {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    disk.crash_at(Some(disk.operations() + 1 + round % 8));
    disk.hold_syncs(false);
}
