//! What goes to standard output: JSON for programs, tables for people.

use crate::duration;
use crate::failure::Failure;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How to print what a command found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    /// As the server says it.
    Json,
    /// For people.
    Table,
}

/// Prints a value as JSON: indented on a terminal, one line otherwise.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        serde_json::to_writer_pretty(&mut out, value)?;
    } else {
        serde_json::to_writer(&mut out, value)?;
    }
    writeln!(out)?;
    Ok(())
}

/// Prints a value of a stream as JSON: always one line, at once.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(value)?)
}

/// Prints one line.
pub fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Prints text as it is, at once.
pub fn part(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Prints rows under a header.
pub fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> Result<(), Failure> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for row in rows {
        table.add_row(row.map(printable));
    }
    line(trimmed(&table))
}

/// Prints names and their values.
pub fn fields(rows: Vec<(&str, String)>) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for (name, value) in rows {
        table.add_row([name.to_owned(), printable(value)]);
    }
    line(trimmed(&table))
}

fn trimmed(table: &Table) -> String {
    let lines: Vec<_> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Owners and reasons come from others: they don't get to steer this terminal.
pub fn printable(text: String) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// How far a time of the server's is from now, by this machine's clock; for display only.
pub fn from_now(at_ms: u64) -> String {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
    // What has just happened, in this very millisecond, is over.
    match now_ms.checked_sub(at_ms) {
        Some(since) => format!("{} ago", duration::show(Duration::from_millis(since))),
        None => format!("in {}", duration::show(Duration::from_millis(at_ms - now_ms))),
    }
}

/// A time of the server's in UTC.
pub fn utc(at_ms: u64) -> String {
    let seconds = at_ms / 1_000;
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of year 0, so that the leap day is a year's last.
    let day = day + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second % 3_600 / 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_700_000_000, "2023-11-14 22:13:20Z"),
            (4_102_444_799, "2099-12-31 23:59:59Z"),
        ] {
            assert_eq!(utc(seconds * 1_000), text);
        }
    }

    #[test]
    fn what_others_wrote_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc".into()), "a\u{fffd}[2Jb\u{fffd}c");
    }
}
