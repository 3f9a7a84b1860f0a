//! P10: how long a check takes while the store is away, against a healthy one.

use crate::http::Connection;
use crate::load::{self, Sample};
use crate::peers::baton::Baton;
use crate::peers::limits::{Checks, central, check, define, leased};
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;
use anyhow::ensure;
use baton_client::LimitDefinition;
use baton_testkit::servers::redis::Redis;
use std::time::{Duration, Instant};

const CLIENTS: usize = 16;
/// It is seen to be back within this time.
const BACK_MAX: Duration = Duration::from_secs(30);

/// How the store is away.
#[derive(Clone, Copy)]
enum Outage {
    /// It is gone: whoever connects is refused at once.
    Killed,
    /// It is there and says nothing.
    Stopped,
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for (name, definition) in [("central", central()), ("leased", leased())] {
        for outage in [Outage::Killed, Outage::Stopped] {
            during(bench, name, &definition, outage).await?;
        }
    }
    bench.report.methods.push((
        "P10",
        format!(
            "`baton serve --store redis://…` and {CLIENTS} clients that check a key each, of a limit with `onFailure: local`; then Redis is \
             killed (SIGKILL), or stopped (SIGSTOP) so that it accepts and never answers, and the same clients go on. The first fifth of each run is not \
             counted on either side. Between rounds Redis comes back."
        ),
    ));
    Ok(())
}

async fn during(
    bench: &mut Bench<'_>,
    name: &str,
    definition: &LimitDefinition,
    outage: Outage,
) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let mut store = Redis::start(&[]).await?;
    let node = Baton::start_with(bench.binary, bench.place, &format!("redis://{}", store.address)).await?;
    define(node.address(), definition).await?;
    let mut users = Checks::connect(node.address(), CLIENTS).await?;
    let (mut healthy, mut away) = (Vec::new(), Vec::new());
    let how = match outage {
        Outage::Killed => "killed",
        Outage::Stopped => "stopped",
    };
    for turn in 1..=turns {
        progress::say(&format!("P10: checks, {name}, with the store {how}, round {turn} of {turns}"));
        let sample;
        (users, sample) = load::run(users, length).await?;
        healthy.push(sample);
        match outage {
            Outage::Killed => store.end(true).await?,
            Outage::Stopped => store.process()?.pause()?,
        }
        let sample;
        (users, sample) = load::run(users, length).await?;
        away.push(sample);
        match outage {
            Outage::Killed => store.start_again().await?,
            Outage::Stopped => store.process()?.resume()?,
        }
        back(&node).await?;
    }
    let (healthy, away) = (Sample::median(&healthy), Sample::median(&away));
    bench.report.rows.push(Row {
        id: "P10",
        what: format!("p99 of a check of a {name} limit with the store {how}, against a healthy one"),
        ours: away.show(),
        peer: healthy.show(),
        figure: away.p99_ms / healthy.p99_ms,
        unit: Unit::Times,
        target: Some(Target::AtMost(2.0)),
    });
    node.stop().await?;
    store.end(false).await
}

/// Waits until the store decides again: a key that was never seen isn't leased.
async fn back(node: &Baton) -> anyhow::Result<()> {
    let (mut connection, until) = (Connection::open(node.address()).await?, Instant::now() + BACK_MAX);
    for probe in 0_u64.. {
        let request = check(&format!("probe:{}:{probe}", node.address().port()));
        let body = connection.exchange(&request).await?;
        if crate::http::text_of(body, "source") == Some("central") {
            break;
        }
        ensure!(Instant::now() < until, "the store isn't seen again after {BACK_MAX:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
