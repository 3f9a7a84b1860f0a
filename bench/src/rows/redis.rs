//! P5: lock pairs over HTTP with Redis behind, beside the least that can stand between HTTP and Redis.

use super::Bench;
use crate::load::{self, Client};
use crate::peers::{bare, baton, redis};
use crate::progress;
use crate::report::{Row, Target, Unit};
use baton_testkit::servers::redis::Redis;

const CLIENTS: usize = 64;
/// How often the commands of a pair for each client are counted.
const WINDOWS: usize = 10;

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut server = Redis::start(&[]).await?;
    let url = format!("redis://{}", server.address);
    let ours = baton::Baton::start_with(bench.binary, bench.place, &url).await?;
    let peer = bare::Bare::start(server.address).await?;
    let our_users = baton::Pairs::connect(ours.address(), CLIENTS).await?;
    let peer_users = baton::Pairs::connect(peer.process.address, CLIENTS).await?;
    let what = format!("P5: lock pairs on Redis, {CLIENTS} clients");
    let (our, their) = bench.in_turns(&what, our_users, peer_users).await?;
    bench.report.rows.push(Row::rates(
        "P5",
        format!(
            "lock pairs over HTTP on Redis, {CLIENTS} clients, against a bare axum handler with a Lua lock"
        ),
        &our,
        &their,
        Some(Target::AtLeast(0.8)),
    ));
    peer.process.stop().await?;

    progress::say("P5: commands of Redis");
    let mut users = baton::Pairs::connect(ours.address(), CLIENTS).await?;
    let calls = 2 * CLIENTS as u64;
    let mut fewest = u64::MAX;
    for _ in 0..WINDOWS {
        server.say(&["CONFIG", "RESETSTAT"])?;
        for user in &mut users {
            user.operate().await?;
        }
        fewest = fewest.min(redis::scripts_run(&server)?);
    }
    server.say(&["CONFIG", "RESETSTAT"])?;
    let (_, sample) = load::run(users, bench.options.length()).await?;
    let figures = [
        ("commands that Redis counts for an acquire or a release", fewest, calls, Some(Target::AtMost(1.0))),
        (
            "the same at full load, with histories, sessions and expiry",
            redis::scripts_run(&server)?,
            2 * sample.done,
            None,
        ),
    ];
    for (what, scripts, calls, target) in figures {
        bench.report.rows.push(Row {
            id: "P5",
            what: what.into(),
            ours: format!("{scripts} EVALSHA"),
            peer: format!("{calls} calls"),
            figure: scripts as f64 / calls as f64,
            unit: Unit::Count,
            target,
        });
    }
    ours.stop().await?;
    server.end(false).await?;
    bench.report.methods.push((
        "P5",
        format!(
            "one Redis with `appendonly yes` and `appendfsync always`, used by both sides in turn. Ours: `baton serve --store \
             redis://…`, clients as in P1. The other: axum handlers on the same routes with JSON bodies, in a process of \
             their own with as many threads, that run SET NX PX and compare-and-delete as scripts by EVALSHA on one \
             multiplexed connection; no fencing token, no requestId, no history. The commands are `calls` of EVALSHA in \
             Redis's own `INFO commandstats`: once over {calls} calls, the fewest of {WINDOWS} times, because what is written \
             behind the answers goes on beside them; and once at full load, with all of that."
        ),
    ));
    Ok(())
}
