//! How long a lock takes from one node to another: a release at the one, until the grant of who waits at the other.

use super::Bench;
use crate::http::Connection;
use crate::load::{self, Sample};
use crate::peers::baton::{Baton, LockUser, queue_length};
use crate::peers::store::{Committer, Kind, Server};
use crate::progress;
use crate::report::{Row, Target, Unit};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

const KEY: &str = "between";
const VALUE_BYTES: usize = 200;
/// What a hand-over may take besides two round trips to the store.
const ALLOWED_MS: f64 = 2.0;
/// Between the moment that somebody is seen waiting and the release: whatever queueing caused is over then.
const SETTLE: Duration = Duration::from_millis(3);
/// Nobody waits longer than this for the other to wait.
const QUEUED_MAX: Duration = Duration::from_secs(10);

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for kind in Kind::ALL {
        between(bench, kind).await?;
    }
    bench.report.methods.push((
        "hand-over",
        format!(
            "two `baton serve` on one store, a client on each. The one holds the lock, the other waits for it at its own node; {} ms \
             after it is seen waiting the first sends its release. The time is from then until the other has its grant; then they change \
             places. A round trip of the store is a commit of one record of {VALUE_BYTES} bytes through the same adapter, without \
             a server between, one after the other, in turns with the hand-overs. The bound is two of them and {ALLOWED_MS} ms, \
             medians with medians and p99 with p99. Redis with `appendfsync always`, the others with their defaults.",
            SETTLE.as_millis()
        ),
    ));
    Ok(())
}

async fn between(bench: &mut Bench<'_>, kind: Kind) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let server = Server::start(kind).await?;
    let one = Baton::start_with(bench.binary, bench.place, &server.url()).await?;
    let other = Baton::start_with(bench.binary, bench.place, &server.url()).await?;
    let store = baton_store::open(&server.url(), bench.place.directory()?.path()).await?;
    let mut committers = vec![Committer::new(store, 0, VALUE_BYTES)];
    let mut pair = Pair::form(&one, &other).await?;
    let (mut handovers, mut round_trips) = (Vec::new(), Vec::new());
    for turn in 1..=turns {
        progress::say(&format!("Hand-over between nodes on {}, round {turn} of {turns}", kind.name()));
        handovers.push(pair.run(length).await?);
        let sample;
        (committers, sample) = load::run(committers, length / 3).await?;
        round_trips.push(sample);
    }
    let (handover, round_trip) = (Sample::median(&handovers), Sample::median(&round_trips));
    let figures = [
        (format!("a hand-over between two nodes on {}", kind.name()), handover.p50_ms, round_trip.p50_ms),
        ("the same, p99".into(), handover.p99_ms, round_trip.p99_ms),
    ];
    for (what, ours, round_trip) in figures {
        bench.report.rows.push(Row {
            id: "hand-over",
            what,
            ours: format!("{ours:.2} ms"),
            peer: format!("2 x {round_trip:.2} ms + {ALLOWED_MS} ms"),
            figure: ours,
            unit: Unit::Milliseconds,
            target: Some(Target::AtMost(2.0 * round_trip + ALLOWED_MS)),
        });
    }
    drop((pair, committers));
    one.stop().await?;
    other.stop().await?;
    server.stop().await
}

/// Who has the lock, and who will.
struct Pair {
    holder: LockUser,
    waiter: LockUser,
    token: String,
    /// To see who waits.
    look: Connection,
}

impl Pair {
    async fn form(one: &Baton, other: &Baton) -> anyhow::Result<Self> {
        let mut holder = LockUser::connect(one.address(), KEY, true).await?;
        let waiter = LockUser::connect(other.address(), KEY, true).await?;
        let token = holder.acquire().await?;
        Ok(Self { holder, waiter, token, look: Connection::open(one.address()).await? })
    }

    async fn run(&mut self, length: Duration) -> anyhow::Result<Sample> {
        let (mut times, end) = (Histogram::<u64>::new(3)?, Instant::now() + length);
        while Instant::now() < end {
            times.record(load::nanos(self.hand_over().await?))?;
        }
        Ok(Sample::of(&times, length))
    }

    async fn hand_over(&mut self) -> anyhow::Result<Duration> {
        let Self { holder, waiter, token, look } = self;
        let granted = async {
            let token = waiter.acquire().await?;
            anyhow::Ok((token, Instant::now()))
        };
        let released = async {
            let until = Instant::now() + QUEUED_MAX;
            while queue_length(look, KEY).await? == 0 {
                anyhow::ensure!(Instant::now() < until, "nobody waits after {QUEUED_MAX:?}");
            }
            tokio::time::sleep(SETTLE).await;
            let began = Instant::now();
            holder.release(token).await?;
            Ok(began)
        };
        let ((next, at), began) = tokio::try_join!(granted, released)?;
        *token = next;
        std::mem::swap(holder, waiter);
        Ok(at.saturating_duration_since(began))
    }
}
