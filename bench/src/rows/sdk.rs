//! P2: durable lock pairs through the SDK, which lets calls share requests, beside Redis on a shared connection.

use super::Bench;
use crate::load::{self, Client, Sample};
use crate::peers::{baton, redis};
use crate::progress;
use crate::report::{Row, Target, Unit};
use baton_client::Baton;
use baton_testkit::servers::redis::Redis;
use std::time::{Duration, Instant};

const CALLERS: usize = 64;

/// Acquire and release through the SDK, over and over.
struct Pairs {
    baton: Baton,
    key: String,
}

impl Client for Pairs {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.baton.lock(self.key.as_str()).acquire().await?.release().await?;
        Ok(began.elapsed())
    }
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let ours = baton::Baton::start(bench.binary, bench.place).await?;
    let mut peer = Redis::start(&[]).await?;
    let sdk = Baton::builder().owner(baton::OWNER).connect(format!("http://{}", ours.address())).await?;
    let connection = redis::connect(peer.address).await?;
    let keys: Vec<_> = (0..CALLERS).map(|caller| format!("sdk:{caller}")).collect();
    let mut our_users: Vec<_> =
        keys.iter().map(|key| Pairs { baton: sdk.clone(), key: key.clone() }).collect();
    let users = |recipe| {
        keys.iter().map(|key| redis::Pairs::new(connection.clone(), recipe, key)).collect::<Vec<_>>()
    };
    let (mut plain_users, mut fenced_users) = (users(redis::Recipe::Plain), users(redis::Recipe::Fenced));
    let (mut our_samples, mut plain_samples, mut fenced_samples) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 1..=turns {
        progress::say(&format!("P2: lock pairs through the SDK, {CALLERS} callers, round {turn} of {turns}"));
        let sample;
        (our_users, sample) = load::run(our_users, length).await?;
        our_samples.push(sample);
        let sample;
        (plain_users, sample) = load::run(plain_users, length).await?;
        plain_samples.push(sample);
        let sample;
        (fenced_users, sample) = load::run(fenced_users, length).await?;
        fenced_samples.push(sample);
    }
    let our = Sample::median(&our_samples);
    let recipes = [
        ("Redis AOF always, SET NX and script", Sample::median(&plain_samples), Some(Target::AtLeast(1.0))),
        ("the same with a fencing token", Sample::median(&fenced_samples), None),
    ];
    for (name, their, target) in recipes {
        bench.report.rows.push(Row {
            id: "P2",
            what: format!("lock pairs through the SDK, {CALLERS} callers in one process, against {name}"),
            ours: our.show(),
            peer: their.show(),
            figure: our.per_second / their.per_second,
            unit: Unit::Times,
            target,
        });
    }
    peer.end(false).await?;
    ours.stop().await?;
    bench.report.methods.push((
        "P2",
        "`acquire` and `release` of the Rust SDK with its defaults (it keeps the lease alive and makes a requestId for \
         each call), callers in one process on one thread. Redis: the `redis` crate's multiplexed connection, SET NX PX \
         and a compare-and-delete script by EVALSHA; with a fencing token the acquire is a script that also INCRs a \
         counter, which is what every grant of Baton carries."
            .into(),
    ));
    Ok(())
}
