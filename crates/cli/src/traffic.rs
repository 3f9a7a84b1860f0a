//! A limit and its traffic, as `baton advise` and `baton simulate` are told of them. Neither needs a server.

use crate::duration;
use crate::failure::{Failure, USAGE};
use baton_core::limit::{Definition, Policy, Purpose, slack};
use baton_core::meter::Algorithm;
use baton_simulation::plan;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::time::Duration;

#[derive(clap::Args, Debug)]
pub struct TrafficOptions {
    /// Checks a second, of all keys at all nodes
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: u64,
    /// How many nodes there are
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub nodes: u64,
    /// How many keys share the rate, each with a limit of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// How much a key may use in a window [default: such that the rate is 70 % of it]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// The window's length, such as 1s, 1m or 24h
    #[arg(long, visible_alias = "window", value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub per: Duration,
    /// How much a token bucket holds [default: the limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub burst: Option<u64>,
    /// What it is for: chooses the algorithm and what happens in an outage, unless that is said
    #[arg(long, default_value = "abuse", value_parser = purpose())]
    pub purpose: Purpose,
    /// What is counted
    #[arg(long, value_parser = algorithm())]
    pub algorithm: Option<Algorithm>,
    /// What happens when the store can't be asked
    #[arg(long, value_name = "POLICY", value_parser = policy())]
    pub on_failure: Option<Policy>,
    /// The store's round trip, such as 500us or 2ms
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = latency)]
    pub store_latency: Duration,
    /// How much more an approximate limit holds, as a part of the limit
    #[arg(long, value_name = "PART", default_value = "0.01", value_parser = part)]
    pub epsilon: u64,
    /// How often an approximate limit is reconciled [default: 500ms, 100ms where much is spent, 2s where little is]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub sync: Option<Duration>,
    /// Print JSON: the same as --output json
    #[arg(long)]
    pub json: bool,
}

impl TrafficOptions {
    /// The limit of each key.
    pub fn definition(&self) -> Result<Definition, Failure> {
        let (algorithm, _, on_failure) = self.purpose.preset();
        let algorithm = self.algorithm.unwrap_or(algorithm);
        let window_ms = ms(self.per);
        if self.burst.is_some() && algorithm != Algorithm::TokenBucket {
            return Err(unfit("--burst goes with the algorithm token_bucket"));
        }
        let in_a_window = u128::from(self.rate) * u128::from(window_ms) / 1_000 / u128::from(self.keys);
        let usual = u64::try_from((in_a_window * 10).div_ceil(7)).unwrap_or(u64::MAX).max(1);
        let limit = self.limit.unwrap_or(usual);
        let most = algorithm.amount_max(window_ms);
        if window_ms == 0 {
            return Err(unfit("--per must be at least 1ms"));
        }
        if limit > most || self.burst.is_some_and(|burst| burst > most) {
            return Err(unfit(format!("the limit and the burst must be at most {most} with this window")));
        }
        let plain = plan::definition(algorithm, limit, window_ms);
        Ok(Definition {
            burst: self.burst,
            on_failure: self.on_failure.unwrap_or(on_failure),
            epsilon: Some(self.epsilon),
            sync_ms: self.sync.map(|sync| ms(sync).max(1)),
            ..plain
        })
    }

    /// Microseconds.
    pub fn latency_us(&self) -> u64 {
        u64::try_from(self.store_latency.as_micros()).unwrap_or(u64::MAX)
    }
}

/// What can't be answered because of how it was asked.
pub fn unfit(message: impl Into<String>) -> Failure {
    Failure::new(USAGE, message, "see --help for what is allowed")
}

/// Milliseconds.
pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// As people write it.
pub fn algorithm_word(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket => "token_bucket",
        Algorithm::SlidingWindow => "sliding_window",
        Algorithm::FixedWindow => "fixed_window",
        Algorithm::SlidingLog => "sliding_log",
        Algorithm::InFlight => "in_flight",
    }
}

/// What is in flight has no rate.
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingLog];

fn algorithm() -> impl TypedValueParser<Value = Algorithm> {
    one_of(ALGORITHMS.map(|algorithm| (algorithm_word(algorithm), algorithm)).to_vec())
}

fn purpose() -> impl TypedValueParser<Value = Purpose> {
    one_of(Purpose::ALL.iter().map(|purpose| (purpose.as_str(), *purpose)).collect())
}

fn policy() -> impl TypedValueParser<Value = Policy> {
    one_of(Policy::ALL.iter().map(|policy| (policy.as_str(), *policy)).collect())
}

/// One of several words, each for something.
pub fn one_of<T: Clone + Send + Sync + 'static>(
    words: Vec<(&'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    PossibleValuesParser::new(names).try_map(move |word| {
        let found = words.iter().find(|(known, _)| *known == word);
        found.map(|(_, value)| value.clone()).ok_or("it is none of them")
    })
}

/// A duration that may be shorter than a millisecond.
fn latency(text: &str) -> Result<Duration, String> {
    let micros = text.strip_suffix("us").and_then(|number| number.parse().ok());
    let latency = micros.map_or_else(|| duration::parse(text), |micros| Ok(Duration::from_micros(micros)))?;
    if latency.is_zero() { Err("it must be at least 1us".into()) } else { Ok(latency) }
}

/// A part of something, from 0 to 1, in millionths.
pub fn part(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} must be a part from 0 to 1, such as 0.01");
    let part: f64 = text.parse().map_err(|_| wrong())?;
    if (0.0..=1.0).contains(&part) {
        Ok((part * slack::MILLIONTHS as f64).round() as u64)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_may_be_short_and_parts_are_from_0_to_1() {
        assert_eq!(latency("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(latency("2ms"), Ok(Duration::from_millis(2)));
        assert!(latency("0us").is_err() && latency("5").is_err() && latency("xus").is_err());
        assert_eq!((part("0.01"), part("1"), part("0")), (Ok(10_000), Ok(1_000_000), Ok(0)));
        assert!(part("1.1").is_err() && part("NaN").is_err() && part("-0.1").is_err());
    }
}
