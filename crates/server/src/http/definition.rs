//! A limit's definition between the wire and the rules: what isn't said is chosen, and what doesn't fit together is refused.

use baton_api::ErrorBody;
use baton_api::limit::{self as wire, Fraction, LimitDefinition, LimitOverride};
use baton_api::limits::ENTRIES_MAX;
use baton_core::WallTime;
use baton_core::limit::definition::KEYS_MAX;
use baton_core::limit::mitigation::{CAP, PARTS};
use baton_core::limit::{
    Calendar, CalendarUnit, Definition, Mechanism, Mitigation, Override, Policy, Purpose, gossip, slack,
};
use baton_core::meter::{Algorithm, Reclaim};

/// What a definition means. Every field is within its own limits already.
pub(crate) fn read(said: LimitDefinition) -> Result<Definition, ErrorBody> {
    let purpose = said.purpose.map(purpose);
    let preset = purpose.map(Purpose::preset);
    let usual = if said.calendar.is_some() { Algorithm::FixedWindow } else { Algorithm::TokenBucket };
    let mechanism = said.mechanism.map_or(preset.map_or(Mechanism::Central, |preset| preset.1), mechanism);
    let is_gossip = mechanism == Mechanism::Gossip;
    let preset_algorithm = preset.map_or(usual, |preset| preset.0);
    let algorithm = match said.algorithm {
        Some(said) => algorithm(said),
        // What was chosen for others can't be counted like this.
        None if is_gossip && !gossip::spreads(preset_algorithm) => gossip::USUAL,
        None => preset_algorithm,
    };
    // The same for all is no mechanism of their own.
    let anonymous = said.anonymous_mechanism.map(self::mechanism).filter(|own| *own != mechanism);
    if said.anonymous_mechanism.is_some() && [Some(mechanism), anonymous].contains(&Some(Mechanism::Gossip)) {
        let message = "a gossip limit has its counts where no other mechanism looks: it is the same for all";
        return Err(ErrorBody::invalid("anonymousMechanism", message));
    }
    let on_failure = match said.on_failure {
        Some(_) if is_gossip => {
            let message = "gossip asks no store, so none can fail it: leave onFailure out";
            return Err(ErrorBody::invalid("onFailure", message));
        }
        Some(said) => policy(said),
        None if is_gossip => Policy::Closed,
        None => preset.map_or(Policy::Closed, |preset| preset.2),
    };
    if is_gossip {
        fits_gossip(&said, algorithm)?;
    }
    let is_usual =
        mechanism == Mechanism::Central && anonymous.is_none() && purpose.is_some_and(Purpose::is_audited);
    let calendar = calendar(&said, algorithm)?;
    let window_ms = window(&said, algorithm, calendar.as_ref())?;
    let is_owned = [Some(mechanism), anonymous].contains(&Some(Mechanism::Owned));
    let hot_key = hot_key(&said, is_owned)?;
    let mut overrides: Vec<_> =
        said.overrides.into_iter().map(|own| Override { key: own.key, limit: own.limit }).collect();
    overrides.sort_by(|one, other| one.key.cmp(&other.key));
    let definition = Definition {
        algorithm,
        limit: said.limit,
        window_ms,
        burst: said.burst,
        staggered: said.staggered.unwrap_or(calendar.is_none()),
        calendar,
        mechanism,
        anonymous,
        on_failure,
        purpose,
        lease_size: said.lease_size,
        lease_ttl_ms: said.lease_ttl_millis,
        reclaim: match said.reclaim {
            Some(wire::Reclaim::Optimistic) => Reclaim::Drop,
            Some(wire::Reclaim::Safe) | None => Reclaim::Burn,
        },
        epsilon: said.epsilon.map(Fraction::millionths),
        low_watermark: said.low_watermark.map(Fraction::millionths),
        sync_ms: said.sync_millis,
        local_cap: said.local_cap,
        expected_nodes: said.expected_nodes,
        keys_max: said.max_keys.unwrap_or(KEYS_MAX),
        dry_run: said.dry_run,
        audit: said.audit.unwrap_or(is_usual),
        is_strict: said.durability == Some(wire::Durability::Strict),
        hot_key,
        changed_at: WallTime::default(),
        overrides,
    };
    fits(&definition)?;
    Ok(definition)
}

fn calendar(said: &LimitDefinition, algorithm: Algorithm) -> Result<Option<Calendar>, ErrorBody> {
    let Some(unit) = said.calendar else {
        return match said.time_zone {
            Some(_) => Err(ErrorBody::invalid("timeZone", "timeZone goes with calendar only")),
            None => Ok(None),
        };
    };
    if algorithm != Algorithm::FixedWindow {
        return Err(ErrorBody::invalid("calendar", "calendar goes with the algorithm fixed_window only"));
    }
    if said.staggered == Some(true) {
        return Err(ErrorBody::invalid("staggered", "days and months begin at the same time for every key"));
    }
    let unit = match unit {
        wire::CalendarUnit::Day => CalendarUnit::Day,
        wire::CalendarUnit::Month => CalendarUnit::Month,
    };
    let time_zone = said.time_zone.clone().unwrap_or_else(|| "UTC".into());
    let calendar = Calendar { unit, time_zone };
    if !calendar.is_known() {
        let message = "timeZone must be a name of the time zone database, such as Europe/Berlin";
        return Err(ErrorBody::invalid("timeZone", message));
    }
    Ok(Some(calendar))
}

fn window(
    said: &LimitDefinition,
    algorithm: Algorithm,
    calendar: Option<&Calendar>,
) -> Result<u64, ErrorBody> {
    let refused = |message: &str| Err(ErrorBody::invalid("windowMillis", message));
    match (calendar, said.window_millis) {
        (Some(calendar), None) => Ok(calendar.unit.longest_ms()),
        (Some(_), Some(_)) => refused("a calendar has windows of its own; leave windowMillis out"),
        (None, Some(_)) if algorithm == Algorithm::InFlight => {
            refused("what is in flight has no window; leave windowMillis out")
        }
        (None, Some(window_ms)) => Ok(window_ms),
        // It counts nothing over time.
        (None, None) if algorithm == Algorithm::InFlight => Ok(1),
        (None, None) => refused("windowMillis is needed: the limit is how much in which time?"),
    }
}

fn hot_key(said: &LimitDefinition, is_owned: bool) -> Result<Mitigation, ErrorBody> {
    let refused = |field: &str, message: &str| Err(ErrorBody::invalid(field, message));
    if said.hot_key_parts.is_some() && said.hot_key != Some(wire::HotKey::Split) {
        return refused("hotKeyParts", "hotKeyParts goes with hotKey split only");
    }
    if said.hot_key_cap.is_some() && said.hot_key != Some(wire::HotKey::Cap) {
        return refused("hotKeyCap", "hotKeyCap goes with hotKey cap only");
    }
    let mitigation = match said.hot_key {
        None => return Ok(Mitigation::Delegate),
        Some(wire::HotKey::Delegate) => Mitigation::Delegate,
        Some(wire::HotKey::Split) => Mitigation::Split { parts: said.hot_key_parts.unwrap_or(PARTS) },
        Some(wire::HotKey::Pin) => Mitigation::Pin,
        Some(wire::HotKey::Cap) => {
            return Ok(Mitigation::Cap { per_second: said.hot_key_cap.unwrap_or(CAP) });
        }
    };
    if !is_owned {
        return refused(
            "hotKey",
            "only owned limits have owners to relieve: mechanism must be owned, or hotKey cap",
        );
    }
    Ok(mitigation)
}

fn fits(definition: &Definition) -> Result<(), ErrorBody> {
    let algorithm = definition.algorithm;
    let refused = |field: &str, message: String| Err(ErrorBody::invalid(field, message));
    if definition.burst.is_some() && algorithm != Algorithm::TokenBucket {
        return refused("burst", "burst goes with the algorithm token_bucket only".into());
    }
    let is_central = definition.mechanisms().all(|mechanism| mechanism == Mechanism::Central);
    if !is_central && algorithm == Algorithm::InFlight {
        return refused(
            "mechanism",
            "what is in flight is counted at the store: mechanism must be central".into(),
        );
    }
    if definition.audit && !is_central {
        return refused(
            "audit",
            "what is decided out of a lease is not written down one by one: mechanism must be central".into(),
        );
    }
    if definition.audit && matches!(definition.hot_key, Mitigation::Cap { .. }) {
        return refused("hotKey", "what a cap refuses is not written down: audit must be false".into());
    }
    if definition.local_cap.is_some() && definition.on_failure != Policy::Open {
        return refused("localCap", "localCap goes with onFailure open only".into());
    }
    fits_mechanism(definition)?;
    let most = match algorithm {
        Algorithm::SlidingLog | Algorithm::InFlight => ENTRIES_MAX,
        _ => algorithm.amount_max(definition.window_ms),
    };
    let message = || format!("with this algorithm and window at most {most}: a shorter window allows more");
    if definition.limit > most {
        return refused("limit", message());
    }
    if definition.burst.is_some_and(|burst| burst > most) {
        return refused("burst", message());
    }
    let own = |own: &Override| own.limit > most || definition.capacity_of(&own.key) > most;
    match definition.overrides.iter().find(|known| own(known)) {
        Some(_) => refused("overrides", message()),
        None => Ok(()),
    }
}

/// What goes with an approximate limit only, and what doesn't go with one.
fn fits_mechanism(definition: &Definition) -> Result<(), ErrorBody> {
    let is_approximate = definition.is_ever(Mechanism::Approximate);
    let is_leased = definition.is_ever(Mechanism::Leased) || definition.is_ever(Mechanism::Owned);
    let only = [("epsilon", definition.epsilon), ("lowWatermark", definition.low_watermark)];
    if let Some((field, _)) = only.into_iter().find(|(_, said)| said.is_some() && !is_approximate) {
        return Err(ErrorBody::invalid(field, format!("{field} goes with mechanism approximate only")));
    }
    if definition.sync_ms.is_some() && !is_approximate && definition.mechanism != Mechanism::Gossip {
        let message = "syncMillis goes with mechanism approximate or gossip only";
        return Err(ErrorBody::invalid("syncMillis", message));
    }
    if is_approximate && !is_leased && definition.lease_ttl_ms.is_some() {
        let message = "slack lives for four times syncMillis: leave leaseTtlMillis out";
        return Err(ErrorBody::invalid("leaseTtlMillis", message));
    }
    if is_approximate && definition.reclaim == Reclaim::Drop {
        let message = "slack that is given out twice would have no bound: reclaim must be safe";
        return Err(ErrorBody::invalid("reclaim", message));
    }
    Ok(())
}

/// What doesn't go with counts that spread, besides what goes with other mechanisms only.
fn fits_gossip(said: &LimitDefinition, algorithm: Algorithm) -> Result<(), ErrorBody> {
    let refused = |field: &str, message: String| Err(ErrorBody::invalid(field, message));
    if !gossip::spreads(algorithm) {
        let message = "with mechanism gossip, algorithm must be fixed_window or sliding_window: only what is a sum over windows can be counted by \
                       several nodes and added up";
        return refused("algorithm", message.into());
    }
    if said.audit == Some(true) {
        let message = "gossip asks no store before it answers, and so writes down nothing there: mechanism must be central";
        return refused("audit", message.into());
    }
    for (field, is_said) in [
        ("leaseSize", said.lease_size.is_some()),
        ("leaseTtlMillis", said.lease_ttl_millis.is_some()),
        ("reclaim", said.reclaim.is_some()),
    ] {
        if is_said {
            return refused(field, format!("nothing is leased of a gossip limit: leave {field} out"));
        }
    }
    let least_ms = 2 * said.sync_millis.unwrap_or(gossip::EVERY_MS);
    if said.window_millis.is_some_and(|window_ms| window_ms < least_ms) {
        let message = format!(
            "with mechanism gossip at least {least_ms}, twice syncMillis: in a shorter window no node would hear of the others in time"
        );
        return refused("windowMillis", message);
    }
    Ok(())
}

/// What a definition says, with what was chosen.
pub(crate) fn shown(definition: &Definition) -> LimitDefinition {
    let Definition { algorithm: counted, .. } = definition;
    let is_approximate = definition.is_ever(Mechanism::Approximate);
    let is_gossip = definition.mechanism == Mechanism::Gossip;
    let approximate = |said: Option<u64>, usual| said.or(is_approximate.then_some(usual));
    LimitDefinition {
        limit: definition.limit,
        window_millis: (definition.calendar.is_none() && *counted != Algorithm::InFlight)
            .then_some(definition.window_ms),
        algorithm: Some(match counted {
            Algorithm::TokenBucket => wire::Algorithm::TokenBucket,
            Algorithm::SlidingWindow => wire::Algorithm::SlidingWindow,
            Algorithm::FixedWindow => wire::Algorithm::FixedWindow,
            Algorithm::SlidingLog => wire::Algorithm::SlidingLog,
            Algorithm::InFlight => wire::Algorithm::InFlight,
        }),
        burst: definition.burst,
        mechanism: Some(shown_mechanism(definition.mechanism)),
        anonymous_mechanism: definition.anonymous.map(shown_mechanism),
        on_failure: (!is_gossip).then_some(match definition.on_failure {
            Policy::Closed => wire::FailurePolicy::Closed,
            Policy::ClosedLocal => wire::FailurePolicy::ClosedLocal,
            Policy::Open => wire::FailurePolicy::Open,
            Policy::Local => wire::FailurePolicy::Local,
            Policy::Snapshot => wire::FailurePolicy::Snapshot,
        }),
        purpose: definition.purpose.map(|purpose| match purpose {
            Purpose::Security => wire::Purpose::Security,
            Purpose::Abuse => wire::Purpose::Abuse,
            Purpose::Authenticated => wire::Purpose::Authenticated,
            Purpose::Billing => wire::Purpose::Billing,
        }),
        calendar: definition.calendar.as_ref().map(|calendar| match calendar.unit {
            CalendarUnit::Day => wire::CalendarUnit::Day,
            CalendarUnit::Month => wire::CalendarUnit::Month,
        }),
        time_zone: definition.calendar.as_ref().map(|calendar| calendar.time_zone.clone()),
        staggered: Some(definition.staggered),
        lease_size: definition.lease_size,
        lease_ttl_millis: definition.lease_ttl_ms,
        reclaim: (!is_gossip).then_some(match definition.reclaim {
            Reclaim::Burn => wire::Reclaim::Safe,
            Reclaim::Drop => wire::Reclaim::Optimistic,
        }),
        epsilon: approximate(definition.epsilon, slack::EPSILON).map(Fraction::of_millionths),
        low_watermark: approximate(definition.low_watermark, slack::LOW).map(Fraction::of_millionths),
        sync_millis: definition.sync_ms.or(is_gossip.then_some(gossip::EVERY_MS)),
        local_cap: definition.local_cap,
        expected_nodes: definition.expected_nodes,
        max_keys: Some(definition.keys_max),
        hot_key: match definition.hot_key {
            Mitigation::Delegate => definition.is_ever(Mechanism::Owned).then_some(wire::HotKey::Delegate),
            Mitigation::Split { .. } => Some(wire::HotKey::Split),
            Mitigation::Pin => Some(wire::HotKey::Pin),
            Mitigation::Cap { .. } => Some(wire::HotKey::Cap),
        },
        hot_key_parts: match definition.hot_key {
            Mitigation::Split { parts } => Some(parts),
            _ => None,
        },
        hot_key_cap: match definition.hot_key {
            Mitigation::Cap { per_second } => Some(per_second),
            _ => None,
        },
        dry_run: definition.dry_run,
        audit: Some(definition.audit),
        durability: definition.is_strict.then_some(wire::Durability::Strict),
        overrides: definition
            .overrides
            .iter()
            .map(|own| LimitOverride { key: own.key.clone(), limit: own.limit })
            .collect(),
    }
}

fn algorithm(said: wire::Algorithm) -> Algorithm {
    match said {
        wire::Algorithm::TokenBucket => Algorithm::TokenBucket,
        wire::Algorithm::SlidingWindow => Algorithm::SlidingWindow,
        wire::Algorithm::FixedWindow => Algorithm::FixedWindow,
        wire::Algorithm::SlidingLog => Algorithm::SlidingLog,
        wire::Algorithm::InFlight => Algorithm::InFlight,
    }
}

fn shown_mechanism(mechanism: Mechanism) -> wire::Mechanism {
    match mechanism {
        Mechanism::Central => wire::Mechanism::Central,
        Mechanism::Leased => wire::Mechanism::Leased,
        Mechanism::Owned => wire::Mechanism::Owned,
        Mechanism::Approximate => wire::Mechanism::Approximate,
        Mechanism::Gossip => wire::Mechanism::Gossip,
    }
}

fn mechanism(said: wire::Mechanism) -> Mechanism {
    match said {
        wire::Mechanism::Central => Mechanism::Central,
        wire::Mechanism::Leased => Mechanism::Leased,
        wire::Mechanism::Owned => Mechanism::Owned,
        wire::Mechanism::Approximate => Mechanism::Approximate,
        wire::Mechanism::Gossip => Mechanism::Gossip,
    }
}

fn policy(said: wire::FailurePolicy) -> Policy {
    match said {
        wire::FailurePolicy::Closed => Policy::Closed,
        wire::FailurePolicy::ClosedLocal => Policy::ClosedLocal,
        wire::FailurePolicy::Open => Policy::Open,
        wire::FailurePolicy::Local => Policy::Local,
        wire::FailurePolicy::Snapshot => Policy::Snapshot,
    }
}

fn purpose(said: wire::Purpose) -> Purpose {
    match said {
        wire::Purpose::Security => Purpose::Security,
        wire::Purpose::Abuse => Purpose::Abuse,
        wire::Purpose::Authenticated => Purpose::Authenticated,
        wire::Purpose::Billing => Purpose::Billing,
    }
}
