//! P15: whether renewals stay quick while very many wait.

use super::Bench;
use crate::load::{self, Sample, count};
use crate::peers::baton::{Baton, Renewals};
use crate::progress;
use crate::report::{Row, Target, Unit};

const CLIENTS: usize = 4;
const BLOCKED: usize = 10_000;

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let blocked = bench.options.size(BLOCKED);
    let mut sides = Vec::new();
    for _ in 0..2 {
        let baton = Baton::start(bench.binary, bench.place).await?;
        baton.hold("wanted:", 1).await?;
        let mut users = Vec::new();
        for client in 0..CLIENTS {
            users.push(Renewals::connect(baton.address(), &format!("renewed:{client}")).await?);
        }
        sides.push((baton, users, Vec::new()));
    }
    for turn in 1..=turns {
        progress::say(&format!("P15: renewals beside {blocked} blocked acquires, round {turn} of {turns}"));
        for (waiters, (baton, users, samples)) in [0, blocked].into_iter().zip(&mut sides) {
            // Anew each time: a call waits a minute at most.
            let waiting = if waiters > 0 { baton.queue("wanted:000000", waiters).await? } else { Vec::new() };
            let (back, sample) = load::run(std::mem::take(users), length).await?;
            *users = back;
            samples.push(sample);
            drop(waiting);
            baton.queued("wanted:000000", 0).await?;
        }
    }
    let mut figures = Vec::new();
    for (baton, _, samples) in sides {
        figures.push(Sample::median(&samples));
        baton.stop().await?;
    }
    let (idle, busy) = (figures[0], figures[1]);
    bench.report.rows.push(Row {
        id: "P15",
        what: format!("p99 of a renewal beside {} blocked acquires, against none", count(blocked as f64)),
        ours: format!("{:.2} ms", busy.p99_ms),
        peer: format!("{:.2} ms", idle.p99_ms),
        figure: busy.p99_ms / idle.p99_ms,
        unit: Unit::Times,
        target: Some(Target::AtMost(3.0)),
    });
    bench.report.methods.push((
        "P15",
        format!(
            "{CLIENTS} clients renew a lock of their own over and over; on a second server, in turn, while acquires that came \
             by requests of 256 wait for one lock."
        ),
    ));
    Ok(())
}
