//! `baton lock KEY -- CMD`: runs a command while holding a lock.
//!
//! The command gets BATON_FENCING_TOKEN and BATON_LOCK_KEY. If the lease is lost, its whole process group gets
//! SIGTERM, and SIGKILL after the grace time. The lock is released when the command has ended.

mod command;
mod signals;
mod terminal;
mod waiting;

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::{Failure, LOST, NOT_ACQUIRED};
use baton_client::{Baton, HeldBy, LockBuilder, LockGuard, TryAcquire};
use command::Ended;
use signals::{Signals, exit_code};
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

#[derive(clap::Args, Debug)]
pub struct LockArguments {
    /// The lock
    key: String,
    /// How long the lock stays taken if this machine dies; it is renewed while the command runs
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "DURATION")]
    ttl: Duration,
    /// How long to wait for the lock at most [default: until it is free]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION", conflicts_with = "try_only")]
    wait: Option<Duration>,
    /// Don't wait: exit with 75 if the lock is held
    #[arg(long = "try")]
    try_only: bool,
    /// Who we are to others [default: host, process id and random digits]
    #[arg(long)]
    owner: Option<String>,
    /// How long the command has to end after SIGTERM when the lock is lost, before SIGKILL
    #[arg(long, default_value = "5s", value_parser = duration::parse, value_name = "DURATION")]
    grace: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub async fn run(arguments: LockArguments, client: &ClientOptions) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let acquired = tokio::select! {
        acquired = acquire(&arguments, client) => acquired?,
        // The wait is dropped, and with it the place in the queue.
        signal = signals.stop() => return Ok(exit_code(signal.as_raw())),
    };
    let guard = match acquired {
        TryAcquire::Acquired(guard) => guard,
        TryAcquire::Held(held) => return Err(not_acquired(&arguments.key, &held)),
    };
    let environment = [
        ("BATON_FENCING_TOKEN", guard.fencing_token().to_string()),
        ("BATON_LOCK_KEY", arguments.key.clone()),
    ];
    let ended =
        command::run(&arguments.command, &environment, &guard.lease(), arguments.grace, &mut signals).await;
    match ended {
        Ok(Ended::Itself(code)) => release(guard, code, &arguments.key).await,
        Ok(Ended::Lost { lost, killed }) => {
            let how =
                if killed { "killed, since SIGTERM didn't end it in time" } else { "stopped with SIGTERM" };
            Err(Failure::new(LOST, format!("{lost}; the command was {how}"), LOST_HELP))
        }
        Err(failure) => {
            release(guard, failure.exit, &arguments.key).await?;
            Err(failure)
        }
    }
}

const LOST_HELP: &str = "check what the command left half done before running it again; a longer --ttl rides out \
    longer outages";

async fn acquire(arguments: &LockArguments, client: &ClientOptions) -> Result<TryAcquire, Failure> {
    let mut builder = Baton::builder();
    if let Some(owner) = &arguments.owner {
        builder = builder.owner(owner);
    }
    let baton = client.connect_as(builder).await?;
    let lock = baton.lock(&arguments.key).ttl(arguments.ttl).metadata(about(&arguments.command));
    match lock.clone().try_acquire().await? {
        TryAcquire::Held(held) if !arguments.try_only => wait(&baton, arguments, lock, &held).await,
        tried => Ok(tried),
    }
}

async fn wait(
    baton: &Baton,
    arguments: &LockArguments,
    mut lock: LockBuilder,
    held: &HeldBy,
) -> Result<TryAcquire, Failure> {
    if let Some(wait) = arguments.wait {
        lock = lock.wait_max(wait);
    }
    tokio::select! {
        guard = lock.acquire() => Ok(TryAcquire::Acquired(guard?)),
        () = waiting::show(baton, &arguments.key, baton.owner(), held) => Ok(TryAcquire::Held(held.clone())),
    }
}

/// What others see in the lock's status. Not the arguments: they may be secret.
fn about(command: &[OsString]) -> baton_client::wire::Metadata {
    let program =
        command.first().map(|program| program.to_string_lossy().chars().take(256).collect::<String>());
    let mut about = baton_client::wire::Metadata::new();
    about.insert("command".into(), program.into());
    about
}

fn not_acquired(key: &str, held: &HeldBy) -> Failure {
    let holder = held.owner.as_deref().unwrap_or("someone who is next");
    let ends = match held.retry_after {
        Some(left) => format!(", whose lease ends in {} unless renewed", duration::show(left)),
        None => String::new(),
    };
    let message =
        format!("lock {key:?} is held by {}{ends}; {} waiting", holder.escape_debug(), held.queue_length);
    Failure::new(NOT_ACQUIRED, message, "leave out --try to wait for it, or limit the wait with --wait")
}

/// Gives the lock back. The command has ended: only if the lock had been lost before does that change its code.
async fn release(guard: LockGuard, code: u8, key: &str) -> Result<u8, Failure> {
    let ttl_note = "it is free when its lease runs out";
    match guard.release().await {
        Ok(()) => Ok(code),
        Err(error) if error.is_lease_lost() => {
            let message =
                format!("the command ended with {code}, but lock {key:?} had been lost before: {error}");
            Err(Failure::new(LOST, message, LOST_HELP))
        }
        Err(error) => {
            writeln!(std::io::stderr(), "baton: lock {key:?} couldn't be released: {error}; {ttl_note}").ok();
            Ok(code)
        }
    }
}
