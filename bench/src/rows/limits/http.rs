//! P8: checks of a leased limit over HTTP, beside a bare handler, and beside Limitador behind the same one.

use crate::load::{self, Sample};
use crate::peers::baton::Baton;
use crate::peers::limits::{Checks, Handler, define, leased_long};
use crate::progress;
use crate::report::{Row, Target};
use crate::rows::Bench;

const CLIENTS: usize = 64;

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let ours = Baton::start_wide(bench.binary, bench.place).await?;
    define(ours.address(), &leased_long()).await?;
    let mut peers = vec![("a bare axum handler", Handler::start(false).await?, 0.8)];
    if cfg!(feature = "limitador") {
        peers.push((
            "Limitador's counters in memory behind the same handler",
            Handler::start(true).await?,
            1.4,
        ));
    }
    let mut our_users = Checks::connect(ours.address(), CLIENTS).await?;
    let mut our_samples = Vec::new();
    let mut sides = Vec::new();
    for (name, handler, target) in peers {
        let users = Checks::connect(handler.process.address, CLIENTS).await?;
        sides.push((name, handler, target, users, Vec::new()));
    }
    for turn in 1..=turns {
        progress::say(&format!("P8: checks over HTTP, {CLIENTS} clients, round {turn} of {turns}"));
        let sample;
        (our_users, sample) = load::run(our_users, length).await?;
        our_samples.push(sample);
        for (_, _, _, users, samples) in &mut sides {
            let (back, sample) = load::run(std::mem::take(users), length).await?;
            *users = back;
            samples.push(sample);
        }
    }
    let our = Sample::median(&our_samples);
    for (name, handler, target, _, samples) in sides {
        let what = format!("checks of a leased limit over HTTP, {CLIENTS} clients, against {name}");
        let their = Sample::median(&samples);
        bench.report.rows.push(Row::rates("P8", what, &our, &their, Some(Target::AtLeast(target))));
        handler.process.stop().await?;
    }
    ours.stop().await?;
    bench.report.methods.push((
        "P8",
        "`POST /v1/limits/api/check` with a JSON body on kept-alive connections, each client its own connection and its own key; \
         the client writes prebuilt bytes. The limit is leased (1,000,000 for an hour), so checks are decided at the node. The bare handler has the \
         same route, reads the same body, answers the same fields and decides nothing; behind it, Limitador's crate with its counters in memory \
         and a variable for the key. All have a thread a core (`--workers`; with the embedded store it would be one fewer by default)."
            .into(),
    ));
    Ok(())
}
