//! Replicas that tell and ask each other by themselves, over a network that is cut, loses and is late.

use super::promptly::promptly;
use super::replica::{add, count};
use baton_core::Bytes;
use baton_core::crdt::sync::{Ask, Next, Request};
use baton_core::crdt::{Edit, Kind, Object};
use baton_engine::replica::{EDITS_MAX, Options as ReplicaOptions, Replica};
use baton_engine::replication::{Answering, Lane, Metrics, NoAnswer, Options, Replication, Wire};
use baton_store::embedded::{Embedded, Options as StoreOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

pub const SYNC: Duration = Duration::from_millis(20);
pub const SOON: Duration = Duration::from_secs(20);

/// Replicas by address, and which are cut off.
#[derive(Default)]
pub struct Network {
    replicas: Mutex<BTreeMap<String, Arc<Replica>>>,
    pub cut: Mutex<BTreeSet<String>>,
    /// Nobody answers anything, and nobody says that.
    hangs: Mutex<bool>,
    /// Nobody can be told anything: what is missed has to be asked for.
    is_deaf: Mutex<bool>,
    bytes: AtomicU64,
    rows_asked: AtomicU64,
}

/// The network as one of them sees it.
struct End {
    at: String,
    network: Arc<Network>,
}

impl Wire for End {
    fn exchange<'a>(&'a self, address: &'a str, lane: Lane, request: &'a [u8]) -> Answering<'a> {
        Box::pin(async move {
            let away = || NoAnswer("cut".into());
            if *self.network.hangs.lock().unwrap() {
                std::future::pending::<()>().await;
            }
            let is_cut = |place: &str| self.network.cut.lock().unwrap().contains(place);
            if is_cut(address)
                || is_cut(&self.at)
                || (lane == Lane::Push && *self.network.is_deaf.lock().unwrap())
            {
                return Err(away());
            }
            let replica = self.network.replicas.lock().unwrap().get(address).cloned().ok_or_else(away)?;
            let asked = Request::decode(request).unwrap();
            if matches!(asked.ask, Ask::Rows { .. }) {
                self.network.rows_asked.fetch_add(1, Ordering::Relaxed);
            }
            let reply = replica.answer(asked).await.map_err(|failure| NoAnswer(failure.to_string()))?;
            let reply: Bytes = reply.encode();
            self.network.bytes.fetch_add((request.len() + reply.len()) as u64, Ordering::Relaxed);
            if is_cut(address) || is_cut(&self.at) { Err(away()) } else { Ok(reply) }
        })
    }
}

pub struct World {
    pub network: Arc<Network>,
    directories: Vec<tempfile::TempDir>,
    pub replicas: Vec<Arc<Replica>>,
    pub replications: Vec<Replication>,
}

pub fn address(at: usize) -> String {
    format!("replica-{at}:1")
}

impl World {
    pub async fn new(count: usize, sync: Duration) -> Self {
        let network = Arc::new(Network::default());
        let directories: Vec<_> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut world = Self { network, directories, replicas: Vec::new(), replications: Vec::new() };
        for at in 0..count {
            let directory = world.directories[at].path();
            let replica = Arc::new(Replica::open(directory, ReplicaOptions::default()).await.unwrap());
            world.network.replicas.lock().unwrap().insert(address(at), replica.clone());
            world.replicas.push(replica);
        }
        for at in 0..count {
            let replication = world.replicate(at, sync);
            world.replications.push(replication);
        }
        world
    }

    fn replicate(&self, at: usize, sync: Duration) -> Replication {
        let all = (0..self.directories.len()).map(|other| Arc::from(address(other)));
        // Its own address among them, as a name for all of them has it.
        let (_, peers) = watch::channel(all.collect());
        let wire = Arc::new(End { at: address(at), network: self.network.clone() });
        let options = Options { sync, metrics: Metrics::default(), ..Options::default() };
        Replication::start(self.replicas[at].clone(), wire, options, peers)
    }

    /// Ends one's run and begins another.
    pub async fn restart(&mut self, at: usize, sync: Duration) {
        self.replications[at].stop();
        self.network.replicas.lock().unwrap().remove(&address(at));
        self.replicas[at].close().await;
        let directory = self.directories[at].path();
        self.replicas[at] = Arc::new(Replica::open(directory, ReplicaOptions::default()).await.unwrap());
        self.network.replicas.lock().unwrap().insert(address(at), self.replicas[at].clone());
        self.replications[at] = self.replicate(at, sync);
    }

    fn are_equal(&self) -> bool {
        self.replicas.iter().all(|replica| replica.whole() == self.replicas[0].whole())
    }

    pub async fn equal(&self) {
        let equal = async {
            while !self.are_equal() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(SOON, equal).await.expect("they become equal");
    }
}

#[tokio::test]
async fn a_write_is_told_to_all_others_as_it_happens_and_costs_little() {
    // Nobody asks in the meantime.
    let world = World::new(3, Duration::from_secs(3600)).await;
    let tags = Object::plain("n", "tags");
    let written = world.replicas[0].write(&[Edit::insert(&tags, b"element")], None).await.unwrap();
    for other in &world.replicas[1..] {
        tokio::time::timeout(SOON, other.after(&written.context())).await.expect("it is told");
        assert!(other.contains(&tags, b"element").value);
    }
    let told = async {
        while world.replications[0].peers().iter().any(|peer| peer.behind > 0) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let told = tokio::time::timeout(SOON, told).await;
    assert!(told.is_ok(), "who has it is known: {:?}", world.replications[0].peers());
    let peers = world.replications[0].peers();
    assert_eq!(peers.iter().filter(|peer| peer.is_self).count(), 1);
    assert!(peers.iter().all(|peer| peer.lag.is_none() && peer.dropped == 0));
}

#[tokio::test]
async fn what_was_missed_while_cut_off_is_asked_for_and_the_lag_is_shown() {
    let world = World::new(3, SYNC).await;
    world.replicas[0].write(&add(1), None).await.unwrap();
    world.equal().await;
    world.network.cut.lock().unwrap().insert(address(2));
    for replica in &world.replicas {
        replica.write(&add(10), None).await.unwrap();
    }
    let noticed = async {
        let lags =
            || world.replications[0].peers().iter().any(|peer| !peer.is_reachable && peer.lag.is_some());
        while !lags() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, noticed).await.expect("the lag shows");
    assert_eq!(count(&world.replicas[2]), 11);
    world.network.cut.lock().unwrap().clear();
    world.equal().await;
    assert_eq!(world.replicas.iter().map(|replica| count(replica)).collect::<Vec<_>>(), [31; 3]);
}

/// What one run wrote comes in the order of buckets, so for a while nearly everything that was seen has gaps around it.
#[tokio::test]
async fn a_new_replica_takes_in_whatever_many_rows_another_one_wrote() {
    let world = World::new(2, SYNC).await;
    world.network.cut.lock().unwrap().insert(address(1));
    let tags = Object::plain("n", "tags");
    for first in (0..12_000_u32).step_by(EDITS_MAX) {
        let elements = (first..first + EDITS_MAX as u32).map(|n| Edit::insert(&tags, &n.to_be_bytes()));
        world.replicas[0].write(&elements.collect::<Vec<_>>(), None).await.unwrap();
    }
    world.network.cut.lock().unwrap().clear();
    world.equal().await;
    assert_eq!(world.replicas[1].size().rows, 12_000);
}

#[tokio::test]
async fn replicas_that_are_equal_say_little_and_one_difference_is_found_for_few_bytes() {
    let world = World::new(2, SYNC).await;
    let tags = Object::plain("n", "tags");
    for round in 0..200_u32 {
        let inserts: Vec<_> = (0..40).map(|n| Edit::insert(&tags, &(round * 40 + n).to_be_bytes())).collect();
        world.replicas[0].write(&inserts, None).await.unwrap();
    }
    world.equal().await;
    *world.network.is_deaf.lock().unwrap() = true;
    let rounds = || -> u64 {
        world.replications.iter().map(|one| one.peers().iter().map(|peer| peer.rounds).sum::<u64>()).sum()
    };
    let ten_more = async || {
        let begun = rounds();
        let more = async {
            while rounds() < begun + 10 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(SOON, more).await.expect("rounds go on");
    };
    // Those that began before they were equal are over then.
    ten_more().await;
    let asked = world.network.rows_asked.load(Ordering::Relaxed);
    let (bytes, begun) = (world.network.bytes.load(Ordering::Relaxed), rounds());
    ten_more().await;
    let idle = (world.network.bytes.load(Ordering::Relaxed) - bytes) / (rounds() - begun);
    assert!(idle < 150, "{idle} bytes a round though nothing is different");
    assert_eq!(world.network.rows_asked.load(Ordering::Relaxed), asked);
    let before = world.network.bytes.load(Ordering::Relaxed);
    let begun = rounds();
    world.replicas[0].write(&[Edit::insert(&tags, b"one more")], None).await.unwrap();
    world.equal().await;
    let taken = world.network.bytes.load(Ordering::Relaxed) - before - idle * (rounds() - begun);
    assert!(taken < 4096, "{taken} bytes for one element among 8,000");
}

#[tokio::test]
async fn a_write_does_not_wait_for_a_replica_that_hangs() {
    let world = World::new(2, SYNC).await;
    *world.network.hangs.lock().unwrap() = true;
    promptly(async || {
        let started = std::time::Instant::now();
        for _ in 0..20 {
            world.replicas[0].write(&add(1), None).await.unwrap();
        }
        (started.elapsed(), Duration::from_secs(2))
    })
    .await;
}

/// What it takes to tell an empty replica everything.
async fn bytes_on_the_wire(from: &Replica) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let to = Replica::open(directory.path(), ReplicaOptions::default()).await.unwrap();
    let (mut repair, mut ask) = to.begin_repair();
    let mut bytes = 0;
    loop {
        let request = Request { from: to.actor(), number: 1, to: None, ask };
        let reply = from.answer(request.clone()).await.unwrap();
        bytes += (request.encode().len() + reply.encode().len()) as u64;
        let (shown, next) = to.take_answer(&mut repair, reply.answer).unwrap();
        for shown in shown {
            to.compare(&shown, repair.context().unwrap()).await.unwrap();
        }
        match next {
            Next::Ask(next) => ask = next,
            Next::Same => return bytes,
            Next::Adopt(adoption) => {
                to.adopt(adoption).await.unwrap();
                assert_eq!(to.whole(), from.whole());
                return bytes;
            }
        }
    }
}

/// Of a log, before the next part begins.
const SEGMENT_BYTES: u64 = 2 << 20;

/// A set with a thousand elements, of which `cycles` were removed and added again; what it takes on the wire, in a snapshot, and in the whole
/// directory, with the log since.
async fn churned(cycles: u32) -> (u64, u64, u64) {
    let directory = tempfile::tempdir().unwrap();
    let small =
        StoreOptions { segment_bytes: SEGMENT_BYTES, snapshot_bytes: 1 << 20, ..StoreOptions::default() };
    let store = Embedded::open(directory.path(), small).unwrap();
    let replica = Replica::open_on(store, ReplicaOptions::default()).await.unwrap();
    let (tags, pad) = (Object::plain("n", "tags"), Object::plain("n", "pad"));
    let name = |n: u32| format!("element-{:04}", n % 1000);
    for first in (0..1000).step_by(40) {
        let inserts: Vec<_> = (first..first + 40).map(|n| Edit::insert(&tags, name(n).as_bytes())).collect();
        replica.write(&inserts, None).await.unwrap();
    }
    for first in (0..cycles).step_by(40) {
        let removes: Vec<_> =
            (first..first + 40).map(|n| Edit::remove(&tags, name(n).as_bytes(), None)).collect();
        replica.write(&removes, None).await.unwrap();
        let inserts: Vec<_> = (first..first + 40).map(|n| Edit::insert(&tags, name(n).as_bytes())).collect();
        replica.write(&inserts, None).await.unwrap();
    }
    assert_eq!(replica.size().rows, 1000);
    assert!(replica.context().encode().len() < 64);
    let wire = bytes_on_the_wire(&replica).await;
    let snapshot = || {
        let files = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap());
        let snapshots = files.filter(|file| file.file_name().to_string_lossy().starts_with("snapshot-"));
        snapshots.map(|file| file.metadata().unwrap().len()).max()
    };
    // Until there is a snapshot of it: one is written beside the writes, when enough of them have come.
    let before = snapshot();
    let mut disk = None;
    for _ in 0..10_000 {
        replica.write(&[Edit::put(&pad, Kind::Register, &[7; 8 << 10])], None).await.unwrap();
        disk = snapshot().filter(|disk| Some(*disk) != before);
        if disk.is_some() {
            break;
        }
    }
    replica.close().await;
    let files = std::fs::read_dir(directory.path()).unwrap();
    let whole = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    (wire, disk.expect("there is a snapshot"), whole)
}

#[tokio::test]
async fn a_set_that_was_changed_over_and_over_is_as_small_as_a_new_one() {
    // More by `BATON_SET_CYCLES`.
    let cycles = std::env::var("BATON_SET_CYCLES").ok().and_then(|count| count.parse().ok()).unwrap_or(4_000);
    let ((fresh_wire, fresh_disk, fresh_whole), (wire, disk, whole)) =
        (churned(0).await, churned(cycles).await);
    let shown = format!(
        "after {cycles} cycles: {wire} bytes on the wire beside {fresh_wire}, {disk} in a snapshot beside {fresh_disk}, {whole} in the directory \
         beside {fresh_whole}"
    );
    println!("{shown}");
    assert!(wire < 2 * fresh_wire && disk < 2 * fresh_disk && whole < 2 * fresh_whole, "{shown}");
    // The log is what it is whatever was written: it goes with the next snapshot. Beside both are some small files.
    assert!(whole < disk + 3 * SEGMENT_BYTES + 4096, "{shown}");
}
