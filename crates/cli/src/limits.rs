//! `baton limits`: defining limits, looking at them, and checking from the shell.

mod check;
mod log;
mod put;

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::Failure;
use crate::output::{self, Format};
use baton_client::wire_cluster::HotKeyStatus;
use baton_client::wire_limit::{Fraction, LimitDefinition, LimitStatus};
use baton_client::{Baton, ErrorCode, ListQuery};
use serde::Serialize;
use std::time::Duration;

/// Limits on one page.
const PAGE: u64 = 500;

#[derive(clap::Subcommand, Debug)]
pub enum LimitsCommand {
    /// List limits
    #[command(visible_alias = "list")]
    Ls {
        /// Only names that begin with this
        #[arg(long)]
        prefix: Option<String>,
        /// Stop after this many
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
    /// Show a limit's definition; exits with 69 if there is none
    Show {
        /// The limit
        name: String,
    },
    /// Define a limit, or change it while it is in use
    #[command(after_help = put::HELP)]
    Put(Box<put::PutArguments>),
    /// Remove a limit: checks of it fail from then on
    Remove {
        /// The limit
        name: String,
    },
    /// Check whether a key may go on, and count it; exits with 0 if it may, with 75 if not
    #[command(after_help = check::HELP)]
    Check(check::CheckArguments),
    /// Show what a key has used, without using any
    Usage {
        /// The limit
        name: String,
        /// Whose
        key: String,
    },
    /// Show how much more than the limit may pass, at worst, and why
    Bound {
        /// The limit
        name: String,
        /// Whose, if it has a limit of its own
        key: Option<String>,
    },
    /// List what is outstanding: leases of nodes, places in flight
    Leases {
        /// The limit
        name: String,
    },
    /// List the keys that are checked far more than others, at the node that is asked
    Hot,
    /// Show what was decided about an audited limit
    #[command(after_help = log::HELP)]
    Audit(log::LogArguments),
    /// Show what became of leases: given, renewed, given back
    #[command(after_help = "Example:\n  baton limits lease-log api --key acme")]
    LeaseLog(log::LogArguments),
    /// Give back what a check was counted for, because the work wasn't done
    #[command(after_help = "Example:\n  baton limits refund api acme \"$RECEIPT\"")]
    Refund {
        /// The limit
        name: String,
        /// Whose
        key: String,
        /// What `baton limits check --receipt` printed
        receipt: String,
    },
    /// Give back a place in flight
    Return {
        /// The limit
        name: String,
        /// Whose
        key: String,
        /// What `baton limits check` printed as its place
        place: String,
    },
}

pub async fn run(command: LimitsCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let baton = client.connect().await?;
    let json = client.output == Format::Json;
    match command {
        LimitsCommand::Ls { prefix, limit } => list(&baton, prefix, limit, json).await,
        LimitsCommand::Show { name } => show(&baton, &name, json).await,
        LimitsCommand::Put(arguments) => put::run(*arguments, &baton, json).await,
        LimitsCommand::Remove { name } => remove(&baton, &name, json).await,
        LimitsCommand::Check(arguments) => check::run(arguments, &baton, json).await,
        LimitsCommand::Usage { name, key } => {
            let usage = baton.limit(name).usage(&key).await?;
            print(&usage, json, || {
                vec![
                    ("limit", usage.name.clone()),
                    ("key", usage.key.clone()),
                    ("used", format!("{} of {}", usage.used, usage.limit)),
                    ("outstanding", usage.outstanding.to_string()),
                    ("remaining", usage.remaining.to_string()),
                    ("all again", in_ms(usage.reset_millis)),
                ]
            })
        }
        LimitsCommand::Bound { name, key } => bound(&baton, name, key.as_deref(), json).await,
        LimitsCommand::Leases { name } => leases(&baton, name, json).await,
        LimitsCommand::Hot => hot(&baton, json).await,
        LimitsCommand::Audit(arguments) => log::run(log::Log::Audit, arguments, &baton, json).await,
        LimitsCommand::LeaseLog(arguments) => log::run(log::Log::Leases, arguments, &baton, json).await,
        LimitsCommand::Refund { name, key, receipt } => {
            let refunded = baton.limit(name).refund(&key, &receipt).await?;
            let body = serde_json::json!({ "refunded": refunded });
            print(&body, json, || vec![("refunded", refunded.to_string())])
        }
        LimitsCommand::Return { name, key, place } => {
            baton.limit(name).give_back(&key, &place).await?;
            Ok(0)
        }
    }
}

/// As JSON, or as names and values.
fn print<'a>(
    value: &impl Serialize,
    json: bool,
    fields: impl FnOnce() -> Vec<(&'a str, String)>,
) -> Result<u8, Failure> {
    if json {
        output::json(value)?
    } else {
        output::fields(fields())?
    }
    Ok(0)
}

/// A time from now on.
fn in_ms(ms: u64) -> String {
    if ms == 0 { "now".into() } else { format!("in {}", duration::show(Duration::from_millis(ms))) }
}

/// A word as it is on the wire.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// How much in which time.
fn rate(definition: &LimitDefinition) -> String {
    match (&definition.calendar, definition.window_millis) {
        (Some(unit), _) => {
            let zone = definition.time_zone.as_deref().unwrap_or("UTC");
            format!("{} a {} in {zone}", definition.limit, word(unit))
        }
        (None, Some(ms)) => format!("{} in {}", definition.limit, duration::show(Duration::from_millis(ms))),
        (None, None) => format!("{} at a time", definition.limit),
    }
}

async fn list(baton: &Baton, prefix: Option<String>, limit: u64, json: bool) -> Result<u8, Failure> {
    let limits = baton.limits();
    let mut found: Vec<LimitStatus> = Vec::new();
    let mut query = ListQuery { prefix, ..ListQuery::default() };
    loop {
        let left = limit.saturating_sub(u64::try_from(found.len()).unwrap_or(u64::MAX));
        if left == 0 {
            break;
        }
        query.limit = Some(left.min(PAGE));
        let page = limits.list(&query).await?;
        found.extend(page.limits);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if json {
        output::json(&found)?;
    } else if found.is_empty() {
        output::line("no limit is defined")?;
    } else {
        let rows = found.into_iter().map(|one| {
            let definition = &one.definition;
            let mode = if definition.dry_run { "counts only" } else { "" };
            [
                one.name,
                rate(definition),
                definition.algorithm.as_ref().map(word).unwrap_or_default(),
                definition.mechanism.as_ref().map(word).unwrap_or_default(),
                definition.on_failure.as_ref().map(word).unwrap_or_default(),
                mode.to_owned(),
            ]
        });
        output::table(["LIMIT", "ALLOWS", "ALGORITHM", "MECHANISM", "ON FAILURE", ""], rows.collect())?;
        if query.cursor.is_some() {
            output::line("... and more: raise --limit, or say --prefix")?;
        }
    }
    Ok(0)
}

async fn show(baton: &Baton, name: &str, json: bool) -> Result<u8, Failure> {
    let Some(status) = baton.limits().get(name).await? else {
        if !json {
            output::line(format_args!("there is no limit {name:?}"))?;
        }
        return Ok(ErrorCode::LimitNotFound.exit_code());
    };
    print(&status, json, || fields(&status))
}

/// A definition for people: what matters always, the rest if it was said.
fn fields(status: &LimitStatus) -> Vec<(&'static str, String)> {
    let definition = &status.definition;
    let number = |name, number: Option<u64>| number.map(|number| (name, number.to_string()));
    let mut fields = vec![("limit", status.name.clone()), ("allows", rate(definition))];
    fields.extend(number("burst", definition.burst));
    fields.extend(definition.algorithm.as_ref().map(|it| ("algorithm", word(it))));
    fields.extend(definition.mechanism.as_ref().map(|it| ("mechanism", word(it))));
    fields.extend(definition.anonymous_mechanism.as_ref().map(|it| ("anonymous", word(it))));
    fields.extend(definition.on_failure.as_ref().map(|it| ("on failure", word(it))));
    fields.extend(definition.purpose.as_ref().map(|it| ("purpose", word(it))));
    fields.extend(number("local cap", definition.local_cap));
    fields.extend(number("expected nodes", definition.expected_nodes));
    fields.extend(number("lease size", definition.lease_size));
    let ttl = definition.lease_ttl_millis.map(|ms| duration::show(Duration::from_millis(ms)));
    fields.extend(ttl.map(|ttl| ("lease ttl", ttl)));
    let share = |name, part: Option<Fraction>| part.map(|part| (name, percent(part)));
    fields.extend(share("epsilon", definition.epsilon));
    fields.extend(share("low watermark", definition.low_watermark));
    let sync = definition.sync_millis.map(|ms| duration::show(Duration::from_millis(ms)));
    fields.extend(sync.map(|sync| ("sync", sync)));
    fields.extend(number("keys at most", definition.max_keys));
    fields.extend(definition.hot_key.as_ref().map(|it| ("hot keys", word(it))));
    fields.extend(number("parts of a hot key", definition.hot_key_parts));
    fields.extend(number("cap of a hot key", definition.hot_key_cap));
    if definition.audit == Some(true) {
        fields.push(("audit", "every decision is written down before it is answered".to_owned()));
    }
    if definition.dry_run {
        fields.push(("dry run", "it counts, and refuses nobody".to_owned()));
    }
    fields.extend(definition.overrides.iter().map(|own| ("override", format!("{}: {}", own.key, own.limit))));
    fields.push(("changed", output::utc(status.changed_at)));
    fields
}

/// `1 %`, and no more digits than there are.
fn percent(part: Fraction) -> String {
    format!("{} %", part.millionths() as f64 / 10_000.0)
}

async fn remove(baton: &Baton, name: &str, json: bool) -> Result<u8, Failure> {
    if !baton.limits().remove(name).await? {
        let message = format!("there is no limit {name:?}");
        return Err(Failure::new(ErrorCode::LimitNotFound.exit_code(), message, NO_LIMIT));
    }
    let body = serde_json::json!({ "status": "REMOVED", "name": name });
    print(&body, json, || vec![("removed", name.to_owned())])
}

/// What to do if there is no such limit.
pub const NO_LIMIT: &str = "`baton limits ls` shows what there is, in the namespace that --namespace says; `baton limits put` makes one";

async fn bound(baton: &Baton, name: String, key: Option<&str>, json: bool) -> Result<u8, Failure> {
    let bound = baton.limit(name).bound(key).await?;
    if json {
        output::json(&bound)?;
        return Ok(0);
    }
    let some = |amount: Option<u64>| amount.map_or("no number".to_owned(), |amount| amount.to_string());
    let measured = match bound.measured.at {
        Some(at) => format!("{} too much, at {}", bound.measured.overshoot, output::utc(at)),
        None => "none too much lately, at the node that was asked".to_owned(),
    };
    output::fields(vec![
        ("limit", format!("{} allows {}", bound.name, bound.limit)),
        ("within", duration::show(Duration::from_millis(bound.window_millis))),
        ("at worst", some(bound.worst)),
        ("measured", measured),
    ])?;
    let rows = bound.items.into_iter().map(|item| {
        let adds = item.each.map_or_else(|| some(item.amount), |each| format!("{each} each time"));
        [item.source, adds, item.because]
    });
    output::table(["FROM", "ADDS", "BECAUSE"], rows.collect())?;
    Ok(0)
}

async fn leases(baton: &Baton, name: String, json: bool) -> Result<u8, Failure> {
    let list = baton.limit(name).leases().await?;
    if json {
        output::json(&list)?;
    } else if list.leases.is_empty() {
        output::line("nothing is outstanding")?;
    } else {
        let rows = list.leases.into_iter().map(|one| {
            let numbers = [one.amount, one.spent].map(|number| number.to_string());
            let [amount, spent] = numbers;
            [one.key, one.kind, amount, spent, in_ms(one.expires_in_millis), one.holder, one.lease_id]
        });
        output::table(["KEY", "KIND", "LEFT", "SPENT", "ENDS", "HOLDER", "ID"], rows.collect())?;
        if list.more {
            output::line("... and more than is shown")?;
        }
    }
    Ok(0)
}

async fn hot(baton: &Baton, json: bool) -> Result<u8, Failure> {
    let list = baton.hot_keys().await?;
    if json {
        output::json(&list)?;
        return Ok(0);
    }
    let row = |found: &HotKeyStatus| {
        let share = format!("{}.{} %", found.per_mille / 10, found.per_mille % 10);
        let (limit, key) = (found.limit.clone(), found.key.clone());
        let done = found.mitigation.clone().unwrap_or_else(|| "nothing".into());
        [found.namespace.clone(), limit, key, found.checks_per_second.to_string(), share, done]
    };
    let header = ["NAMESPACE", "LIMIT", "KEY", "CHECKS/S", "OF ALL", "DONE ABOUT IT"];
    output::table(header, list.hot_keys.iter().map(row).collect())?;
    Ok(0)
}
