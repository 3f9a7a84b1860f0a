//! `baton cron`: jobs at a server, and when a schedule would be due (J11), for which no server is asked.

mod apply;
pub mod calendars;
pub mod jobs;

use crate::client::ClientOptions;
use crate::failure::{Failure, USAGE};
use crate::output::{self, Format};
use baton_client::ErrorBody;
use baton_client::wire_calendar::UsedCalendar;
use baton_client::wire_preview::{DstPolicy, PreviewRequest, PreviewResponse, TouchedBy};
use baton_core::WallTime;
use baton_core::cron::{self, Closures};
use baton_server::http::preview::preview;
use std::time::{SystemTime, UNIX_EPOCH};

/// The exit code when there is no next time.
const NEVER: u8 = 69;
/// The namespace that jobs are in, unless said otherwise.
const NAMESPACE_DEFAULT: &str = "default";

#[derive(clap::Subcommand, Debug)]
pub enum CronCommand {
    /// Show how a schedule reads and when it is due next; exits with 69 if that is never
    #[command(after_help = HELP)]
    Next(NextArguments),
    /// Days that jobs leave out or move
    #[command(subcommand)]
    Calendar(calendars::CalendarCommand),
    #[command(flatten)]
    Jobs(jobs::JobsCommand),
}

const HELP: &str = "Examples:\n  \
    baton cron next '30 2 * * MON-FRI' --tz Europe/Berlin\n  \
    baton cron next '30 2 * * *' --tz Europe/Berlin --from 2026-10-24T00:00:00Z --dst literal\n  \
    baton cron next 'H H(0-5) * * *' --name nightly-report\n  \
    baton cron next '@every 90s' --count 3 --output json\n  \
    baton cron next '0 9 1 * *' --calendar holidays=move_to_next\n\n\
    Nothing is asked of a server, unless calendars are named, which it has. Times that a change of clocks moves, repeats or keeps from being repeated are marked. \
    A schedule that can't be read is shown with a caret under its fault, and exits with 64.";

#[derive(clap::Args, Debug)]
pub struct NextArguments {
    /// Five fields (minute, hour, day of month, month, day of week), six with seconds before them, or @daily, @every 90s
    #[arg(value_name = "EXPR")]
    schedule: String,
    /// The time zone, as in the IANA database
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    tz: String,
    /// What changes of clocks do: vixie runs a fixed time once, literal skips the gap and repeats what is repeated
    #[arg(long, default_value = "vixie", value_parser = ["vixie", "literal"])]
    dst: String,
    /// How many times, up to 100
    #[arg(long, default_value_t = 10, value_name = "N")]
    count: u64,
    /// The job's name, of which an H in the schedule is a hash
    #[arg(long, value_name = "JOB")]
    name: Option<String>,
    /// Only times after this one, like 2026-03-28T00:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// A calendar to go by, and what becomes of times on its days: exclude, move_to_next or move_to_previous; up to 4
    #[arg(long = "calendar", value_name = "NAME=POLICY", value_parser = read_calendar)]
    calendars: Vec<UsedCalendar>,
}

fn read_calendar(text: &str) -> Result<UsedCalendar, String> {
    let (name, policy) = text.rsplit_once('=').ok_or("write it like holidays=exclude")?;
    let policy = serde_json::from_value(policy.into())
        .map_err(|_| "the policy is exclude, move_to_next or move_to_previous")?;
    Ok(UsedCalendar { name: name.into(), policy })
}

pub async fn next(arguments: NextArguments, client: &ClientOptions) -> Result<u8, Failure> {
    let from = arguments.from.as_deref().map(read_time).transpose()?;
    let request = PreviewRequest {
        time_zone: Some(arguments.tz),
        dst: Some(if arguments.dst == "literal" { DstPolicy::Literal } else { DstPolicy::Vixie }),
        name: arguments.name,
        count: Some(arguments.count),
        from: from.map(|from| from.0),
        calendars: arguments.calendars,
        ..PreviewRequest::new(arguments.schedule)
    };
    let namespace = client.namespace.as_deref().unwrap_or(NAMESPACE_DEFAULT);
    let shown = match request.calendars.is_empty() {
        true => preview(&request, namespace, Closures::default(), now())
            .map_err(|error| refused(&request.schedule, error))?,
        false => client.connect().await?.preview(&request).await?,
    };
    if client.output == Format::Json { output::json(&shown) } else { print(&shown) }?;
    Ok(if shown.never_fires { NEVER } else { 0 })
}

fn read_time(text: &str) -> Result<WallTime, Failure> {
    cron::time_of(text).ok_or_else(|| {
        let message = format!("{text:?} is not a time from 1970 on");
        Failure::new(USAGE, message, "write it like 2026-03-28T00:00:00Z or 2026-03-28T00:00:00+01:00")
    })
}

fn now() -> WallTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn print(shown: &PreviewResponse) -> Result<(), Failure> {
    let dst = match shown.dst {
        DstPolicy::Vixie => "vixie",
        DstPolicy::Literal => "literal",
    };
    output::fields(vec![
        ("schedule", shown.schedule.clone()),
        ("reads", shown.reading.clone()),
        ("zone", format!("{}, {dst}", shown.time_zone)),
        ("", String::new()),
    ])?;
    if shown.never_fires {
        return output::line("never: there is no such time");
    }
    let rows = shown.next.iter().map(|time| {
        let note = match time.touched_by {
            Some(TouchedBy::MovedFromGap) => "its time doesn't exist that day: right after the gap",
            Some(TouchedBy::Repeated) => "for the second time",
            Some(TouchedBy::RepeatSkipped) => "its time comes again, and is passed over then",
            None => "",
        };
        let note = match (&time.moved_from, time.excluded) {
            (_, true) => "left out by a calendar".to_owned(),
            (Some(from), _) => format!("moved from {from} by a calendar"),
            (None, false) => note.to_owned(),
        };
        [time.local.replace('T', " "), output::utc(time.at), output::from_now(time.at), note]
    });
    output::table(["LOCAL", "UTC", "FROM NOW", "NOTE"], rows.collect())
}

/// With a caret under the fault, if its place is known.
fn refused(schedule: &str, error: ErrorBody) -> Failure {
    let help = match error.field.as_deref() {
        Some("name") => "give the job's name with --name",
        Some("count") => "--count is from 1 to 100",
        _ => "see --help for examples",
    };
    let message = match error.position {
        Some(position) => {
            let (start, end) = (usize::from(position.start), usize::from(position.end));
            format!("{}\n{}", error.message, caret(schedule, start, end))
        }
        None => error.message,
    };
    Failure::new(USAGE, message, help)
}

/// Two lines: the text, and a mark below the bytes at fault.
fn caret(text: &str, start: usize, end: usize) -> String {
    let columns = |part: Option<&str>| part.map_or(0, |part| part.chars().count());
    let before = " ".repeat(columns(text.get(..start)));
    let below = "^".repeat(columns(text.get(start..end)).max(1));
    format!("  {}\n  {before}{below}", output::printable(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_is_under_what_is_at_fault() {
        assert_eq!(caret("0 25 * * *", 2, 4), "  0 25 * * *\n    ^^");
        assert_eq!(caret("0 0 * *", 7, 7), "  0 0 * *\n         ^");
        assert_eq!(caret("ü\u{1b} 0", 0, 3), "  ü\u{fffd} 0\n  ^^", "characters are counted, not bytes");
        assert_eq!(caret("ü", 1, 9), "  ü\n  ^");
    }
}
