//! P4: hand-overs of one lock among 16 clients, beside etcd's lock service.

use super::Bench;
use crate::load::{self, Client};
use crate::peers::{baton, etcd};
use crate::report::{Row, Target};
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
    let ours = baton::Baton::start(bench.binary, bench.place).await?;
    let mut peer = etcd::start().await?;
    let (our_given_up, peer_given_up) = (GivenUp::new(), GivenUp::new());
    let (mut our_users, mut peer_users) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let user = baton::LockUser::connect(ours.address(), KEY, true).await?;
        our_users.push(Ours(user, our_given_up.clone()));
        let user = etcd::LockUser::connect(&peer, KEY).await?;
        peer_users.push(Theirs(user, peer_given_up.clone()));
    }
    let what = format!("P4: hand-overs, {CLIENTS} clients on one lock");
    let (our, their) = bench.in_turns(&what, our_users, peer_users).await?;
    let what = format!("hand-overs of one lock, {CLIENTS} clients, against etcd v3lock");
    bench.report.rows.push(Row::rates("P4", what, &our, &their, Some(Target::AtLeast(20.0))));
    peer.stop().await?;
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
