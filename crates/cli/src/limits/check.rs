//! `baton limits check`: whether a key may go on, as an exit code.

use super::in_ms;
use crate::duration;
use crate::failure::{Failure, NOT_ACQUIRED};
use crate::output;
use baton_client::limit::{Allowed, Checked, CheckedAll, OneCheck, Refused};
use baton_client::wire_limit::{CheckAllResponse, Identity, LimitCheckResponse, LimitExceeded};
use baton_client::{Baton, ErrorCode};
use std::time::Duration;

pub const HELP: &str = "Examples:\n  \
    baton limits check api acme && ./call.sh\n  \
    baton limits check api acme --cost 25\n  \
    baton limits check per-ip 10.1.2.3 --also per-tenant=acme          both or neither\n  \
    until baton limits check mails acme; do sleep 1; done; ./send.sh\n\n\
    It is counted before the work is done, and a refusal counts nothing. Exits with 0 if it may go on, with 75 if not, also if \
    nobody could be asked: then there is a message on standard error. With --receipt it can be given back with `baton limits \
    refund`. A place in flight that it prints is kept until it is given back with `baton limits return`, or its time is over.";

#[derive(clap::Args, Debug)]
pub struct CheckArguments {
    /// The limit
    name: String,
    /// Who uses something
    key: String,
    /// How much, of each limit; 0 looks without using any
    #[arg(long, default_value_t = 1, value_name = "N")]
    cost: u64,
    /// Another limit and a key of it, that must pass too; may be repeated
    #[arg(long, value_name = "NAME=KEY", value_parser = pair)]
    also: Vec<(String, String)>,
    /// Whether it is somebody who is known: whoever isn't gets less slack of an approximate limit, and another mechanism if the
    /// definition names one
    #[arg(long, value_parser = super::put::words::<Identity>(&["anonymous", "authenticated"]))]
    identity: Option<Identity>,
    /// Print a receipt that it can be given back with
    #[arg(long)]
    receipt: bool,
    /// Makes it count once, however often it is sent with this within a minute
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

/// `NAME=KEY`; the key may have an equals sign itself.
fn pair(text: &str) -> Result<(String, String), String> {
    let (name, key) =
        text.split_once('=').ok_or_else(|| format!("{text:?} must be NAME=KEY, such as per-tenant=acme"))?;
    Ok((name.to_owned(), key.to_owned()))
}

pub async fn run(arguments: CheckArguments, baton: &Baton, json: bool) -> Result<u8, Failure> {
    let CheckArguments { name, key, cost, also, identity, receipt, request_id } = arguments;
    if also.is_empty() {
        let mut check = baton.limit(name.as_str()).check(key).cost(cost);
        if let Some(identity) = identity {
            check = check.identity(identity);
        }
        if receipt {
            check = check.receipt();
        }
        // A command runs once: what is worth repeating has an id that its caller knows.
        if let Some(id) = request_id {
            check = check.request_id(id);
        }
        return match check.await? {
            Checked::Refused(refused) => no(refused, json),
            Checked::Allowed(allowed) if json => {
                output::json(&wire(allowed))?;
                Ok(0)
            }
            Checked::Allowed(allowed) => yes(&name, allowed),
        };
    }
    let pairs = std::iter::once((name, key)).chain(also);
    let one = |name: String, key: String| {
        let check = OneCheck::from((name, key, cost));
        identity.map_or(check.clone(), |identity| check.identity(identity))
    };
    let (names, checks): (Vec<_>, Vec<_>) = pairs.map(|(name, key)| (name.clone(), one(name, key))).unzip();
    let mut check = baton.check_all(checks);
    if receipt {
        check = check.receipt();
    }
    if let Some(id) = request_id {
        check = check.request_id(id);
    }
    match check.await? {
        CheckedAll::Refused(refused) => no(refused, json),
        CheckedAll::Allowed(all) if json => {
            output::json(&CheckAllResponse { allowed: true, checks: all.into_iter().map(wire).collect() })?;
            Ok(0)
        }
        CheckedAll::Allowed(all) => {
            names.iter().zip(all).try_fold(0, |_, (name, allowed)| yes(name, allowed))
        }
    }
}

fn yes(name: &str, allowed: Allowed) -> Result<u8, Failure> {
    let Allowed { limit, remaining, .. } = allowed;
    let name = output::printable(name.to_owned());
    let mut line = format!("allowed by {name}: {remaining} of {limit} left");
    if !allowed.reset.is_zero() {
        line.push_str(&format!(", all again in {}", duration::show(allowed.reset)));
    }
    if allowed.would_refuse {
        line.push_str("; it only counts, and would have refused");
    }
    output::line(line)?;
    if let Some(receipt) = &allowed.receipt {
        output::line(format_args!("receipt {}", receipt.reveal()))?;
    }
    if let Some(place) = allowed.place {
        let ends = place.remaining();
        output::line(format_args!("place {} for {}", place.keep(), duration::show(ends)))?;
    }
    Ok(0)
}

fn no(refused: Refused, json: bool) -> Result<u8, Failure> {
    if json {
        output::json(&LimitExceeded {
            error: ErrorCode::LimitExceeded,
            message: refused.message,
            allowed: false,
            name: refused.name,
            key: refused.key,
            limit: refused.limit,
            remaining: refused.remaining,
            reset_millis: ms(refused.reset),
            source: refused.source,
            reason: refused.reason,
            retry_after_millis: refused.retry_after.map(ms),
        })?;
        return Ok(NOT_ACQUIRED);
    }
    let when = match refused.retry_after {
        Some(after) => format!("try again {}", in_ms(ms(after))),
        None => format!("it never passes: it costs more than the {} there are", refused.limit),
    };
    let (name, key) = (output::printable(refused.name), output::printable(refused.key));
    let Refused { remaining, limit, .. } = refused;
    output::line(format_args!("refused by {name} for {key}: {remaining} of {limit} left; {when}"))?;
    Ok(NOT_ACQUIRED)
}

/// As the server says it. A place is kept: whoever reads this gives it back.
fn wire(allowed: Allowed) -> LimitCheckResponse {
    let lease_ttl_millis = allowed.place.as_ref().map(|place| ms(place.remaining()));
    LimitCheckResponse {
        allowed: true,
        limit: allowed.limit,
        remaining: allowed.remaining,
        reset_millis: ms(allowed.reset),
        source: allowed.source,
        receipt: allowed.receipt.map(|receipt| receipt.reveal().to_owned()),
        lease_id: allowed.place.map(baton_client::limit::Place::keep),
        lease_ttl_millis,
        would_refuse: allowed.would_refuse,
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
