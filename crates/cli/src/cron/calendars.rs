//! `baton cron calendar`: days that jobs leave out or move (J13).

use crate::client::ClientOptions;
use crate::failure::Failure;
use crate::output::{self, Format};
use baton_client::ListQuery;
use baton_client::wire_calendar::{CalendarDay, CalendarDefinition, CalendarStatus};

/// Calendars on one page.
const PAGE: u64 = 500;
/// The exit code when there is no such calendar.
const NOTHING: u8 = 69;

#[derive(clap::Subcommand, Debug)]
pub enum CalendarCommand {
    /// Define a calendar, or change it: all its days are given; jobs that use it go by it at once
    #[command(after_help = HELP)]
    Put {
        /// The calendar
        name: String,
        /// A date, a day of every year, a weekday, or a range of one of these; with a note after `=`
        #[arg(value_name = "DAY[=NOTE]")]
        days: Vec<String>,
    },
    /// Show a calendar; exits with 69 if there is none
    Show {
        /// The calendar
        name: String,
    },
    /// List calendars
    #[command(visible_alias = "list")]
    Ls {
        /// Only names that begin with this
        #[arg(long)]
        prefix: Option<String>,
    },
    /// Remove a calendar that no job uses
    #[command(visible_alias = "remove")]
    Rm {
        /// The calendar
        name: String,
    },
}

const HELP: &str = "Examples:\n  \
    baton cron calendar put holidays 12-25..12-26=Christmas 2027-03-26=\"Good Friday\"\n  \
    baton cron calendar put closed SAT..SUN 2026-12-24..2027-01-02\n\n\
    A job goes by a calendar if it says so: calendars: [{name: holidays, policy: exclude}]. `baton cron apply` takes calendars \
    from a file, beside the jobs.";

pub async fn run(command: CalendarCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let json = client.output == Format::Json;
    let calendars = client.connect().await?.calendars();
    match command {
        CalendarCommand::Put { name, days } => {
            let days = days.iter().map(|text| day(text)).collect();
            let put = calendars.put(&name, &CalendarDefinition { days }).await?;
            match json {
                true => output::json(&put)?,
                false => output::line(format_args!(
                    "{} {name:?}, which {} jobs use",
                    put.status.unwrap_or_default().to_lowercase(),
                    put.jobs.unwrap_or_default()
                ))?,
            }
        }
        CalendarCommand::Show { name } => match calendars.get(&name).await? {
            Some(calendar) if json => output::json(&calendar)?,
            Some(calendar) => {
                let row = |day: &CalendarDay| [day.day.clone(), day.note.clone().unwrap_or_default()];
                output::table(["DAY", "NOTE"], calendar.days.iter().map(row).collect())?;
            }
            None => return Err(no_calendar(&name)),
        },
        CalendarCommand::Ls { prefix } => {
            let mut found: Vec<CalendarStatus> = Vec::new();
            let mut query = ListQuery { prefix, limit: Some(PAGE), ..ListQuery::default() };
            loop {
                let page = calendars.list(&query).await?;
                found.extend(page.calendars);
                query.cursor = page.next_cursor;
                if query.cursor.is_none() {
                    break;
                }
            }
            if json {
                output::json(&found)?;
            } else if found.is_empty() {
                output::line("no calendar is defined; `baton cron calendar put` defines one")?;
            } else {
                let row = |one: &CalendarStatus| {
                    [one.name.clone(), one.days.len().to_string(), output::from_now(one.changed_at)]
                };
                output::table(["CALENDAR", "ENTRIES", "CHANGED"], found.iter().map(row).collect())?;
            }
        }
        CalendarCommand::Rm { name } => match calendars.remove(&name).await? {
            true => output::line(format_args!("removed {name:?}"))?,
            false => return Err(no_calendar(&name)),
        },
    }
    Ok(0)
}

/// `12-25=Christmas`
fn day(text: &str) -> CalendarDay {
    match text.split_once('=') {
        Some((day, note)) => CalendarDay { day: day.into(), note: Some(note.into()) },
        None => CalendarDay { day: text.into(), note: None },
    }
}

fn no_calendar(name: &str) -> Failure {
    let help = "`baton cron calendar ls` lists them, `baton cron calendar put` defines one";
    Failure::new(NOTHING, format!("there is no calendar {name:?}"), help)
}
