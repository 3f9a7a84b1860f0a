//! P4: hand-overs of one lock among 16 clients, beside etcd's lock service.

use super::Bench;
use crate::load::{self, Client, Sample};
use crate::peers::{baton, etcd};
use crate::progress;
use crate::report::{Row, Target, Unit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 16;
const KEY: &str = "handover";

/// When the holder began to give the lock up, told to whoever gets it next. There is one holder, so one cell is enough.
#[derive(Clone)]
struct GivenUp {
    began: Instant,
    nanos: Arc<AtomicU64>,
}

impl GivenUp {
    fn new() -> Self {
        Self { began: Instant::now(), nanos: Arc::default() }
    }

    fn now(&self) {
        self.nanos.store(load::nanos(self.began.elapsed()), Ordering::Relaxed);
    }

    fn since(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_nanos(self.nanos.load(Ordering::Relaxed)))
    }
}

struct Ours(baton::LockUser, GivenUp);

impl Client for Ours {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let token = self.0.acquire().await?;
        let taken = self.1.since();
        self.1.now();
        self.0.release(&token).await?;
        Ok(taken)
    }
}

struct Theirs(etcd::LockUser, GivenUp);

impl Client for Theirs {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let key = self.0.lock().await?;
        let taken = self.1.since();
        self.1.now();
        self.0.unlock(key).await?;
        Ok(taken)
    }
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let ours = baton::Baton::start(bench.binary, bench.place).await?;
    let peer = etcd::Etcd::start(bench.place).await?;
    let (our_given_up, peer_given_up) = (GivenUp::new(), GivenUp::new());
    let (mut our_users, mut peer_users) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let user = baton::LockUser::connect(ours.address(), KEY, true).await?;
        our_users.push(Ours(user, our_given_up.clone()));
        let user = etcd::LockUser::connect(peer.process.address, KEY).await?;
        peer_users.push(Theirs(user, peer_given_up.clone()));
    }
    let (mut our_samples, mut peer_samples) = (Vec::new(), Vec::new());
    for turn in 1..=turns {
        progress::say(&format!("P4: hand-overs, {CLIENTS} clients on one lock, round {turn} of {turns}"));
        let sample;
        (our_users, sample) = load::run(our_users, length).await?;
        our_samples.push(sample);
        let sample;
        (peer_users, sample) = load::run(peer_users, length).await?;
        peer_samples.push(sample);
    }
    let (our, their) = (Sample::median(&our_samples), Sample::median(&peer_samples));
    bench.report.rows.push(Row {
        id: "P4",
        what: format!("hand-overs of one lock, {CLIENTS} clients, against etcd v3lock"),
        ours: our.show(),
        peer: their.show(),
        figure: our.per_second / their.per_second,
        unit: Unit::Times,
        target: Some(Target::AtLeast(20.0)),
    });
    peer.process.stop().await?;
    ours.stop().await?;
    bench.report.methods.push((
        "P4",
        "every client acquires with `wait`, releases at once and acquires again, each on its own connection. The time \
         of a hand-over is from when the holder sends its release to when the next one has its grant. etcd: Lock and \
         Unlock in the same way, a lease a client."
            .into(),
    ));
    Ok(())
}
