//! `baton lock KEY -- CMD`: runs a command while holding a lock.
//!
//! The command gets BATON_LOCK_KEY and BATON_FENCING_TOKEN; with a permit of a semaphore also BATON_SLOT, and for a shared
//! lock no token, since that is not for fences. With `--and` it runs under several locks at once: the two are the first
//! one's, and BATON_FENCING_TOKENS has every key's token, as a JSON object. If the lease is lost, its whole process group gets
//! SIGTERM, and SIGKILL after the grace time. The lock is released when the command has ended.

pub mod command;
pub mod kind;
pub mod signals;
mod terminal;
mod waiting;

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::{Failure, LOST, NOT_ACQUIRED};
use baton_client::{Baton, Error, HeldBy, LeaseLost, TryAcquire};
use command::Ended;
use kind::{Asked, Held};
use signals::{Signals, exit_code};
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

#[derive(clap::Args, Debug)]
pub struct LockArguments {
    /// The lock
    key: String,
    /// Another lock to hold as well; may be repeated. All are taken or none, and nothing is held while waiting: no deadlock
    #[arg(long = "and", value_name = "KEY", conflicts_with_all = ["shared", "permits"])]
    and: Vec<String>,
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
    /// Share the lock with others who do too; whoever takes it without --shared waits for all of them
    #[arg(long, conflicts_with = "permits")]
    shared: bool,
    /// Take one of so many permits; say the same number everywhere
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    permits: Option<u16>,
    /// How long the lock stays closed to everybody if this machine dies, after the TTL
    #[arg(long, default_value = "0s", value_parser = duration::parse, value_name = "DURATION")]
    lock_delay: Duration,
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
    let environment = guard.environment();
    let what = arguments.what();
    let ended =
        command::run(&arguments.command, &environment, &guard.lease(), arguments.grace, &mut signals, None)
            .await;
    match ended {
        Ok(Ended::Itself { code, .. }) => after_release(guard.release().await, code, &what),
        Ok(Ended::Lost { lost, killed }) => Err(Failure::new(LOST, stopped(&lost, killed), LOST_HELP)),
        Err(failure) => {
            after_release(guard.release().await, failure.exit, &what)?;
            Err(failure)
        }
    }
}

impl LockArguments {
    /// What is held, in an error.
    fn what(&self) -> String {
        let others: String = self.and.iter().map(|key| format!(" and {key:?}")).collect();
        format!("lock {:?}{others}", self.key)
    }
}

pub(crate) const LOST_HELP: &str = "check what the command left half done before running it again; a longer --ttl rides out \
    longer outages";

async fn acquire(arguments: &LockArguments, client: &ClientOptions) -> Result<TryAcquire<Held>, Failure> {
    let mut builder = Baton::builder();
    if let Some(owner) = &arguments.owner {
        builder = builder.owner(owner);
    }
    let baton = client.connect_as(builder).await?;
    let lock = Asked::new(&baton, arguments);
    match lock.clone().try_acquire().await? {
        TryAcquire::Held(held) if !arguments.try_only => wait(&baton, arguments, lock, &held).await,
        tried => Ok(tried),
    }
}

async fn wait(
    baton: &Baton,
    arguments: &LockArguments,
    lock: Asked,
    held: &HeldBy,
) -> Result<TryAcquire<Held>, Failure> {
    tokio::select! {
        guard = lock.acquire() => Ok(TryAcquire::Acquired(guard?)),
        () = waiting::show(baton, blocking(&arguments.key, held), baton.owner(), held) => {
            Ok(TryAcquire::Held(held.clone()))
        }
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

/// Which lock is held, of several the one that isn't free.
fn blocking<'a>(key: &'a str, held: &'a HeldBy) -> &'a str {
    held.lock_key.as_deref().unwrap_or(key)
}

fn not_acquired(key: &str, held: &HeldBy) -> Failure {
    let key = blocking(key, held);
    let holder = held.owner.as_deref().unwrap_or("someone who is next");
    let ends = match held.retry_after {
        Some(left) => format!(", whose lease ends in {} unless renewed", duration::show(left)),
        None => String::new(),
    };
    let message =
        format!("lock {key:?} is held by {}{ends}; {} waiting", holder.escape_debug(), held.queue_length);
    Failure::new(NOT_ACQUIRED, message, "leave out --try to wait for it, or limit the wait with --wait")
}

/// How it ended for a command whose lease was lost.
pub(crate) fn stopped(lost: &LeaseLost, killed: bool) -> String {
    let how = if killed { "killed, since SIGTERM didn't end it in time" } else { "stopped with SIGTERM" };
    format!("{lost}; the command was {how}")
}

/// What was held was given back, or tried to be. The command has ended: only if it had been lost before does that change
/// its code.
pub(crate) fn after_release(released: Result<(), Error>, code: u8, what: &str) -> Result<u8, Failure> {
    match released {
        Ok(()) => Ok(code),
        Err(error) if error.is_lease_lost() => {
            let message = format!("the command ended with {code}, but {what} had been lost before: {error}");
            Err(Failure::new(LOST, message, LOST_HELP))
        }
        Err(error) => {
            let note = "it is free when its lease runs out";
            writeln!(std::io::stderr(), "baton: {what} couldn't be released: {error}; {note}").ok();
            Ok(code)
        }
    }
}
