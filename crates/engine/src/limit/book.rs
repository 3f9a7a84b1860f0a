//! Reservations, and what is given back: counted work that wasn't done, a reservation nobody needs, a place in flight.

use super::calls::{Booked, Denial, LimitError, ReserveCall, Source};
use super::check::hex;
use super::definitions::Current;
use super::gossip::is_spread;
use super::log::Said;
use crate::engine::{Engine, Node};
use baton_core::Name;
use baton_core::limit::{Event, Metered, Receipt, call_id, memo_key, meter_key};
use baton_core::meter::{Algorithm, Claim, Memo, RowClaim, RowKind, Take, Verdict};
use baton_store::Charge;

/// How long a reservation's call is remembered.
const MEMORY_MS: u64 = 60_000;

impl Engine {
    /// Books a time instead of refusing (A8).
    pub async fn reserve(
        &self,
        name: &Name,
        call: &ReserveCall,
        principal: &str,
    ) -> Result<Booked, LimitError> {
        let (node, until) = (&self.node, self.node.deadline());
        let room = node.room_if_audited(name, until).await?;
        let id = match &call.request_id {
            Some(id) => {
                call_id(&[b"limit reserve".as_slice(), principal.as_bytes(), name.path(), id.as_bytes()])
            }
            None => node.random.bytes(),
        };
        let asked =
            call_id(&[call.key.as_bytes(), &call.cost.to_be_bytes(), &call.wait_max_ms.to_be_bytes()]);
        let made = |currents: &[Current]| {
            let current = &currents[0];
            let definition = &current.defined.definition;
            if definition.algorithm != Algorithm::TokenBucket {
                return Err(LimitError::WrongAlgorithm);
            }
            let metered = node.limit_keys.metered(name, definition, &call.key);
            let rule = current.defined.rule(metered, current.edges);
            if call.cost > rule.capacity {
                return Err(LimitError::CostTooHigh { capacity: rule.capacity });
            }
            let key = meter_key(name, metered);
            // Also without a requestId: that makes an unknown outcome clear itself up.
            let memo = Memo { key: memo_key(&key, &id), digest: hex(&asked), ttl_ms: MEMORY_MS };
            let take = Take::Book { amount: call.cost, wait_max_ms: call.wait_max_ms };
            Ok(Charge { claims: vec![Claim { key, rule, take, row: None }], memo: Some(memo) })
        };
        let (currents, charge, charged) = node.charge_by(&[name], until, made).await?;
        if charge.memo.as_ref().is_some_and(|memo| !charged.is_of(memo)) {
            return Err(LimitError::RequestIdReused);
        }
        let found = charged.meters.first().ok_or(crate::Failure::Internal)?;
        let said = Said {
            event: if charged.verdict == Verdict::Charged { Event::Reserved } else { Event::Refused },
            key: &call.key,
            by: principal,
            reference: call.request_id.as_deref().unwrap_or_default(),
            source: Source::Central.as_str(),
            amount: call.cost,
            remaining: found.meter.remaining(&charge.claims[0].rule),
            spent: 0,
            ttl_ms: 0,
        };
        node.audit(name, &currents[0], room, said, until).await?;
        if charged.verdict != Verdict::Charged {
            let retry_after_ms = found.meter.retry_ms(&charge.claims[0].rule, call.cost);
            return Ok(Booked::No(Denial { reason: "budget_exhausted", retry_after_ms }));
        }
        let at = Node::counted_at(&charged, 0);
        let metered = Metered::of_meter(name, &charge.claims[0].key);
        let receipt = Receipt { id, amount: call.cost, at, metered };
        Ok(Booked::At { wait_ms: found.wait_ms, reservation_id: receipt.issue(node.key()?, name, &call.key) })
    }

    /// Gives back what a check or a reservation was counted for: at most once, and only as far as it still counts. How much
    /// was given back.
    pub async fn refund(
        &self,
        name: &Name,
        key: &str,
        receipt: &str,
        principal: &str,
    ) -> Result<u64, LimitError> {
        let (node, until) = (&self.node, self.node.deadline());
        let receipt = Receipt::read(receipt, node.key()?, name, key).ok_or(LimitError::BadReceipt)?;
        let current = node.definition(name, until).await?;
        if is_spread(&current) {
            return node.uncount_by(name, &current, key, &receipt).await;
        }
        let room = node.room_if_audited(name, until).await?;
        let made = |currents: &[Current]| {
            let current = &currents[0];
            // The one it was counted on: another node may see the key on the other one by now, and so may this one.
            let metered = receipt.metered.key(key);
            let rule = current.defined.rule(metered, current.edges);
            let meter = meter_key(name, metered);
            let id = call_id(&[b"limit refund".as_slice(), &receipt.id[..], name.path(), key.as_bytes()]);
            // Remembered for as long as it could be given back again: until nothing of it counts any more.
            let ttl_ms = rule.window_ms.saturating_mul(2).saturating_add(MEMORY_MS).max(drained_ms(&rule));
            let memo = Memo { key: memo_key(&meter, &id), digest: hex(&id), ttl_ms };
            let amount = receipt.amount.min(rule.algorithm.amount_max(rule.window_ms));
            let take = Take::Credit { amount, at_ms: receipt.at.0 };
            Ok(Charge { claims: vec![Claim { key: meter, rule, take, row: None }], memo: Some(memo) })
        };
        let (currents, charge, charged) = node.charge_by(&[name], until, made).await?;
        let found = charged.meters.first().ok_or(crate::Failure::Internal)?;
        let said = Said {
            event: Event::Refunded,
            key,
            by: principal,
            reference: "",
            source: Source::Central.as_str(),
            amount: found.granted,
            remaining: found.meter.remaining(&charge.claims[0].rule),
            spent: 0,
            ttl_ms: 0,
        };
        node.audit(name, &currents[0], room, said, until).await?;
        Ok(found.granted)
    }

    /// Gives a place in flight back, whether or not it was still there.
    ///
    /// Of no other limit: what is said here of a row is that nothing of it was used, which is true of a place, and of a lease only its
    /// holder knows.
    pub async fn leave(
        &self,
        name: &Name,
        key: &str,
        lease_id: &str,
        principal: &str,
    ) -> Result<(), LimitError> {
        let (node, until) = (&self.node, self.node.deadline());
        let room = node.room_if_audited(name, until).await?;
        let made = |currents: &[Current]| {
            let current = &currents[0];
            if current.defined.definition.algorithm != Algorithm::InFlight {
                return Err(LimitError::NoPlaces);
            }
            let metered = Metered::of_lease(lease_id).key(key);
            let row = RowClaim {
                id: lease_id.into(),
                owner: format!("{:016x}", node.id.0),
                kind: RowKind::Place,
                ttl_ms: 0,
                sequence: baton_core::meter::NUMBER_MAX,
                spent: 0,
                kept: 0,
            };
            let rule = current.defined.rule(metered, current.edges);
            let claim = Claim { key: meter_key(name, metered), rule, take: Take::Nothing, row: Some(row) };
            Ok(Charge { claims: vec![claim], memo: None })
        };
        let (currents, charge, charged) = node.charge_by(&[name], until, made).await?;
        let found = charged.meters.first().ok_or(crate::Failure::Internal)?;
        let said = Said {
            event: Event::Left,
            key,
            by: principal,
            reference: lease_id,
            source: Source::Central.as_str(),
            amount: 0,
            remaining: found.meter.remaining(&charge.claims[0].rule),
            spent: 0,
            ttl_ms: 0,
        };
        node.audit(name, &currents[0], room, said, until).await
    }
}

/// How long a full bucket, with a window's debt, takes to be empty.
fn drained_ms(rule: &baton_core::meter::Rule) -> u64 {
    let windows = (rule.capacity + rule.limit).div_ceil(rule.limit.max(1));
    windows.saturating_mul(rule.window_ms)
}
