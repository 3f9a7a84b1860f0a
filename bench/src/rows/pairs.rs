//! P1: durable lock pairs over HTTP, one request a call, beside etcd's lock service.

use super::Bench;
use crate::peers::{baton, etcd};
use crate::report::{Row, Target, Unit};

const CLIENTS: [usize; 3] = [1, 16, 64];

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let ours = baton::Baton::start(bench.binary, bench.place).await?;
    let mut peer = etcd::start().await?;
    for clients in CLIENTS {
        let our_users = baton::Pairs::connect(ours.address(), clients).await?;
        let peer_users = etcd::Pairs::connect(&peer, clients).await?;
        let what = format!("P1: lock pairs, {clients} clients");
        let (our, their) = bench.in_turns(&what, our_users, peer_users).await?;
        let is_target = clients == 64;
        let plural = if clients == 1 { "client" } else { "clients" };
        let what = format!("lock pairs over HTTP, {clients} {plural}, against etcd v3lock");
        let target = is_target.then_some(Target::AtLeast(5.0));
        bench.report.rows.push(Row::rates("P1", what, &our, &their, target));
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
    peer.stop().await?;
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
