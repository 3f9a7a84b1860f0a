//! P7: a check of a leased limit in the caller's own process, beside governor's keyed limiter.

use crate::load::{count, median};
use crate::peers::baton::Baton;
use crate::peers::limits::{LIMIT, define, leased_long};
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;
use anyhow::{Context, ensure};
use baton_client::limiter::{LimitKey, Limiter};
use governor::{DefaultKeyedRateLimiter, Quota};
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const KEYS: usize = 100_000;
const CALLERS: usize = 64;
/// Checks of a thread in one turn.
const CHECKS: usize = 300_000;
/// With so much less in a purse of 1,000,000 more is asked for, and what two threads check in a turn is there again soon after.
const REFILLED: u64 = 760_000;
const REFILLED_WITHIN: Duration = Duration::from_millis(100);
/// How often a turn is begun anew whose purse ran dry: on a busy machine whoever asks for more may have to wait.
const TRIES: usize = 10;
/// How many keys' order is made in advance, so that nobody is measured making it.
const ORDER: usize = 1 << 20;

/// Which key comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    Hot,
    Uniform,
    Zipf,
}

impl Spread {
    const ALL: [Self; 3] = [Self::Hot, Self::Uniform, Self::Zipf];

    fn describe(self, keys: usize) -> String {
        match self {
            Self::Hot => "one key".into(),
            Self::Uniform => format!("{} keys evenly", count(keys as f64)),
            Self::Zipf => format!("{} keys by Zipf", count(keys as f64)),
        }
    }

    /// The same in every run.
    fn order(self, keys: usize) -> Vec<u32> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut sums = Vec::with_capacity(keys);
        let mut sum = 0.0;
        for rank in 1..=keys {
            sum += 1.0 / rank as f64;
            sums.push(sum);
        }
        let one = |_| match self {
            Self::Hot => keys / 2,
            Self::Uniform => (random() * keys as f64) as usize,
            Self::Zipf => {
                let at = random() * sum;
                // Ranks are spread over the keys, so that the frequent ones don't lie side by side.
                sums.partition_point(|sum| *sum < at) * 7_919 % keys
            }
        };
        (0..ORDER).map(one).map(|key| key as u32).collect()
    }
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let keys = bench.options.size(KEYS);
    let checks = CHECKS;
    let turns = bench.options.turns();
    let server = Baton::start(bench.binary, bench.place).await?;
    let baton = define(server.address(), &leased_long()).await?;
    let texts: Vec<_> = (0..keys).map(|key| format!("customer:{key:06}")).collect();
    let numbers: Vec<_> = (0..keys as u64).collect();
    progress::say(&format!("P7: leases for {keys} texts and as many numbers"));
    // The limiter's own runtime: threads that are measured have it ask for more beside them, as in a program of its user's.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let runtime = Beside(Some(runtime));
    let (by_text, by_number) = (baton.limiter(LIMIT), baton.limiter(LIMIT));
    let leasing = {
        let (by_text, by_number) = (by_text.clone(), by_number.clone());
        runtime.handle().spawn(async move {
            lease_all(&by_text, keys, |key| format!("customer:{key:06}")).await?;
            lease_all(&by_number, keys, |key| key as u64).await
        })
    };
    leasing.await??;
    let quota = Quota::per_second(NonZeroU32::MAX);
    let (text_peer, number_peer) = (governor::RateLimiter::keyed(quota), governor::RateLimiter::keyed(quota));
    texts.iter().for_each(|key| drop(text_peer.check_key(key)));
    numbers.iter().for_each(|key| drop(number_peer.check_key(key)));
    for spread in Spread::ALL {
        let order = spread.order(keys);
        for threads in [1, 2] {
            let refills = spread == Spread::Hot;
            let load = Load { order: &order, checks, threads, turns, refills, runtime: runtime.handle() };
            let what = spread.describe(keys);
            progress::say(&format!("P7: texts, {what}, {threads} threads"));
            let figures = load.sides(&by_text, &text_peer, &texts)?;
            bench.report.rows.push(row(format!("texts, {what}, {threads} threads"), figures));
            progress::say(&format!("P7: numbers, {what}, {threads} threads"));
            let figures = load.sides(&by_number, &number_peer, &numbers)?;
            bench.report.rows.push(row(format!("numbers, {what}, {threads} threads"), figures));
        }
    }
    server.stop().await?;
    bench.report.methods.push((
        "P7",
        format!(
            "`Limiter::check_now` of the Rust SDK, with leases of 1,000,000 for an hour from a server beside it, which it asks for more while it is measured; \
             governor's `check_key` on its usual map and clock with a quota that nobody reaches. Keys are texts like `customer:123456`, which are there already, or \
             `u64`; their order is made in advance. {} checks a thread and turn; the time is a thread's processor time for one check.",
            count(checks as f64)
        ),
    ));
    Ok(())
}

fn row(what: String, (ours, theirs): (f64, f64)) -> Row {
    Row {
        id: "P7",
        what: format!("a check in process: {what}, against governor"),
        ours: format!("{ours:.0} ns"),
        peer: format!("{theirs:.0} ns"),
        figure: ours / theirs,
        unit: Unit::Times,
        target: Some(Target::AtMost(0.7)),
    }
}

/// Lets a limiter have a lease for each of so many keys.
pub async fn lease_all<K: LimitKey + Send + Sync + 'static>(
    limiter: &Limiter,
    keys: usize,
    key: impl Fn(usize) -> K + Copy + Send + 'static,
) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let callers = (0..CALLERS).map(|_| {
        let (limiter, next) = (limiter.clone(), next.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= keys {
                    return anyhow::Ok(());
                }
                // A key that comes once has none.
                limiter.check_now(key(number), 1);
                let checked = limiter.check(key(number), 1).await?;
                ensure!(checked.is_allowed(), "a check was refused");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await?.context("a key got no lease")?;
    }
    Ok(())
}

/// What this thread has had of a processor: on a quiet machine the time itself, on a busy one without the others'.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// A runtime beside the one that measures, which may not wait for its end.
struct Beside(Option<tokio::runtime::Runtime>);

impl Beside {
    fn handle(&self) -> &tokio::runtime::Handle {
        self.0.as_ref().expect("it is there until it is dropped").handle()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

struct Load<'a> {
    /// Whether all checks are of one key, whose purse doesn't last for several turns.
    refills: bool,
    order: &'a [u32],
    checks: usize,
    threads: usize,
    turns: u32,
    runtime: &'a tokio::runtime::Handle,
}

impl Load<'_> {
    /// Nanoseconds of a check: ours, governor's.
    fn sides<K>(
        &self,
        limiter: &Limiter,
        peer: &DefaultKeyedRateLimiter<K>,
        keys: &[K],
    ) -> anyhow::Result<(f64, f64)>
    where
        K: LimitKey + Hash + Eq + Clone + Sync + Send,
    {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..self.turns {
            ours.push(self.ours(limiter, keys)?);
            theirs.push(self.run(|key| peer.check_key(&keys[key]).is_ok())?);
        }
        Ok((median(ours), median(theirs)))
    }

    fn ours<K: LimitKey + Sync>(&self, limiter: &Limiter, keys: &[K]) -> anyhow::Result<f64> {
        let mut last = None;
        for _ in 0..TRIES {
            if self.refills {
                let _entered = self.runtime.enter();
                limiter.check_now(&keys[self.order[0] as usize], REFILLED);
                std::thread::sleep(REFILLED_WITHIN);
            }
            match self.run(|key| limiter.check_now(&keys[key], 1) == Some(true)) {
                Ok(nanos) => return Ok(nanos),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no try")?)
    }

    fn run(&self, check: impl Fn(usize) -> bool + Sync) -> anyhow::Result<f64> {
        let times: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let check = &check;
                    scope.spawn(move || {
                        let _entered = self.runtime.enter();
                        let (mut passed, offset) = (0, thread * ORDER / 3);
                        let began = processor_time();
                        for turn in 0..self.checks {
                            passed += usize::from(check(self.order[(turn + offset) % ORDER] as usize));
                        }
                        (processor_time().saturating_sub(began), passed)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a check doesn't panic")).collect()
        });
        let mut nanos = 0.0;
        for (time, passed) in times {
            ensure!(passed * 100 >= self.checks * 99, "only {passed} of {} were decided here", self.checks);
            nanos += time.as_nanos() as f64;
        }
        Ok(nanos / self.threads as f64 / self.checks as f64)
    }
}
