//! The commands of `baton cron` that are about jobs at a server.

use super::read_time;
use crate::client::ClientOptions;
use crate::failure::Failure;
use crate::output::{self, Format};
use baton_client::wire_job::{JobStatus, JobTarget, Missed, Run};
use baton_client::{Baton, Error, ErrorCode, ListQuery};
use std::path::PathBuf;
use std::time::Duration;

/// Jobs on one page.
const PAGE: u64 = 500;
/// Between two looks at a run whose output is followed.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// The exit code when there is no such job or run.
const NOTHING: u8 = 69;

#[derive(clap::Subcommand, Debug)]
pub enum JobsCommand {
    /// Define the jobs and calendars of a YAML file: all are looked at before any is changed
    #[command(after_help = super::apply::HELP)]
    Apply {
        /// The file; `-` reads standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
        /// Remove the jobs of the namespace that the file doesn't name, with what became of their runs
        #[arg(long)]
        prune: bool,
    },
    /// List jobs
    #[command(visible_alias = "list")]
    Ls {
        /// Only names that begin with this
        #[arg(long)]
        prefix: Option<String>,
        /// Stop after this many
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
    /// Show a job; exits with 69 if there is none
    Show {
        /// The job
        job: String,
    },
    /// Run a job now
    Run {
        /// The job
        job: String,
        /// Wait for the run's end, print its output, and exit with 1 if it didn't succeed
        #[arg(long)]
        wait: bool,
        /// A name for this request: the same one gives the same run
        #[arg(long, value_name = "ID")]
        request_id: Option<String>,
    },
    /// Show what became of a job's times, the newest first
    Runs {
        /// The job
        job: String,
        /// How many at most
        #[arg(long, default_value_t = 20)]
        limit: u64,
    },
    /// Print the end of a run's output
    Logs {
        /// The run's id
        run: String,
        /// Go on until the run has ended: what a worker's command prints as it comes, what else is written when an attempt has ended
        #[arg(short, long)]
        follow: bool,
    },
    /// Let a job's schedule not count until it is resumed; what runs goes on
    Pause {
        /// The job
        job: String,
    },
    /// Let a job's schedule count again
    Resume {
        /// The job
        job: String,
        /// What happens to the times that passed meanwhile [default: as the job says]
        #[arg(long, value_parser = ["skip", "latest", "all"])]
        missed: Option<String>,
    },
    /// Run the times of a job's schedule in a range, one after the other
    Backfill {
        /// The job
        job: String,
        /// The first moment, like 2026-03-28T00:00:00Z
        #[arg(long, value_name = "TIME")]
        from: String,
        /// The first moment that isn't in it any more
        #[arg(long, value_name = "TIME")]
        to: String,
    },
    /// Call a run off: whoever runs it is stopped
    Cancel {
        /// The run's id
        run: String,
    },
    /// Remove a job, and what became of its runs
    #[command(visible_alias = "remove")]
    Rm {
        /// The job
        job: String,
    },
}

pub async fn run(command: JobsCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let json = client.output == Format::Json;
    if let JobsCommand::Apply { file, dry_run, prune } = &command {
        return super::apply::run(file, *dry_run, *prune, client).await;
    }
    let baton = client.connect().await?;
    match command {
        JobsCommand::Apply { .. } => Ok(0),
        JobsCommand::Ls { prefix, limit } => list(&baton, prefix, limit, json).await,
        JobsCommand::Show { job } => match baton.jobs().get(&job).await? {
            Some(status) => show_job(&status, json),
            None => Err(no_job(&job)),
        },
        JobsCommand::Run { job, wait, request_id } => run_now(&baton, &job, wait, request_id, json).await,
        JobsCommand::Runs { job, limit } => runs(&baton, &job, limit, json).await,
        JobsCommand::Logs { run, follow } => logs(&baton, &run, follow, json).await,
        JobsCommand::Pause { job } => show_job(&baton.job(&job).pause().await.map_err(of(&job))?, json),
        JobsCommand::Resume { job, missed } => {
            let missed = missed.map(|missed| match missed.as_str() {
                "skip" => Missed::Skip,
                "all" => Missed::All,
                _ => Missed::Latest,
            });
            show_job(&baton.job(&job).resume(missed).await.map_err(of(&job))?, json)
        }
        JobsCommand::Backfill { job, from, to } => {
            let (from, to) = (read_time(&from)?.0, read_time(&to)?.0);
            let times = baton.job(&job).backfill(from, to).await.map_err(of(&job))?;
            match json {
                true => output::json(&serde_json::json!({ "name": job, "times": times }))?,
                false => output::line(format_args!(
                    "{times} times of {job:?} run one after the other; `baton cron runs {job}` shows them"
                ))?,
            }
            Ok(0)
        }
        JobsCommand::Cancel { run } => show_run(&baton.jobs().cancel(&run).await?, json),
        JobsCommand::Rm { job } => match baton.jobs().remove(&job).await? {
            true => {
                output::line(format_args!("removed {job:?}"))?;
                Ok(0)
            }
            false => Err(no_job(&job)),
        },
    }
}

fn no_job(job: &str) -> Failure {
    let help = "`baton cron ls` lists them, `baton cron apply -f FILE` defines them";
    Failure::new(NOTHING, format!("there is no job {job:?}"), help)
}

/// An error of a call about a job.
fn of(job: &str) -> impl FnOnce(Error) -> Failure {
    move |error| match error.code() {
        Some(ErrorCode::JobNotFound) => no_job(job),
        _ => error.into(),
    }
}

async fn list(baton: &Baton, prefix: Option<String>, limit: u64, json: bool) -> Result<u8, Failure> {
    let mut found: Vec<JobStatus> = Vec::new();
    let mut query = ListQuery { prefix, ..ListQuery::default() };
    loop {
        let left = limit.saturating_sub(found.len() as u64);
        if left == 0 {
            break;
        }
        query.limit = Some(left.min(PAGE));
        let page = baton.jobs().list(&query).await?;
        found.extend(page.jobs);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if json {
        output::json(&found)?;
    } else if found.is_empty() {
        output::line("no job is defined; `baton cron apply -f FILE` defines some")?;
    } else {
        let rows = found.iter().map(|job| {
            let definition = &job.definition;
            [
                job.name.clone(),
                definition.schedule.clone().unwrap_or_else(|| "-".into()),
                definition.time_zone.clone().unwrap_or_default(),
                target(&definition.target),
                job.next_at.map_or("-".into(), output::from_now),
                job.last_success_at.map_or("never".into(), output::from_now),
                state(job),
            ]
        });
        let header = ["JOB", "SCHEDULE", "ZONE", "TARGET", "NEXT", "LAST SUCCESS", ""];
        output::table(header, rows.collect())?;
        if query.cursor.is_some() {
            output::line("... and more: raise --limit, or say --prefix")?;
        }
    }
    Ok(0)
}

fn target(target: &JobTarget) -> String {
    match target {
        JobTarget::Http(http) => format!("{} {}", http.method.as_deref().unwrap_or("POST"), http.url),
        JobTarget::Worker(worker) => format!("worker {}", worker.queue),
        JobTarget::Command(command) => format!("command {}", command.program),
    }
}

fn state(job: &JobStatus) -> String {
    let mut words = Vec::new();
    if job.definition.enabled == Some(false) {
        words.push("disabled".to_owned());
    }
    if job.paused_at.is_some() {
        words.push("paused".into());
    }
    if job.overdue {
        words.push("overdue".into());
    }
    if job.active > 0 {
        words.push(format!("{} running", job.active));
    }
    if job.queued > 0 {
        words.push(format!("{} waiting", job.queued));
    }
    words.join(", ")
}

fn show_job(job: &JobStatus, json: bool) -> Result<u8, Failure> {
    if json {
        output::json(job)?;
        return Ok(0);
    }
    let definition = &job.definition;
    let time = |at: Option<u64>, otherwise: &str| match at {
        Some(at) => format!("{} ({})", output::utc(at), output::from_now(at)),
        None => otherwise.to_owned(),
    };
    let word = |value: serde_json::Result<serde_json::Value>| match value {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    };
    let counts = job.counts;
    output::fields(vec![
        ("job", job.name.clone()),
        ("schedule", definition.schedule.clone().unwrap_or_else(|| "none: it runs when asked to".into())),
        ("zone", definition.time_zone.clone().unwrap_or_default()),
        ("target", target(&definition.target)),
        ("guarantee", word(serde_json::to_value(definition.guarantee))),
        ("overlap", word(serde_json::to_value(definition.overlap))),
        ("missed", word(serde_json::to_value(definition.missed))),
        ("next", time(job.next_at, "-")),
        ("last success", time(job.last_success_at, "never")),
        ("paused", time(job.paused_at, "no")),
        ("under way", format!("{}, {} waiting, {} to catch up", job.active, job.queued, job.catching_up)),
        (
            "runs",
            format!(
                "{} begun, {} succeeded, {} failed, {} skipped, {} unknown",
                counts.started, counts.succeeded, counts.failed, counts.skipped, counts.unknown
            ),
        ),
    ])?;
    Ok(0)
}

async fn run_now(
    baton: &Baton,
    job: &str,
    wait: bool,
    request_id: Option<String>,
    json: bool,
) -> Result<u8, Failure> {
    let asked = match request_id {
        Some(id) => baton.job(job).run_as(id).await,
        None => baton.job(job).run().await,
    };
    let id = asked.map_err(of(job))?;
    if !wait {
        match json {
            true => output::json(&serde_json::json!({ "name": job, "runId": id }))?,
            false => output::line(id)?,
        }
        return Ok(0);
    }
    let run = baton.jobs().wait(&id).await?;
    if json {
        output::json(&run)?;
    } else {
        print_output(&run)?;
    }
    ended(&run)
}

/// How a command ends that waited for a run.
fn ended(run: &Run) -> Result<u8, Failure> {
    match run.outcome.as_deref() {
        Some("succeeded") => Ok(0),
        outcome => {
            let why = run.reason.as_deref().map(|reason| format!(", {reason}")).unwrap_or_default();
            let said = if run.message.is_empty() { String::new() } else { format!(": {}", run.message) };
            let message = format!("run {} {}{why}{said}", run.run_id, outcome.unwrap_or("has not ended"));
            let help = format!("`baton cron logs {}` has the end of its output", run.run_id);
            Err(Failure::new(1, output::printable(message), help))
        }
    }
}

async fn runs(baton: &Baton, job: &str, limit: u64, json: bool) -> Result<u8, Failure> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    while (found.len() as u64) < limit {
        let left = (limit - found.len() as u64).min(PAGE);
        let page = baton.job(job).runs(Some(left), cursor.as_deref()).await.map_err(of(job))?;
        found.extend(page.runs);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if json {
        output::json(&found)?;
    } else if found.is_empty() {
        output::line(format_args!("no run of {job:?} is kept"))?;
    } else {
        let rows = found.iter().map(|run| {
            [
                output::utc(run.scheduled_at),
                run.trigger.clone(),
                progress(run),
                run.attempt.to_string(),
                run.message.clone(),
                run.run_id.clone(),
            ]
        });
        output::table(["FOR", "BY", "STATE", "ATTEMPTS", "", "RUN"], rows.collect())?;
    }
    Ok(0)
}

fn progress(run: &Run) -> String {
    let state = serde_json::to_value(run.state).ok().and_then(|state| state.as_str().map(str::to_owned));
    let state = run.outcome.clone().or(state).unwrap_or_default();
    let times = run.times.map(|times| format!(", {times} times")).unwrap_or_default();
    match &run.reason {
        Some(reason) => format!("{state} ({reason}{times})"),
        None => state,
    }
}

fn show_run(run: &Run, json: bool) -> Result<u8, Failure> {
    if json {
        output::json(run)?;
        return Ok(0);
    }
    output::line(format_args!("run {} of {:?}: {}", run.run_id, run.job, progress(run)))?;
    Ok(0)
}

async fn logs(baton: &Baton, id: &str, follow: bool, json: bool) -> Result<u8, Failure> {
    let mut shown = (0, String::new());
    loop {
        let run = baton.jobs().run(id).await?;
        let has_ended = run.ended_at.is_some();
        let so_far = if shown.0 == run.attempt { shown.1.as_str() } else { "" };
        let news = news(so_far, &run.output);
        if json && (!news.is_empty() || has_ended || !follow) {
            output::json_line(&run)?;
        } else if !news.is_empty() {
            print_text(news, has_ended || !follow)?;
        }
        if !run.output.is_empty() {
            shown = (run.attempt, run.output.clone());
        }
        if has_ended || !follow {
            return if follow { ended(&run) } else { Ok(0) };
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What is new in the end of an output, of which an earlier end is known: all of it if the two have nothing in common.
fn news<'a>(known: &str, now: &'a str) -> &'a str {
    let starts = known.char_indices().map(|(start, _)| start);
    let overlap = starts.map(|start| &known[start..]).find(|end| now.starts_with(end));
    &now[overlap.map_or(0, str::len)..]
}

/// What a command or a target wrote: its lines as they are, but nothing that steers the terminal.
fn print_output(run: &Run) -> Result<(), Failure> {
    if run.output.is_empty() { Ok(()) } else { print_text(&run.output, true) }
}

/// The same; a line that may go on isn't ended.
fn print_text(text: &str, is_last: bool) -> Result<(), Failure> {
    let plain: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    match is_last {
        true => output::line(plain.trim_end_matches('\n')),
        false => output::part(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::news;

    #[test]
    fn what_is_new_in_an_output_is_what_comes_after_what_was_known() {
        for (known, now, new) in [
            ("", "", ""),
            ("", "a", "a"),
            ("ab", "ab", ""),
            ("ab", "abc", "c"),
            // Only the end is kept.
            ("abcd", "cdef", "ef"),
            ("ab", "xy", "xy"),
            ("aé", "éb", "b"),
        ] {
            assert_eq!(news(known, now), new, "{known} {now}");
        }
    }
}
