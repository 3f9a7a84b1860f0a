//! `baton limits put`: a definition from flags.

use super::{fields, print};
use crate::duration;
use crate::failure::Failure;
use crate::traffic::part;
use baton_client::Baton;
use baton_client::wire_limit::{
    Algorithm, CalendarUnit, FailurePolicy, Fraction, HotKey, LimitDefinition, LimitOverride, Mechanism,
    Purpose, Reclaim,
};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;
use std::time::Duration;

pub const HELP: &str = "Examples:\n  \
    baton limits put api --limit 100 --per 1m                          100 a minute for each key\n  \
    baton limits put api --limit 100 --per 1m --burst 20 --override acme=5000\n  \
    baton limits put search --limit 1000 --per 1s --mechanism approximate --epsilon 0.02\n  \
    baton limits put edge --limit 1000 --per 1s --mechanism gossip      no store is asked, ever\n  \
    baton limits put api --limit 600 --per 1m --mechanism owned --anonymous-mechanism leased\n  \
    baton limits put login --limit 5 --per 15m --purpose security\n  \
    baton limits put invoices --limit 10000 --calendar month --time-zone Europe/Berlin\n  \
    baton limits put exports --limit 3 --algorithm in_flight --lease-ttl 10m\n\n\
    What isn't said is chosen by --purpose, or is usual: token_bucket, central, closed. It replaces a definition that is \
    there, as a whole; what was counted stays counted. With --dry-run it counts and refuses nobody: see what it would do \
    before it does it.";

#[derive(clap::Args, Debug)]
pub struct PutArguments {
    /// The limit
    name: String,
    /// How much a key may use in a window
    #[arg(long, value_name = "N")]
    limit: u64,
    /// The window's length, such as 1s, 1m or 24h
    #[arg(long, value_parser = duration::parse, value_name = "DURATION", conflicts_with = "calendar")]
    per: Option<Duration>,
    /// How much a token bucket holds [default: the limit]
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// What is counted
    #[arg(long, value_parser = words::<Algorithm>(&["token_bucket", "sliding_window", "fixed_window", "sliding_log", "in_flight"]))]
    algorithm: Option<Algorithm>,
    /// Who decides
    #[arg(long, value_parser = words::<Mechanism>(&["central", "leased", "owned", "approximate", "gossip"]))]
    mechanism: Option<Mechanism>,
    /// Who decides checks of those who aren't known [default: as --mechanism]
    #[arg(long, value_name = "MECHANISM", value_parser = words::<Mechanism>(&["central", "leased", "owned", "approximate"]))]
    anonymous_mechanism: Option<Mechanism>,
    /// What happens when the store can't be asked
    #[arg(long, value_name = "POLICY", value_parser = words::<FailurePolicy>(&["closed", "closed_local", "open", "local", "snapshot"]))]
    on_failure: Option<FailurePolicy>,
    /// What it is for: chooses what isn't said
    #[arg(long, value_parser = words::<Purpose>(&["security", "abuse", "authenticated", "billing"]))]
    purpose: Option<Purpose>,
    /// Windows of the calendar, for a fixed window
    #[arg(long, value_name = "UNIT", value_parser = words::<CalendarUnit>(&["day", "month"]))]
    calendar: Option<CalendarUnit>,
    /// Whose calendar, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "calendar")]
    time_zone: Option<String>,
    /// A key with a limit of its own; may be repeated
    #[arg(long = "override", value_name = "KEY=N", value_parser = own)]
    overrides: Vec<LimitOverride>,
    /// Write every decision to a log before it is answered; `baton limits audit` shows it [default: true for --purpose billing]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    audit: Option<bool>,
    /// Count and report, and refuse nobody
    #[arg(long)]
    dry_run: bool,
    /// All keys' windows begin at the same time, instead of each key's at a moment of its own
    #[arg(long)]
    aligned: bool,
    /// How many keys have a count of their own at a node; those beyond share one [default: 1000000]
    #[arg(long, value_name = "N")]
    max_keys: Option<u64>,
    /// How much a lease has [default: adapts to what is used]
    #[arg(long, value_name = "N")]
    lease_size: Option<u64>,
    /// How long a lease, or a place in flight, lives if nobody is heard of [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    lease_ttl: Option<Duration>,
    /// What is done about keys that are checked far more than others: all but cap with --mechanism owned [default: delegate]
    #[arg(long, value_name = "WAY", value_parser = words::<HotKey>(&["delegate", "split", "pin", "cap"]))]
    hot_key: Option<HotKey>,
    /// How many nodes decide a hot key, with --hot-key split [default: 4]
    #[arg(long, value_name = "N")]
    hot_key_parts: Option<u64>,
    /// How many checks of a hot key a node lets through in a second, with --hot-key cap [default: 1000]
    #[arg(long, value_name = "N")]
    hot_key_cap: Option<u64>,
    /// What becomes of a lease whose holder has gone [default: safe]
    #[arg(long, value_parser = words::<Reclaim>(&["safe", "optimistic"]))]
    reclaim: Option<Reclaim>,
    /// How much more than the limit may pass of an approximate one, as a part of it [default: 0.01]
    #[arg(long, value_name = "PART", value_parser = fraction)]
    epsilon: Option<Fraction>,
    /// When less than this part of an approximate limit isn't counted yet, the store decides every check [default: 0.2]
    #[arg(long, value_name = "PART", value_parser = fraction)]
    low_watermark: Option<Fraction>,
    /// How often the store is told what was spent of an approximate limit [default: 500ms, 100ms if it is much, 2s if it is little], or the
    /// other nodes what was counted of a gossip one [default: 100ms]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    sync: Option<Duration>,
    /// What a node admits by itself for a key and a window in an outage, with --on-failure open
    #[arg(long, value_name = "N")]
    local_cap: Option<u64>,
    /// How many nodes share it, for when that can't be seen
    #[arg(long, value_name = "N")]
    expected_nodes: Option<u64>,
}

/// One of several words, as they are on the wire.
pub(super) fn words<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value::<T>(word.into()))
}

fn fraction(text: &str) -> Result<Fraction, String> {
    part(text).map(Fraction::of_millionths)
}

/// `KEY=N`; the key may have an equals sign itself.
fn own(text: &str) -> Result<LimitOverride, String> {
    let wrong = || format!("{text:?} must be KEY=N, such as acme=5000");
    let (key, limit) = text.rsplit_once('=').ok_or_else(wrong)?;
    Ok(LimitOverride { key: key.to_owned(), limit: limit.parse().map_err(|_| wrong())? })
}

pub async fn run(arguments: PutArguments, baton: &Baton, json: bool) -> Result<u8, Failure> {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let definition = LimitDefinition {
        limit: arguments.limit,
        window_millis: arguments.per.map(ms),
        algorithm: arguments.algorithm,
        burst: arguments.burst,
        mechanism: arguments.mechanism,
        anonymous_mechanism: arguments.anonymous_mechanism,
        on_failure: arguments.on_failure,
        purpose: arguments.purpose,
        calendar: arguments.calendar,
        time_zone: arguments.time_zone,
        staggered: arguments.aligned.then_some(false),
        lease_size: arguments.lease_size,
        lease_ttl_millis: arguments.lease_ttl.map(ms),
        reclaim: arguments.reclaim,
        epsilon: arguments.epsilon,
        low_watermark: arguments.low_watermark,
        sync_millis: arguments.sync.map(ms),
        local_cap: arguments.local_cap,
        expected_nodes: arguments.expected_nodes,
        max_keys: arguments.max_keys,
        hot_key: arguments.hot_key,
        hot_key_parts: arguments.hot_key_parts,
        hot_key_cap: arguments.hot_key_cap,
        dry_run: arguments.dry_run,
        audit: arguments.audit,
        durability: None,
        overrides: arguments.overrides,
    };
    let status = baton.limits().put(&arguments.name, &definition).await?;
    print(&status, json, || {
        let mut fields = fields(&status);
        let done = match status.status.as_deref() {
            Some("MADE") => "made",
            Some("UNCHANGED") => "unchanged: it said this already",
            _ => "changed; what was counted stays counted",
        };
        fields.insert(1, ("done", done.to_owned()));
        fields
    })
}
