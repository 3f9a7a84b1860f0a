//! `baton locks`: looking at locks, and taking one away by force.

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::Failure;
use crate::output::{self, Format};
use baton_client::wire::{ForceReleaseResponse, LockEvent, LockStatus};
use baton_client::{ErrorCode, ListQuery, LockMode, LockWatch, Locks, Watched};
use std::time::Duration;

/// Locks on one page.
const PAGE: u64 = 500;

#[derive(clap::Subcommand, Debug)]
pub enum LocksCommand {
    /// List held locks
    Ls {
        /// Only keys that begin with this
        #[arg(long)]
        prefix: Option<String>,
        /// Stop after this many
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
    /// Show who holds a lock; exits with 69 if nobody does
    Show {
        /// The lock
        key: String,
    },
    /// Show who waits for a lock, next first
    Queue {
        /// The lock
        key: String,
    },
    /// Print what happens to a lock, or to all whose keys begin alike, as it happens
    Watch {
        /// The lock
        #[arg(required_unless_present = "prefix")]
        key: Option<String>,
        /// All locks whose keys begin with this; "" for all
        #[arg(long, conflicts_with = "key")]
        prefix: Option<String>,
    },
    /// Show what happened to a lock, newest first
    History {
        /// The lock
        key: String,
    },
    /// Take a lock from its holders, who may still be acting as if they held it
    #[command(
        after_help = "Mutual exclusion is broken by design: the holder learns of it at its next renewal. Let \
        the resource check fencing tokens, or make sure that the holder is really gone.\n\n\
        Example:\n  baton locks force-release nightly-report --reason \"pod crashed, see INC-123\""
    )]
    ForceRelease {
        /// The lock
        key: String,
        /// Why: kept in the lock's history
        #[arg(long)]
        reason: String,
        /// Only from the holder with this fencing token [default: from everybody who holds it]
        #[arg(long, value_name = "TOKEN")]
        token: Option<u64>,
        /// How long the lock stays closed to everybody afterwards
        #[arg(long, default_value = "0s", value_parser = duration::parse, value_name = "DURATION")]
        lock_delay: Duration,
    },
}

pub async fn run(command: LocksCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let locks = client.connect().await?.locks();
    let json = client.output == Format::Json;
    match command {
        LocksCommand::Ls { prefix, limit } => list(&locks, prefix, limit, json).await,
        LocksCommand::Show { key } => show(&locks, &key, json).await,
        LocksCommand::Queue { key } => queue(&locks, &key, json).await,
        LocksCommand::Watch { key: Some(key), .. } => watch(locks.watch(&key).await?, json).await,
        LocksCommand::Watch { key: None, prefix } => {
            watch(locks.watch_prefix(&prefix.unwrap_or_default()).await?, json).await
        }
        LocksCommand::History { key } => history(&locks, &key, json).await,
        LocksCommand::ForceRelease { key, reason, token, lock_delay } => {
            let mut force = locks.force(key, reason).lock_delay(lock_delay);
            if let Some(token) = token {
                force = force.only(token);
            }
            forced(&force.release().await?, json)
        }
    }
}

fn forced(forced: &ForceReleaseResponse, json: bool) -> Result<u8, Failure> {
    if json {
        output::json(forced)?;
        return Ok(0);
    }
    let mut fields = Vec::new();
    for holder in &forced.taken_from {
        fields.push(("taken from", holder.owner_id.clone()));
        let token = format!("{}: resources should refuse it from now on", holder.fencing_token);
        fields.push(("fencing token", token));
    }
    fields.push(("warning", forced.warning.clone()));
    output::fields(fields)?;
    Ok(0)
}

async fn list(locks: &Locks, prefix: Option<String>, limit: u64, json: bool) -> Result<u8, Failure> {
    let mut found = Vec::new();
    let mut query = ListQuery { prefix, ..ListQuery::default() };
    loop {
        let left = limit.saturating_sub(u64::try_from(found.len()).unwrap_or(u64::MAX));
        if left == 0 {
            break;
        }
        query.limit = Some(left.min(PAGE));
        let page = locks.list(&query).await?;
        found.extend(page.locks);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if json {
        output::json(&found)?;
    } else if found.is_empty() {
        output::line("no lock is held")?;
    } else {
        let rows = found.into_iter().map(|lock| {
            let (token, waiting) = (lock.fencing_token.to_string(), lock.queue_length.to_string());
            let others = if lock.holders > 1 { format!(" +{}", lock.holders - 1) } else { String::new() };
            let owner = format!("{}{others}", lock.owner_id);
            [
                lock.lock_key,
                owner,
                kind(lock.mode, lock.permits),
                output::from_now(lock.expires_at),
                token,
                waiting,
            ]
        });
        output::table(["KEY", "OWNER", "MODE", "EXPIRES", "TOKEN", "WAITING"], rows.collect())?;
        if query.cursor.is_some() {
            output::line(format_args!("... and more: raise --limit, or say --prefix"))?;
        }
    }
    Ok(0)
}

async fn show(locks: &Locks, key: &str, json: bool) -> Result<u8, Failure> {
    let status = locks.status(key).await?;
    match status {
        None if json => output::json(&baton_client::wire::NotLocked { locked: false })?,
        None => output::line(format_args!("{key:?} is free"))?,
        Some(ref lock) if json => output::json(lock)?,
        Some(ref lock) => shown(lock)?,
    }
    Ok(if status.is_some() { 0 } else { ErrorCode::LockNotFound.exit_code() })
}

/// In a word, with its number of permits.
fn kind(mode: LockMode, permits: Option<u16>) -> String {
    match permits {
        Some(permits) => format!("{} of {permits}", mode.as_str()),
        None => mode.as_str().to_owned(),
    }
}

fn shown(lock: &LockStatus) -> Result<(), Failure> {
    let mut fields = vec![("key", lock.lock_key.clone()), ("mode", kind(lock.mode, lock.permits))];
    for holder in &lock.holders {
        let since = format!("{} ({})", output::utc(holder.acquired_at), output::from_now(holder.acquired_at));
        fields.push(("owner", holder.owner_id.clone()));
        fields.push(("held since", since));
        fields.push(("expires", format!("{} unless renewed", output::from_now(holder.expires_at))));
        fields.push(("renewals", holder.renewals.to_string()));
        fields.push(("fencing token", holder.fencing_token.to_string()));
        fields.extend(holder.slot.map(|slot| ("slot", slot.to_string())));
        fields.push(("metadata", serde_json::to_string(&holder.metadata)?));
    }
    if lock.holders.len() == 1 {
        fields.push(("ttl", duration::show(Duration::from_millis(lock.ttl_millis))));
        fields.push(("releases needed", lock.reentrancy_count.to_string()));
    }
    fields.push(("waiting", lock.queue_length.to_string()));
    output::fields(fields)?;
    Ok(())
}

async fn queue(locks: &Locks, key: &str, json: bool) -> Result<u8, Failure> {
    let queue = locks.queue(key).await?;
    if json {
        output::json(&queue)?;
    } else if queue.waiting.is_empty() {
        output::line(format_args!("nobody waits for {key:?}"))?;
    } else {
        let rows = queue.waiting.into_iter().enumerate().map(|(index, waiting)| {
            let for_long = duration::show(Duration::from_millis(waiting.waiting_millis));
            let call = if waiting.connected { "waiting" } else { "away, place kept" };
            let mode = waiting.mode.as_str().to_owned();
            [(index + 1).to_string(), waiting.owner_id, mode, for_long, call.to_owned()]
        });
        output::table(["PLACE", "OWNER", "MODE", "FOR", "CALL"], rows.collect())?;
    }
    Ok(0)
}

async fn history(locks: &Locks, key: &str, json: bool) -> Result<u8, Failure> {
    let history = locks.history(key).await?;
    if json {
        output::json(&history)?;
    } else if history.events.is_empty() {
        output::line(format_args!("nothing is remembered about {key:?}"))?;
    } else {
        let rows = history.events.into_iter().map(row);
        output::table(["WHEN", "WHAT", "OWNER", "TOKEN", "RENEWALS", "WHY"], rows.collect())?;
    }
    Ok(0)
}

fn row(event: LockEvent) -> [String; 6] {
    let why = match (event.by, event.reason) {
        (Some(by), Some(reason)) => format!("{by}: {reason}"),
        (by, reason) => by.or(reason).unwrap_or_default(),
    };
    let renewals = event.renewals.map(|renewals| renewals.to_string()).unwrap_or_default();
    let (at, what) = (output::utc(event.at), event.event.as_str().to_owned());
    [at, what, event.owner_id, event.fencing_token.to_string(), renewals, why]
}

async fn watch(mut watch: LockWatch, json: bool) -> Result<u8, Failure> {
    while let Some(watched) = watch.next().await {
        match watched? {
            Watched::Event(event) if json => output::json_line(&event)?,
            Watched::Event(event) => {
                let key = output::printable(event.lock_key.clone());
                let [at, what, owner, token, _, why] = row(event).map(output::printable);
                output::line(format!("{at}  {what:<8}  {key}  {owner}  {token}  {why}").trim_end())?;
            }
            Watched::Gap if json => output::line("{\"event\":\"lost\"}")?,
            Watched::Gap => {
                output::line("... some events are missing; `baton locks show` says how things are now")?
            }
        }
    }
    Err(Failure::new(
        75,
        "the server ended the watch",
        "watch again; `baton locks history KEY` shows what was missed",
    ))
}
