//! `baton once KEY -- CMD`: runs a command if nobody has, and gives what came of it to everyone (L18).

mod kept;
pub mod tee;

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::{Failure, LOST, NOT_ACQUIRED};
use crate::lock::command::{self, Ended};
use crate::lock::kind::HeldLease;
use crate::lock::signals::{Signals, exit_code};
use baton_client::Baton;
use baton_client::once::{Claim, Claimed, Done};
use kept::Kept;
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;
use tee::Tee;

#[derive(clap::Args, Debug)]
pub struct OnceArguments {
    /// What to do once
    key: String,
    /// How long the claim stays taken if this machine dies; it is renewed while the command runs
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "DURATION")]
    ttl: Duration,
    /// How long the result is kept; then the command would run again
    #[arg(long, default_value = "1d", value_parser = duration::parse, value_name = "DURATION")]
    keep: Duration,
    /// How long to wait at most while another caller is at it [default: until it is done]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION", conflicts_with = "try_only")]
    wait: Option<Duration>,
    /// Don't wait: exit with 75 if another caller is at it
    #[arg(long = "try")]
    try_only: bool,
    /// If the command fails, don't keep that: the next caller runs it again
    #[arg(long)]
    retry_failed: bool,
    /// Who we are to others [default: host, process id and random digits]
    #[arg(long)]
    owner: Option<String>,
    /// How long the command has to end after SIGTERM when the claim is lost, before SIGKILL
    #[arg(long, default_value = "5s", value_parser = duration::parse, value_name = "DURATION")]
    grace: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub async fn run(arguments: OnceArguments, client: &ClientOptions) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let claimed = tokio::select! {
        claimed = claim(&arguments, client) => claimed?,
        signal = signals.stop() => return Ok(exit_code(signal.as_raw())),
    };
    match claimed {
        Claimed::First(claim) => execute(&arguments, claim, &mut signals).await,
        Claimed::Done(done) => repeat(&done),
        Claimed::Running(running) => {
            let (key, owner) = (&arguments.key, running.owner.escape_debug());
            let ends = duration::show(running.retry_after);
            let message = format!("{owner} is at {key:?}; its claim ends in {ends} unless renewed");
            Err(Failure::new(
                NOT_ACQUIRED,
                message,
                "leave out --try to wait for it, or wait longer with --wait",
            ))
        }
    }
}

async fn claim(arguments: &OnceArguments, client: &ClientOptions) -> Result<Claimed, Failure> {
    let mut builder = Baton::builder();
    if let Some(owner) = &arguments.owner {
        builder = builder.owner(owner);
    }
    let baton = client.connect_as(builder).await?;
    let mut once = baton.once(&arguments.key).ttl(arguments.ttl).result_ttl(arguments.keep);
    let claimed = once.claim().await?;
    let Claimed::Running(running) = &claimed else { return Ok(claimed) };
    if arguments.try_only {
        return Ok(claimed);
    }
    let (key, owner) = (&arguments.key, running.owner.escape_debug());
    // If nobody reads it, the wait goes on all the same.
    writeln!(std::io::stderr(), "baton: waiting for {owner}, who is at {key:?}").ok();
    if let Some(wait) = arguments.wait {
        once = once.wait_max(wait);
    }
    Ok(once.claim_or_wait().await?)
}

/// Runs the command, and stores what came of it.
async fn execute(arguments: &OnceArguments, claim: Claim, signals: &mut Signals) -> Result<u8, Failure> {
    let environment = [
        ("BATON_FENCING_TOKEN", claim.fencing_token().to_string()),
        ("BATON_ONCE_KEY", arguments.key.clone()),
    ];
    let mut tee = Tee::default();
    let (command, lease) = (&arguments.command, HeldLease::Fenced(claim.lease()));
    let ended = command::run(command, &environment, &lease, arguments.grace, signals, Some(&mut tee)).await;
    match ended {
        Ok(Ended::Itself { code, by_signal }) => {
            let printed = tee.end().await;
            let isnt_kept = by_signal || (arguments.retry_failed && code != 0);
            let stored = match isnt_kept {
                true => claim.fail().await,
                false => claim.complete(&Kept::new(code, printed)).await,
            };
            match stored {
                Ok(()) => Ok(code),
                Err(error) if error.is_lease_lost() => {
                    let key = &arguments.key;
                    let message = format!(
                        "the command ended with {code}, but its claim of {key:?} had been lost: {error}"
                    );
                    Err(Failure::new(LOST, message, LOST_HELP))
                }
                Err(error) if isnt_kept => {
                    writeln!(std::io::stderr(), "baton: {error}; the claim ends when its lease runs out")
                        .ok();
                    Ok(code)
                }
                Err(error) => {
                    let message =
                        format!("the command ended with {code}, but its result may not be stored: {error}");
                    Err(Failure::new(LOST, message, LOST_HELP))
                }
            }
        }
        Ok(Ended::Lost { lost, killed }) => {
            let how =
                if killed { "killed, since SIGTERM didn't end it in time" } else { "stopped with SIGTERM" };
            Err(Failure::new(LOST, format!("{lost}; the command was {how}"), LOST_HELP))
        }
        Err(failure) => {
            // If that doesn't get through, the claim runs out.
            claim.fail().await.ok();
            Err(failure)
        }
    }
}

const LOST_HELP: &str = "another caller may run the command again; check what it left half done, a longer --ttl rides \
    out longer outages";

/// Prints what another caller's command printed, and exits as it did.
fn repeat(done: &Done) -> Result<u8, Failure> {
    let kept: Kept = done.read().map_err(|error| {
        Failure::new(
            65,
            format!("{error}"),
            "this key's result was stored by something else than `baton once`",
        )
    })?;
    let (printed, mut out) = (kept.printed()?, std::io::stdout().lock());
    // If nobody reads it, the command's exit code is still the answer.
    out.write_all(&printed).and_then(|()| out.flush()).ok();
    if kept.truncated {
        writeln!(std::io::stderr(), "baton: the command printed more than is kept").ok();
    }
    Ok(kept.exit_code)
}
