//! One check, or several together: all must pass, and a refusal by one charges none (A5).

use super::calls::{Answered, CheckCall, Checked, Denial, LimitError, Place, Source};
use super::definitions::Current;
use crate::engine::{Engine, Node};
use crate::failure::Failure;
use crate::metrics::Metrics;
use baton_core::limit::{Receipt, call_id, memo_key, meter_key};
use baton_core::meter::{Algorithm, Charged, Claim, Memo, RowClaim, RowKind, Take, Verdict};
use baton_store::Charge;
use std::sync::Arc;

/// How long a request is remembered (A6).
const MEMORY_MS: u64 = 60_000;
/// How long a place in flight is kept if its holder says nothing.
const PLACE_TTL_MS: u64 = 10_000;

/// Beside the checks: what is wanted of them together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// As whom.
    pub principal: String,
    /// Makes a repeated call give the same answer.
    pub request_id: Option<String>,
    /// Whether it may be given back.
    pub receipt: bool,
}

/// What identifies a call that may be sent again, or a new one.
pub(super) struct Identity {
    pub id: [u8; 16],
    pub memo: Option<String>,
}

impl Engine {
    /// Whether all of it may go on.
    pub async fn check_limits(&self, calls: &[CheckCall], wanted: &Wanted) -> Result<Answered, LimitError> {
        let node = &self.node;
        let until = node.deadline();
        let names: Vec<_> = calls.iter().map(|call| &call.limit).collect();
        let identity = node.identity(calls, wanted);
        let made = |currents: &[Current]| node.check_charge(calls, currents, &identity);
        let answered = match node.charge_by(&names, until, made).await {
            Ok((currents, charge, charged)) => {
                node.answered(calls, wanted, &identity, &currents, &charge.claims, charged)
            }
            Err(error) => Err(error),
        };
        Metrics::count(
            &node.metrics.limit_checks,
            match &answered {
                Ok(answered) if answered.allowed => "allowed",
                Ok(_) => "refused",
                Err(LimitError::Failed(failure)) => failure.label(),
                Err(_) => "invalid",
            },
        );
        answered
    }
}

impl Node {
    fn identity(&self, calls: &[CheckCall], wanted: &Wanted) -> Identity {
        let Some(request_id) = &wanted.request_id else {
            return Identity { id: self.random.bytes(), memo: None };
        };
        let id = call_id(&[
            b"limit check".as_slice(),
            wanted.principal.as_bytes(),
            calls[0].limit.path(),
            request_id.as_bytes(),
        ]);
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for call in calls {
            let cost = call.cost.to_be_bytes();
            parts.extend([call.limit.path().to_vec(), call.key.as_bytes().to_vec(), cost.to_vec()]);
        }
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        Identity { id, memo: Some(hex(&call_id(&parts))) }
    }

    fn check_charge(
        &self,
        calls: &[CheckCall],
        currents: &[Current],
        identity: &Identity,
    ) -> Result<Charge, LimitError> {
        let mut claims: Vec<Claim> = Vec::with_capacity(calls.len());
        for (call, current) in calls.iter().zip(currents) {
            let definition = &current.defined.definition;
            let mut metered = self.limit_keys.metered(&call.limit, definition, &call.key);
            if claims.iter().any(|claim| claim.key == meter_key(&call.limit, metered)) {
                // Two that share a meter can't be in one charge: one of them keeps its own for once.
                metered = &call.key;
            }
            let key = meter_key(&call.limit, metered);
            if claims.iter().any(|claim| claim.key == key) {
                return Err(LimitError::Twice);
            }
            let rule = current.defined.rule(metered, current.edges);
            let take = match definition.dry_run {
                true => Take::Try(call.cost),
                false => Take::AllOrNone(call.cost),
            };
            let is_place = rule.algorithm == Algorithm::InFlight && call.cost > 0;
            let row = is_place.then(|| self.place(definition.lease_ttl_ms, identity));
            claims.push(Claim { key, rule, take, row });
        }
        let memo = identity.memo.as_ref().map(|digest| Memo {
            key: memo_key(&claims[0].key, &identity.id),
            digest: digest.clone(),
            ttl_ms: MEMORY_MS,
        });
        Ok(Charge { claims, memo })
    }

    fn place(&self, ttl_ms: Option<u64>, identity: &Identity) -> RowClaim {
        RowClaim {
            id: hex(&identity.id),
            holder: format!("{:016x}", self.id.0),
            kind: RowKind::Place,
            ttl_ms: ttl_ms.unwrap_or(PLACE_TTL_MS),
            sequence: 1,
            spent: 0,
            kept: 0,
        }
    }

    fn answered(
        &self,
        calls: &[CheckCall],
        wanted: &Wanted,
        identity: &Identity,
        currents: &[Current],
        claims: &[Claim],
        charged: Charged,
    ) -> Result<Answered, LimitError> {
        if charged.digest.as_ref().is_some_and(|digest| Some(digest) != identity.memo.as_ref()) {
            return Err(LimitError::RequestIdReused);
        }
        let refused = match charged.verdict {
            Verdict::Refused { index } => Some(index),
            Verdict::Charged | Verdict::Outdated { .. } => None,
        };
        let mut denial = None;
        let mut checks = Vec::with_capacity(calls.len());
        for (index, (call, current)) in calls.iter().zip(currents).enumerate() {
            let (Some(claim), Some(found)) = (claims.get(index), charged.meters.get(index)) else {
                return Err(Failure::Internal.into());
            };
            let (definition, rule, meter) = (&current.defined.definition, &claim.rule, &found.meter);
            // A look is allowed if there is anything to be had.
            let is_short =
                if call.cost == 0 { meter.remaining(rule) == 0 } else { found.granted < call.cost };
            if Some(index) == refused {
                let retry_after_ms = meter.retry_ms(rule, call.cost);
                denial = Some((index, Denial { reason: "budget_exhausted", retry_after_ms }));
            } else if refused.is_none()
                && call.cost == 0
                && is_short
                && !definition.dry_run
                && denial.is_none()
            {
                let retry_after_ms = meter.retry_ms(rule, 1);
                denial = Some((index, Denial { reason: "budget_exhausted", retry_after_ms }));
            }
            let counts = refused.is_none() && found.granted > 0;
            let in_flight = definition.algorithm == Algorithm::InFlight;
            let receipt = (wanted.receipt && counts && !in_flight).then(|| {
                let receipt =
                    Receipt { id: identity.id, amount: found.granted, at: Self::counted_at(&charged, index) };
                receipt.issue(&self.key, &call.limit, &call.key)
            });
            let place = (counts && in_flight).then(|| {
                let row = self.place(definition.lease_ttl_ms, identity);
                Place { lease_id: row.id, ttl_ms: row.ttl_ms }
            });
            checks.push(Checked {
                capacity: rule.capacity,
                // Of a refused charge the meters are shown as if it had not been: what it would have taken is still there.
                remaining: meter.remaining(rule) + if refused.is_some() { found.granted } else { 0 },
                reset_ms: meter.reset_ms(rule),
                source: Source::Central,
                would_refuse: definition.dry_run && is_short,
                receipt,
                place,
                defined: Arc::clone(&current.defined),
            });
        }
        Ok(Answered { allowed: denial.is_none(), checks, refused: denial })
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
