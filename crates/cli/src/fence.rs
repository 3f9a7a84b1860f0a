//! `baton fence`: checking fencing tokens at the server (F3).

use crate::client::ClientOptions;
use crate::failure::{Failure, LOST};
use crate::output::{self, Format};
use baton_client::wire_fence::FenceStatus;
use baton_client::{Baton, FencingToken, ListQuery};

/// Fences on one page.
const PAGE: u64 = 500;
/// The exit code when there is no such fence.
const NO_FENCE: u8 = 69;

#[derive(clap::Subcommand, Debug)]
pub enum FenceCommand {
    /// Check a fencing token and remember it; exits with 0 if it is accepted, with 76 if it is stale
    #[command(
        after_help = "The check isn't one step with what you do next: it narrows the window for a stale writer, and \
        doesn't close it. If the resource can compare tokens itself, let it.\n\n\
        Example:\n  baton lock report -- sh -c 'baton fence check bucket/report.csv $BATON_FENCING_TOKEN && ./upload.sh'"
    )]
    Check {
        /// What is written to
        resource: String,
        /// The fencing token of the lock, election or claim under which it is
        token: u64,
        /// The token must be higher than any before, not just not lower
        #[arg(long)]
        strict: bool,
    },
    /// Show the highest token of a resource; exits with 69 if none was checked
    Show {
        /// The resource
        resource: String,
    },
    /// List fences
    Ls {
        /// Only resources that begin with this
        #[arg(long)]
        prefix: Option<String>,
        /// Stop after this many
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
    /// Forget a fence: it then accepts any token, also a stale one
    Forget {
        /// The resource
        resource: String,
        /// Why: goes to the server's log
        #[arg(long)]
        reason: String,
    },
}

pub async fn run(command: FenceCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let baton = client.connect().await?;
    let json = client.output == Format::Json;
    match command {
        FenceCommand::Check { resource, token, strict } => check(&baton, resource, token, strict).await,
        FenceCommand::Show { resource } => show(&baton, &resource, json).await,
        FenceCommand::Ls { prefix, limit } => list(&baton, prefix, limit, json).await,
        FenceCommand::Forget { resource, reason } => {
            let forgotten = baton.fence(resource).forget(&reason).await?;
            if json {
                output::json(&forgotten)?;
            } else {
                output::fields(vec![
                    ("forgotten", forgotten.resource),
                    ("highest", forgotten.highest.to_string()),
                    ("warning", forgotten.warning),
                ])?;
            }
            Ok(0)
        }
    }
}

async fn check(baton: &Baton, resource: String, token: u64, strict: bool) -> Result<u8, Failure> {
    let fence = baton.fence(resource);
    let token = FencingToken::new(token);
    let checked = if strict { fence.check_higher(token).await } else { fence.check(token).await };
    match checked {
        Ok(()) => Ok(0),
        Err(error) if error.stale_token().is_some() => {
            Err(Failure::new(LOST, error.to_string(), "don't write; `baton fence show` says what was seen"))
        }
        Err(error) => Err(error.into()),
    }
}

async fn show(baton: &Baton, resource: &str, json: bool) -> Result<u8, Failure> {
    let Some(fence) = baton.fence(resource).status().await? else {
        if !json {
            output::line(format_args!("no token was checked for {resource:?}"))?;
        }
        return Ok(NO_FENCE);
    };
    if json {
        output::json(&fence)?;
    } else {
        output::fields(vec![
            ("resource", fence.resource),
            ("highest", fence.highest.to_string()),
            ("since", output::utc(fence.raised_at)),
            ("accepted", format!("{}, about", fence.accepted)),
            ("refused", format!("{}, about", fence.refused)),
        ])?;
    }
    Ok(0)
}

async fn list(baton: &Baton, prefix: Option<String>, limit: u64, json: bool) -> Result<u8, Failure> {
    let mut found: Vec<FenceStatus> = Vec::new();
    let mut query = ListQuery { prefix, ..ListQuery::default() };
    loop {
        let left = limit.saturating_sub(u64::try_from(found.len()).unwrap_or(u64::MAX));
        if left == 0 {
            break;
        }
        query.limit = Some(left.min(PAGE));
        let page = baton.fences(&query).await?;
        found.extend(page.fences);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if json {
        output::json(&found)?;
    } else if found.is_empty() {
        output::line("no token was checked")?;
    } else {
        let rows = found.into_iter().map(|fence| {
            let numbers = [fence.highest, fence.accepted, fence.refused].map(|number| number.to_string());
            let [highest, accepted, refused] = numbers;
            [fence.resource, highest, output::utc(fence.raised_at), accepted, refused]
        });
        output::table(["RESOURCE", "HIGHEST", "SINCE", "ACCEPTED", "REFUSED"], rows.collect())?;
        if query.cursor.is_some() {
            output::line("... and more: raise --limit, or say --prefix")?;
        }
    }
    Ok(0)
}
