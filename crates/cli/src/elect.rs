//! `baton elect NAME -- CMD`: runs a command while leading an election.
//!
//! The command gets BATON_EPOCH (and the same number as BATON_FENCING_TOKEN) and BATON_ELECTION. Signals, exit codes and what
//! happens on loss are those of `baton lock`: a leadership is a lease like any other.

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::{Failure, LOST, NOT_ACQUIRED};
use crate::lock::command::{self, Ended};
use crate::lock::kind::HeldLease;
use crate::lock::signals::{Signals, exit_code};
use crate::lock::{LOST_HELP, after_release, stopped};
use baton_client::wire::Metadata;
use baton_client::{Baton, ElectionBuilder, Error, LeaderGuard};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::time::{Duration, Instant};

/// A command that ends sooner than this is followed by a pause of that length before the next campaign.
const TERM_MIN: Duration = Duration::from_secs(1);

#[derive(clap::Args, Debug)]
pub struct ElectArguments {
    /// The election
    name: String,
    /// Who we are to others [default: host, process id and random digits]
    #[arg(long, value_name = "ID")]
    candidate: Option<String>,
    /// How long nobody leads if this machine dies as the leader; it is renewed while the command runs
    #[arg(long, default_value = "10s", value_parser = duration::parse, value_name = "DURATION")]
    ttl: Duration,
    /// What everybody may know of this leader, as a JSON object: {"address":"10.0.0.7:8080"}
    #[arg(long, value_parser = object, value_name = "JSON")]
    value: Option<Metadata>,
    /// Among those who stand by, higher priorities lead first: -1000 to 1000
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i16,
    /// How long to stand by at most [default: until elected]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION", conflicts_with = "try_only")]
    wait: Option<Duration>,
    /// Don't stand by: exit with 75 if somebody leads
    #[arg(long = "try")]
    try_only: bool,
    /// Campaign again when the command has ended or the leadership was lost, until a signal asks to stop
    #[arg(long, conflicts_with_all = ["try_only", "wait"])]
    again: bool,
    /// How long the command has to end after SIGTERM when the leadership is lost, before SIGKILL
    #[arg(long, default_value = "5s", value_parser = duration::parse, value_name = "DURATION")]
    grace: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn object(text: &str) -> Result<Metadata, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

pub async fn run(arguments: ElectArguments, client: &ClientOptions) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    loop {
        let guard = tokio::select! {
            elected = elected(&arguments, client) => elected?,
            // The campaign is dropped, and with it the candidate.
            signal = signals.stop() => return Ok(exit_code(signal.as_raw())),
        };
        let began = Instant::now();
        let ended = term(&arguments, guard, &mut signals).await;
        if !arguments.again || signals.asked_to_stop() {
            return ended;
        }
        if let Err(failure) = &ended {
            if failure.exit != LOST {
                return ended;
            }
            writeln!(std::io::stderr(), "baton: {}; campaigning again", failure.message).ok();
        }
        if began.elapsed() < TERM_MIN {
            tokio::select! {
                () = tokio::time::sleep(TERM_MIN) => {}
                signal = signals.stop() => return Ok(exit_code(signal.as_raw())),
            }
        }
    }
}

async fn elected(arguments: &ElectArguments, client: &ClientOptions) -> Result<LeaderGuard, Failure> {
    loop {
        match campaign(arguments, client).await {
            // Whoever wants to lead for good isn't turned away by a server that is away for a while.
            Err(failure) if arguments.again && (failure.is_passing() || failure.exit == LOST) => {
                writeln!(std::io::stderr(), "baton: {}; trying again", failure.message).ok();
                // Not all candidates at once.
                tokio::time::sleep(TERM_MIN.mul_f64(1.0 + jitter())).await;
            }
            result => return result,
        }
    }
}

/// From 0 to 1.
fn jitter() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

async fn campaign(arguments: &ElectArguments, client: &ClientOptions) -> Result<LeaderGuard, Failure> {
    let mut builder = Baton::builder();
    if let Some(candidate) = &arguments.candidate {
        builder = builder.owner(candidate);
    }
    let baton = client.connect_as(builder).await?;
    let mut election = baton.election(&arguments.name).ttl(arguments.ttl).priority(arguments.priority);
    if let Some(value) = &arguments.value {
        election = election.value(value.clone());
    }
    match election.clone().try_campaign().await {
        Err(error) if error.is_not_leader() && !arguments.try_only => {
            stand_by(arguments, election, &error).await
        }
        Err(error) if error.is_not_leader() => Err(not_leader(arguments, &error)),
        result => Ok(result?),
    }
}

async fn stand_by(
    arguments: &ElectArguments,
    mut election: ElectionBuilder,
    refused: &Error,
) -> Result<LeaderGuard, Failure> {
    // If nobody reads it, the wait goes on all the same.
    writeln!(std::io::stderr(), "baton: standing by in election {:?}, {}", arguments.name, led_by(refused))
        .ok();
    if let Some(wait) = arguments.wait {
        election = election.wait_max(wait);
    }
    Ok(election.campaign().await?)
}

fn led_by(refused: &Error) -> String {
    match refused.body().and_then(|body| body.leader.as_deref()) {
        Some(leader) => format!("led by {}", leader.escape_debug()),
        None => "in which others come before".to_owned(),
    }
}

fn not_leader(arguments: &ElectArguments, refused: &Error) -> Failure {
    let message = format!("election {:?} is {}", arguments.name, led_by(refused));
    Failure::new(NOT_ACQUIRED, message, "leave out --try to stand by, or limit that with --wait")
}

/// One leadership, from the election to its end.
async fn term(arguments: &ElectArguments, guard: LeaderGuard, signals: &mut Signals) -> Result<u8, Failure> {
    let epoch = guard.epoch().to_string();
    let environment = [
        ("BATON_EPOCH", epoch.clone()),
        ("BATON_FENCING_TOKEN", epoch),
        ("BATON_ELECTION", arguments.name.clone()),
    ];
    let what = format!("election {:?}", arguments.name);
    let lease = HeldLease::Fenced(guard.lease());
    match command::run(&arguments.command, &environment, &lease, arguments.grace, signals, None).await {
        Ok(Ended::Itself { code, .. }) => after_release(guard.resign().await, code, &what),
        Ok(Ended::Lost { lost, killed }) => Err(Failure::new(LOST, stopped(&lost, killed), LOST_HELP)),
        Err(failure) => {
            after_release(guard.resign().await, failure.exit, &what)?;
            Err(failure)
        }
    }
}
