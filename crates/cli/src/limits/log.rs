//! `baton limits audit` and `baton limits lease-log`: what was decided and what became of leases, line by line.

use crate::failure::Failure;
use crate::output;
use baton_client::Baton;
use baton_client::limit::LogQuery;
use baton_client::wire_limit::{LimitLog, LimitLogLine};

/// Lines on one page.
const PAGE: u64 = 500;

pub const HELP: &str = "Examples:\n  \
    baton limits audit bills\n  \
    baton limits audit bills --key acme --limit 100\n  \
    baton limits audit bills --after 17.4 --output json      goes on after that line\n\n\
    Oldest first. Every line has a cursor; with --output json `nextCursor` says where to go on, and is null at the end.";

#[derive(clap::Args, Debug)]
pub struct LogArguments {
    /// The limit
    name: String,
    /// Only lines about this key
    #[arg(long)]
    key: Option<String>,
    /// Stop after this many
    #[arg(long, default_value_t = 1000)]
    limit: u64,
    /// Go on after the line with this cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

/// Which log.
#[derive(Clone, Copy)]
pub enum Log {
    Audit,
    Leases,
}

pub async fn run(log: Log, arguments: LogArguments, baton: &Baton, json: bool) -> Result<u8, Failure> {
    let LogArguments { name, key, limit, after } = arguments;
    let asked = baton.limit(name);
    let mut query = LogQuery { key, limit: None, cursor: after };
    let mut all = LimitLog { lines: Vec::new(), next_cursor: None };
    loop {
        query.limit = Some(PAGE.min(limit.saturating_sub(all.lines.len() as u64)).max(1));
        let page = match log {
            Log::Audit => asked.audit(&query).await?,
            Log::Leases => asked.lease_log(&query).await?,
        };
        all.lines.extend(page.lines);
        (query.cursor, all.next_cursor) = (page.next_cursor.clone(), page.next_cursor);
        if query.cursor.is_none() || all.lines.len() as u64 >= limit {
            break;
        }
    }
    if json {
        output::json(&all)?;
    } else if all.lines.is_empty() {
        output::line("nothing is written down")?;
    } else {
        show(log, all)?;
    }
    Ok(0)
}

fn show(log: Log, all: LimitLog) -> Result<(), Failure> {
    let rows = all.lines.into_iter().map(|line| {
        let LimitLogLine { event, at, key, amount, remaining, source, by, request_id, lease_id, .. } = line;
        let spent = line.spent.map(|spent| spent.to_string());
        [
            output::utc(at),
            event,
            key,
            amount.to_string(),
            remaining.to_string(),
            source.or(spent).unwrap_or_default(),
            by.unwrap_or_default(),
            request_id.or(lease_id).unwrap_or_default(),
            line.cursor,
        ]
    });
    let sixth = match log {
        Log::Audit => "DECIDED",
        Log::Leases => "SPENT",
    };
    output::table(["AT", "EVENT", "KEY", "AMOUNT", "LEFT", sixth, "BY", "ID", "CURSOR"], rows.collect())?;
    if all.next_cursor.is_some() {
        output::line("... and more: raise --limit, or go on with --after")?;
    }
    Ok(())
}
