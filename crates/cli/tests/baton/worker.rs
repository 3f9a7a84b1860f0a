//! A process of its own that uses limits through the SDK and writes down what it was admitted: this very program, started
//! again by a test with its orders.

use crate::process::Running;
use baton_client::Baton;
use baton_client::limit::Checked;
use baton_testkit::Dice;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where a worker finds its orders.
const ORDERS: &str = "LIMIT_WORKER";
pub const KEY: &str = "acme";

/// What a worker is to do.
#[derive(Clone)]
pub struct Orders {
    /// Of nodes, separated by commas: the first that answers is asked.
    pub urls: String,
    /// Which it checks, one after the other.
    pub limits: Vec<String>,
    /// Whether it leases for itself and decides in its own process.
    pub decides_itself: bool,
    /// How often it checks each limit, at most, before it goes on to the next; chosen anew each time.
    pub burst: u64,
    /// How long it pauses after all of them, at most.
    pub pause_ms: u64,
    /// After so many rounds it ends, or at this time of the day.
    pub rounds: u64,
    pub until_ms: u64,
    /// It begins when this file is there.
    pub go: PathBuf,
    /// Where it writes.
    pub log: PathBuf,
    pub seed: u64,
}

/// That something was admitted: after the one moment, and before the other. Microseconds since 1970, by the machine's clock.
#[derive(Clone, Debug)]
pub struct Admission {
    pub limit: String,
    pub asked_us: u64,
    pub heard_us: u64,
    /// Who decided.
    pub source: String,
}

impl Orders {
    /// Starts a worker, from a test that is called `this`: it calls [`works`] first thing.
    pub fn start(&self, this: &str) -> Running {
        let orders = json!({
            "urls": self.urls, "limits": self.limits, "decidesItself": self.decides_itself, "burst": self.burst,
            "pause": self.pause_ms, "rounds": self.rounds, "until": self.until_ms, "go": self.go, "log": self.log,
            "seed": self.seed,
        });
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([this, "--exact", "--nocapture"]).env(ORDERS, orders.to_string());
        Running::start(&mut command)
    }
}

/// What workers wrote to a file. The last line may be half written, by one that was killed.
pub fn admissions(log: &Path) -> Vec<Admission> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let admission = |line: &str| {
        let mut words = line.trim_end().split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_else(|| panic!("half a line: {line}"));
        let (limit, asked, heard, source) = (word(), word(), word(), word());
        Admission { limit, asked_us: asked.parse().unwrap(), heard_us: heard.parse().unwrap(), source }
    };
    whole.map(admission).collect()
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// Does a worker's work if this process is one. Whether it was.
pub fn works() -> bool {
    let Ok(orders) = std::env::var(ORDERS) else { return false };
    let orders: Value = serde_json::from_str(&orders).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work(&orders));
    true
}

async fn work(orders: &Value) {
    let word = |name: &str| orders[name].as_str().unwrap();
    let number = |name: &str| orders[name].as_u64().unwrap();
    let is_over = || now_us() / 1000 >= number("until");
    let mut log = File::options().append(true).create(true).open(word("log")).unwrap();
    let mut dice = Dice::new(number("seed"));
    while !Path::new(word("go")).exists() && !is_over() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let baton = Baton::builder().call_timeout(Duration::from_secs(2)).connect(word("urls")).await.unwrap();
    let names: Vec<_> =
        orders["limits"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let limits: Vec<_> = names.iter().map(|name| (baton.limit(*name), baton.limiter(*name))).collect();
    for _ in 0..number("rounds") {
        for (name, (limit, limiter)) in names.iter().zip(&limits) {
            for _ in 0..dice.between((1, number("burst"))) {
                if is_over() {
                    return;
                }
                let asked_us = now_us();
                let checked = match orders["decidesItself"].as_bool().unwrap() {
                    true => limiter.check(KEY, 1).await,
                    false => limit.check(KEY).await,
                };
                match checked {
                    // At once, and without a buffer: a worker may be killed at any moment.
                    Ok(Checked::Allowed(allowed)) => {
                        let line = format!("{name} {asked_us} {} {}\n", now_us(), allowed.source);
                        log.write_all(line.as_bytes()).unwrap();
                    }
                    Ok(Checked::Refused(_)) => break,
                    // Its node may be gone. Where none may, whoever counts finds something missing.
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(dice.millis((0, number("pause")))).await;
    }
}
