//! `baton elections`: who leads, who stands by, what changes.

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::Failure;
use crate::output::{self, Format};
use baton_client::wire_election::{ElectionEvent, ElectionEventKind};
use baton_client::{Elections, ErrorCode, ListQuery};
use std::time::Duration;

/// Elections on one page.
const PAGE: u64 = 500;

#[derive(clap::Subcommand, Debug)]
pub enum ElectionsCommand {
    /// List the elections that somebody leads
    Ls {
        /// Only names that begin with this
        #[arg(long)]
        prefix: Option<String>,
        /// Stop after this many
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
    /// Show who leads an election and who stands by; exits with 69 if nobody leads
    Show {
        /// The election
        name: String,
    },
    /// Print who leads an election, now and whenever it changes
    Observe {
        /// The election
        name: String,
        /// Print first who led since this epoch, as far as it is remembered
        #[arg(long, value_name = "EPOCH")]
        after: Option<u64>,
    },
}

pub async fn run(command: ElectionsCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let elections = client.connect().await?.elections();
    let json = client.output == Format::Json;
    match command {
        ElectionsCommand::Ls { prefix, limit } => list(&elections, prefix, limit, json).await,
        ElectionsCommand::Show { name } => show(&elections, &name, json).await,
        ElectionsCommand::Observe { name, after } => observe(&elections, &name, after, json).await,
    }
}

async fn list(elections: &Elections, prefix: Option<String>, limit: u64, json: bool) -> Result<u8, Failure> {
    let mut found = Vec::new();
    let mut query = ListQuery { prefix, ..ListQuery::default() };
    loop {
        let left = limit.saturating_sub(u64::try_from(found.len()).unwrap_or(u64::MAX));
        if left == 0 {
            break;
        }
        query.limit = Some(left.min(PAGE));
        let page = elections.list(&query).await?;
        found.extend(page.elections);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if json {
        output::json(&found)?;
    } else if found.is_empty() {
        output::line("nobody leads anything")?;
    } else {
        let rows = found.into_iter().map(|one| {
            let (epoch, standing_by) = (one.epoch.to_string(), one.candidate_count.to_string());
            [one.election, one.leader, epoch, output::from_now(one.expires_at), standing_by]
        });
        output::table(["ELECTION", "LEADER", "EPOCH", "EXPIRES", "STANDING BY"], rows.collect())?;
        if query.cursor.is_some() {
            output::line(format_args!("... and more: raise --limit, or say --prefix"))?;
        }
    }
    Ok(0)
}

async fn show(elections: &Elections, name: &str, json: bool) -> Result<u8, Failure> {
    let Some(status) = elections.status(name).await? else {
        if json {
            output::line("{\"leader\":null}")?;
        } else {
            output::line(format_args!("nobody leads {name:?}"))?;
        }
        return Ok(ErrorCode::NoLeader.exit_code());
    };
    if json {
        output::json(&status)?;
        return Ok(0);
    }
    output::fields(vec![
        ("election", status.election),
        ("leader", status.leader),
        ("epoch", status.epoch.to_string()),
        ("value", serde_json::to_string(&status.value)?),
        ("leads since", format!("{} ({})", output::utc(status.since), output::from_now(status.since))),
        ("expires", format!("{} unless renewed", output::from_now(status.expires_at))),
        ("ttl", duration::show(Duration::from_millis(status.ttl_millis))),
        ("renewals", status.renewals.to_string()),
        ("standing by", status.candidate_count.to_string()),
    ])?;
    let rows: Vec<_> = status
        .candidates
        .into_iter()
        .enumerate()
        .map(|(index, one)| {
            let priority = one.priority.map_or("named".to_owned(), |priority| priority.to_string());
            let for_long = duration::show(Duration::from_millis(one.waiting_millis));
            let call = if one.connected { "standing by" } else { "away, place kept" };
            [(index + 1).to_string(), one.candidate_id, priority, for_long, call.to_owned()]
        })
        .collect();
    if !rows.is_empty() {
        output::table(["PLACE", "CANDIDATE", "PRIORITY", "FOR", "CALL"], rows)?;
    }
    Ok(0)
}

async fn observe(elections: &Elections, name: &str, after: Option<u64>, json: bool) -> Result<u8, Failure> {
    let mut observer = elections.observe(name)?;
    if let Some(after) = after {
        observer = observer.after(after);
    }
    loop {
        let event = observer.next().await?;
        if json {
            output::json_line(&event)?;
        } else {
            output::line(line(event)?)?;
        }
    }
}

fn line(event: ElectionEvent) -> Result<String, Failure> {
    let epoch = event.epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
    let leader = output::printable(event.leader.unwrap_or_default());
    let since = event.since.map(output::utc).unwrap_or_default();
    let value = event.value.map(|value| serde_json::to_string(&value)).transpose()?.unwrap_or_default();
    Ok(match event.event {
        ElectionEventKind::Leader => {
            format!("leader  {epoch}  {leader}  {since}  {}", output::printable(value))
        }
        ElectionEventKind::Past => format!("past    {epoch}  {leader}  {since}"),
        ElectionEventKind::Vacant => format!("vacant  {epoch}"),
    })
}
