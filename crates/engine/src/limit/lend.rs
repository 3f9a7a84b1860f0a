//! Leases for whoever decides in a process of its own, and places in flight that are kept longer.

use super::calls::{Lent, LentSlack, LimitError, Source};
use super::check::hex;
use super::definitions::Current;
use super::gossip::is_spread;
use super::log::Said;
use crate::engine::{Engine, Node};
use baton_core::Name;
use baton_core::limit::holder::{Seen, terms};
use baton_core::limit::purse::Terms;
use baton_core::limit::{Definition, Event, Identity, Mechanism, Metered, bound, meter_key};
use baton_core::meter::{Algorithm, Claim, PRODUCT_MAX, RowClaim, RowKind, Take};
use baton_store::Charge;

/// How long a place in flight is kept, if nothing is said.
const PLACE_TTL_MS: u64 = 10_000;

/// What a holder says of its lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LendCall {
    /// Of which key.
    pub key: String,
    /// Of which class those are who spend it.
    pub identity: Identity,
    /// Who holds it.
    pub owner: String,
    /// The lease, as its holder calls it.
    pub lease_id: String,
    /// Higher than of any message about it before.
    pub sequence: u64,
    /// All that was ever spent of it.
    pub spent: u64,
    /// What the holder keeps of it; all it has if nothing is said.
    pub kept: Option<u64>,
    /// How much more is wanted.
    pub want: u64,
    /// By which version the holder counts: of another one it is given nothing, so that it learns of that first.
    pub version: Option<u64>,
    /// How long the holder takes what it has to live.
    pub ttl_ms: u64,
}

/// How leases behave that others may have; nothing if only nodes have them.
fn lent_by(definition: &Definition, key: &str, identity: Identity) -> Option<Terms> {
    let may_be_lent = matches!(definition.mechanism, Mechanism::Leased | Mechanism::Approximate);
    terms(definition, key, identity).filter(|_| may_be_lent)
}

/// How much more a lease may be given. Where there is a most that one has, who doesn't say what it keeps may have that already.
fn room_in(terms: Option<&Terms>, call: &LendCall) -> u64 {
    match (terms.map_or(0, |terms| terms.size_max), call.kept) {
        (u64::MAX, _) => u64::MAX,
        (most, Some(kept)) => most.saturating_sub(kept),
        (most, None) if call.sequence == 1 => most,
        (_, None) => 0,
    }
}

impl Engine {
    /// What a lease can be called that nobody has had before.
    pub fn new_lease_id(&self) -> String {
        format!("{:016x}.{}", self.node.id.0, hex(&self.node.random.bytes::<8>()))
    }

    /// Lends a part of a limit to be spent without asking, or keeps a place in flight.
    pub async fn lend(&self, name: &Name, call: &LendCall) -> Result<Lent, LimitError> {
        let (node, until) = (&self.node, self.node.deadline());
        let current = node.definition(name, until).await?;
        if is_spread(&current) {
            return Ok(node.lent_nothing(name, &current, call));
        }
        let room = node.room_if_audited(name, until).await?;
        let made = |currents: &[Current]| {
            let current = currents[0].clone().of(call.identity);
            let definition = &current.defined.definition;
            let (metered, lease_id) = node.lent_of(name, definition, call);
            let rule = current.defined.rule(metered, current.edges);
            let is_place = rule.algorithm == Algorithm::InFlight;
            let terms = lent_by(definition, metered, call.identity);
            let has_some = call.kept != Some(0);
            let ttl_ms = match terms {
                Some(terms) => terms.lent_ms(call.ttl_ms, has_some),
                None if is_place => definition.lease_ttl_ms.unwrap_or(PLACE_TTL_MS),
                // It isn't leased, or not any more: nothing is given.
                None => 0,
            };
            let want =
                call.want.min(rule.algorithm.amount_max(rule.window_ms)).min(room_in(terms.as_ref(), call));
            let is_current = call.version.is_none_or(|version| version == current.defined.version.0);
            let take =
                if terms.is_some() && want > 0 && is_current { Take::Share(want) } else { Take::Nothing };
            let row = RowClaim {
                id: lease_id,
                owner: call.owner.clone(),
                kind: if is_place { RowKind::Place } else { RowKind::Lease },
                // Never shorter than its holder believes, who may not hear of the change.
                ttl_ms: if has_some { ttl_ms.max(call.ttl_ms) } else { ttl_ms },
                sequence: call.sequence,
                spent: call.spent,
                kept: call.kept.unwrap_or(PRODUCT_MAX),
            };
            let claim = Claim { key: meter_key(name, metered), rule, take, row: Some(row) };
            Ok(Charge { claims: vec![claim], memo: None })
        };
        let (currents, charge, charged) = node.charge_by(&[name], until, made).await?;
        let Claim { key: place, rule, row, .. } = &charge.claims[0];
        let lease_id = row.as_ref().map_or_else(|| call.lease_id.clone(), |row| row.id.clone());
        let meter = &charged.meters.first().ok_or(crate::Failure::Internal)?.meter;
        let current = currents[0].clone().of(call.identity);
        let definition = &current.defined.definition;
        let metered = Metered::of_meter(name, place).key(&call.key);
        let is_place = rule.algorithm == Algorithm::InFlight;
        let place_ttl_ms = if is_place { definition.lease_ttl_ms.unwrap_or(PLACE_TTL_MS) } else { 0 };
        let terms = lent_by(definition, metered, call.identity);
        let is_slack = definition.mechanism == Mechanism::Approximate;
        let ttl_ms = match (terms, row) {
            // As long as this holder's does.
            (Some(_), Some(row)) if is_slack => row.ttl_ms,
            (terms, _) => terms.map_or(place_ttl_ms, |terms| terms.ttl_ms),
        };
        let seen = Seen::of(meter, rule);
        let amount = meter.row(&lease_id).map_or(0, |row| row.amount);
        let said = Said {
            event: Event::Kept,
            key: &call.key,
            by: &call.owner,
            reference: &lease_id,
            source: Source::Central.as_str(),
            amount,
            remaining: meter.remaining(rule),
            spent: call.spent,
            ttl_ms,
        };
        node.audit(name, &currents[0], room, said, until).await?;
        if !is_place {
            node.log_lease_message(name, &call.key, &charge.claims[0], meter);
        }
        Ok(Lent {
            // Of what is leased no other node matters, nor what the store is.
            worst: bound(definition, &call.key, 1, "").worst(),
            amount,
            lease_id,
            ttl_ms,
            slack: terms.filter(|_| is_slack).map(|terms| LentSlack {
                ttl_max_ms: terms.ttl_ms,
                sync_ms: definition.sync_ms,
                low: terms.low,
                left: seen.left,
                size_max: (terms.size_max < u64::MAX).then_some(terms.size_max),
            }),
            capacity: definition.capacity_of(metered),
            remaining: seen.remaining,
            reset_ms: meter.reset_ms(rule),
            // Until it is worth asking again.
            retry_ms: if seen.stands_ms > 0 { Some(seen.stands_ms) } else { meter.retry_ms(rule, 1) },
            size: currents[0].defined.definition.lease_size,
            version: currents[0].defined.version,
        })
    }
}

impl Node {
    /// Of a limit that has nothing to lend: its holder asks for every check.
    fn lent_nothing(&self, name: &Name, current: &Current, call: &LendCall) -> Lent {
        let used = self.used_here(name, current, &call.key);
        Lent {
            worst: None,
            lease_id: call.lease_id.clone(),
            amount: 0,
            ttl_ms: 0,
            slack: None,
            capacity: used.capacity,
            remaining: used.remaining,
            reset_ms: used.reset_ms,
            retry_ms: None,
            size: None,
            version: current.defined.version,
        }
    }

    /// Whose meter a lease is of, and what it is called. Its first message decides, and its name says so from then on: which keys are
    /// beyond the most that have a meter of their own, each node knows for itself.
    fn lent_of<'a>(&self, name: &Name, definition: &Definition, call: &'a LendCall) -> (&'a str, String) {
        let said = Metered::of_lease(&call.lease_id);
        let is_first = call.sequence == 1 && definition.algorithm != Algorithm::InFlight;
        if said == Metered::Own && is_first {
            let metered = self.limit_keys.metered(name, definition, &call.key);
            let metered = Metered::of_meter(name, &meter_key(name, metered));
            if let Some(lease_id) = metered.lease_id(&call.lease_id) {
                return (metered.key(&call.key), lease_id);
            }
        }
        (said.key(&call.key), call.lease_id.clone())
    }
}
