//! `baton worker QUEUE -- CMD`: takes the runs of a queue, and runs a command for each (J7).

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::Failure;
use crate::lock::command::{self, Ended};
use crate::lock::kind::HeldLease;
use crate::lock::signals::{Signals, asks_to_stop};
use crate::once::tee::Tee;
use baton_client::Baton;
use baton_client::worker::{ClaimedRun, WorkerRun};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

/// Signals that wait for commands that are busy; of more, the later ones count.
const SIGNALS_MAX: usize = 16;
/// How often what a command prints is shown with its run, if there is more.
const REPORT_EVERY: Duration = Duration::from_secs(1);

pub const HELP: &str = "Examples:\n  \
    baton worker reports -- ./report.sh\n  \
    baton worker thumbnails --concurrency 4 --lease 1m -- ./make-thumbnail\n\n\
    The command finds BATON_RUN_ID (the same for every attempt of a run), BATON_FENCING_TOKEN, BATON_SCHEDULED_AT (milliseconds \
    since 1970), BATON_ATTEMPT, BATON_JOB, BATON_QUEUE and BATON_PAYLOAD in its environment. Exit code 0 completes the run, any other \
    fails the attempt, and the end of what it prints is kept with the run. If the run is called off or its lease lost, the \
    command's whole process group gets SIGTERM, and SIGKILL after --grace. The first SIGTERM or SIGINT drains: nothing more is taken, \
    and baton exits with 0 when the commands have ended; others are passed on to the commands.";

#[derive(clap::Args, Debug)]
pub struct WorkerArguments {
    /// The queue that jobs name as their target
    queue: String,
    /// How many commands at a time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// How long this worker may not be heard of before its runs are another's
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "DURATION")]
    lease: Duration,
    /// Who we are to others [default: host, process id and random digits]
    #[arg(long)]
    owner: Option<String>,
    /// How long a command has to end after SIGTERM when its run is lost, before SIGKILL
    #[arg(long, default_value = "5s", value_parser = duration::parse, value_name = "DURATION")]
    grace: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub async fn run(arguments: WorkerArguments, client: &ClientOptions) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let mut builder = Baton::builder();
    if let Some(owner) = &arguments.owner {
        builder = builder.owner(owner);
    }
    let worker = client.connect_as(builder).await?.worker(arguments.queue.as_str()).lease(arguments.lease);
    let arguments = Arc::new(arguments);
    let pass = broadcast::Sender::new(SIGNALS_MAX);
    let mut under_way = JoinSet::<Result<(), Failure>>::new();
    let mut next = Some(Box::pin(worker.next()));
    loop {
        let has_room = under_way.len() < usize::from(arguments.concurrency);
        if next.is_none() && under_way.is_empty() {
            return Ok(0);
        }
        tokio::select! {
            biased;
            signal = signals.next() => {
                if asks_to_stop(signal) && next.take().is_some() {
                    say(format_args!("no more runs are taken; {} under way", under_way.len()));
                } else {
                    // Nobody may be left to hear it.
                    pass.send(signal).ok();
                }
            }
            Some(ended) = under_way.join_next(), if !under_way.is_empty() => {
                // A command that can't be started can't be for the next run either.
                ended.map_err(|error| Failure::new(70, error.to_string(), "this is a bug"))??;
            }
            run = async { next.as_mut()?.await.into() }, if has_room && next.is_some() => {
                if let Some(run) = run {
                    let signals = Signals::passed_on(pass.subscribe());
                    under_way.spawn(execute(arguments.clone(), run?, signals));
                    next = Some(Box::pin(worker.next()));
                }
            }
        }
    }
}

/// Runs the command for a run, and says what came of it.
async fn execute(
    arguments: Arc<WorkerArguments>,
    run: ClaimedRun,
    mut signals: Signals,
) -> Result<(), Failure> {
    let about = run.handle();
    let environment = [
        ("BATON_RUN_ID", about.id().to_owned()),
        ("BATON_FENCING_TOKEN", about.fencing_token().to_string()),
        ("BATON_SCHEDULED_AT", about.scheduled_at().to_string()),
        ("BATON_ATTEMPT", about.attempt().to_string()),
        ("BATON_JOB", about.job().to_owned()),
        ("BATON_QUEUE", arguments.queue.clone()),
        ("BATON_PAYLOAD", about.payload().to_owned()),
    ];
    let mut tee = Tee::of_the_end();
    let (command, lease) = (&arguments.command, HeldLease::Fenced(about.lease()));
    let grace = arguments.grace;
    let reported = about.clone();
    let report = report(&reported, tee.so_far());
    let running = command::run_in_background(command, &environment, &lease, grace, &mut signals, &mut tee);
    let ended = tokio::select! {
        ended = running => ended,
        never = report => match never {},
    };
    let (said, failure) = match ended {
        Ok(Ended::Itself { code: 0, .. }) => (run.complete(tee.end().await.bytes).await, Ok(())),
        Ok(Ended::Itself { code, .. }) => {
            (run.fail(&format!("exit code {code}"), tee.end().await.bytes).await, Ok(()))
        }
        Ok(Ended::Lost { lost, killed }) => {
            let how = if killed { "killed" } else { "stopped" };
            say(format_args!("run {}: {lost}; the command was {how}", about.id()));
            run.abandon();
            return Ok(());
        }
        Err(failure) => (run.fail(&failure.message, ()).await, Err(failure)),
    };
    if let Err(error) = said {
        say(format_args!("run {}: what came of it doesn't count: {error}", about.id()));
    }
    failure
}

/// Shows with the run what was printed so far, as it comes.
async fn report(run: &WorkerRun, so_far: impl Fn() -> Vec<u8>) -> Infallible {
    let mut shown = Vec::new();
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        let printed = so_far();
        if printed != shown {
            // Should it not get through, there is more to show the next time; whether the run is ours is the lease's to say.
            run.report(printed.clone()).await.ok();
            shown = printed;
        }
    }
}

fn say(what: std::fmt::Arguments<'_>) {
    // If nobody reads it, the work goes on all the same.
    writeln!(std::io::stderr(), "baton: {what}").ok();
}
