//! Many clients for a while, and what came of it.

use anyhow::Context;
use hdrhistogram::Histogram;
use std::future::Future;
use std::time::{Duration, Instant};

/// Someone who does one thing over and over.
pub trait Client: Send + 'static {
    /// Does it once; gives the time that counts.
    fn operate(&mut self) -> impl Future<Output = anyhow::Result<Duration>> + Send;
}

/// What a load came to.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Operations a second.
    pub per_second: f64,
    /// Half were quicker.
    pub p50_ms: f64,
    /// One in a hundred was slower.
    pub p99_ms: f64,
    /// Operations done, those of the warm-up included.
    pub done: u64,
}

/// Runs all clients for `length` after a fifth of it to warm up. Gives them back for the next round.
pub async fn run<C: Client>(clients: Vec<C>, length: Duration) -> anyhow::Result<(Vec<C>, Sample)> {
    let begin = Instant::now() + length / 5;
    let end = begin + length;
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            tokio::spawn(async move {
                let (mut times, mut done) = (Histogram::<u64>::new(3)?, 0);
                loop {
                    let taken = client.operate().await?;
                    done += 1;
                    let now = Instant::now();
                    if now >= end {
                        break;
                    }
                    if now >= begin {
                        times.record(nanos(taken))?;
                    }
                }
                anyhow::Ok((client, times, done))
            })
        })
        .collect();
    let mut clients = Vec::with_capacity(tasks.len());
    let (mut all, mut all_done) = (Histogram::<u64>::new(3)?, 0);
    for task in tasks {
        let (client, times, done) = task.await?.context("a client failed")?;
        clients.push(client);
        all.add(times)?;
        all_done += done;
    }
    Ok((clients, Sample { done: all_done, ..Sample::of(&all, length) }))
}

impl Sample {
    /// Of times in nanoseconds, counted for `length`.
    pub fn of(times: &Histogram<u64>, length: Duration) -> Self {
        let ms = |quantile| times.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            per_second: times.len() as f64 / length.as_secs_f64(),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            done: times.len(),
        }
    }

    /// The median of each figure.
    pub fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(samples.iter().map(figure));
        Self {
            per_second: of(|sample| sample.per_second),
            p50_ms: of(|sample| sample.p50_ms),
            p99_ms: of(|sample| sample.p99_ms),
            done: samples.iter().map(|sample| sample.done).sum(),
        }
    }

    /// For the table.
    pub fn show(&self) -> String {
        format!("{}/s (p99 {:.2} ms)", count(self.per_second), self.p99_ms)
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => figures[length / 2],
        length => (figures[length / 2 - 1] + figures[length / 2]) / 2.0,
    }
}

/// For a histogram.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// A number for people: 123, 4,560, 78.9k, 1.07M.
pub fn count(figure: f64) -> String {
    match figure {
        figure if figure >= 1e6 => format!("{:.2}M", figure / 1e6),
        figure if figure >= 100_000.0 => format!("{:.0}k", figure / 1000.0),
        figure if figure >= 10_000.0 => format!("{:.1}k", figure / 1000.0),
        figure if figure >= 1000.0 => format!("{},{:03}", figure as u64 / 1000, figure as u64 % 1000),
        figure => format!("{figure:.0}"),
    }
}
