//! P1: durable lock pairs over HTTP, one request a call, beside etcd's lock service.

use super::Bench;
use crate::load::{self, Sample};
use crate::peers::{baton, etcd};
use crate::progress;
use crate::report::{Row, Target, Unit};

const CLIENTS: [usize; 3] = [1, 16, 64];

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let ours = baton::Baton::start(bench.binary, bench.place).await?;
    let peer = etcd::Etcd::start(bench.place).await?;
    for clients in CLIENTS {
        let (mut our_users, mut peer_users) = (Vec::new(), Vec::new());
        for client in 0..clients {
            let key = format!("pair:{client}");
            our_users.push(baton::Pairs(baton::LockUser::connect(ours.address(), &key, false).await?));
            peer_users.push(etcd::Pairs(etcd::LockUser::connect(peer.process.address, &key).await?));
        }
        let (mut our_samples, mut peer_samples) = (Vec::new(), Vec::new());
        for turn in 1..=turns {
            progress::say(&format!("P1: lock pairs, {clients} clients, round {turn} of {turns}"));
            let sample;
            (our_users, sample) = load::run(our_users, length).await?;
            our_samples.push(sample);
            let sample;
            (peer_users, sample) = load::run(peer_users, length).await?;
            peer_samples.push(sample);
        }
        let (our, their) = (Sample::median(&our_samples), Sample::median(&peer_samples));
        let is_target = clients == 64;
        let plural = if clients == 1 { "client" } else { "clients" };
        bench.report.rows.push(Row {
            id: "P1",
            what: format!("lock pairs over HTTP, {clients} {plural}, against etcd v3lock"),
            ours: our.show(),
            peer: their.show(),
            figure: our.per_second / their.per_second,
            unit: Unit::Times,
            target: is_target.then_some(Target::AtLeast(5.0)),
        });
        if is_target {
            bench.report.rows.push(Row {
                id: "P1",
                what: "the same, p99 of a pair".into(),
                ours: format!("{:.2} ms", our.p99_ms),
                peer: format!("{:.2} ms", their.p99_ms),
                figure: our.p99_ms / their.p99_ms,
                unit: Unit::Times,
                target: Some(Target::AtMost(0.25)),
            });
        }
    }
    peer.process.stop().await?;
    ours.stop().await?;
    bench.report.methods.push((
        "P1",
        "acquire and release, each a plain HTTP/1.1 request on a kept-alive connection, each client its own connection \
         and its own key, no wait; the client writes prebuilt bytes and looks only for the token. etcd: Lock and \
         Unlock by gRPC, each client its own connection, key and lease. A pair's time is both calls together."
            .into(),
    ));
    Ok(())
}
