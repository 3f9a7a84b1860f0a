//! Several limits whose meters the store can't charge in one step: hold, then confirm (A5).
//!
//! A hold is outstanding for two seconds. All of them are taken one after the other; a refusal cancels those before it. Only if the
//! last one was taken while all were surely still there does anybody hear yes: counted from before the first was sent, less a
//! margin. A confirmation that gets lost changes nothing, since a hold that expires counts as spent; a cancellation that gets
//! lost costs what it held until its window is over. So too much is never admitted, and too little may be.

use super::calls::{Answered, CheckCall, LimitError};
use super::check::{Identity, Wanted, hex};
use super::definitions::Current;
use crate::engine::Node;
use crate::failure::Failure;
use baton_core::limit::meter_of;
use baton_core::meter::{Claim, RowClaim, RowKind, Take};
use baton_store::Charge;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a hold lives.
const HOLD: Duration = Duration::from_secs(2);
/// By how much sooner than that all must be held.
const MARGIN: Duration = Duration::from_millis(200);

/// A hold that may have been taken.
struct Hold {
    limit: baton_core::Name,
    claim: Claim,
    cost: u64,
}

impl Node {
    /// Whether these have to be held one by one.
    pub(super) async fn must_hold(
        self: &Arc<Self>,
        calls: &[CheckCall],
        identity: &Identity,
        until: Instant,
    ) -> Result<bool, LimitError> {
        if calls.len() < 2 || self.store.guarantees().charge_spans_groups {
            return Ok(false);
        }
        let mut currents = Vec::with_capacity(calls.len());
        for call in calls {
            currents.push(self.definition(&call.limit, until).await?);
        }
        Ok(!self.check_charge(calls, &currents, identity)?.is_in_one_group())
    }

    pub(super) async fn check_by_holds(
        self: &Arc<Self>,
        calls: &[CheckCall],
        wanted: &Wanted,
        identity: &Identity,
        until: Instant,
    ) -> Result<Answered, LimitError> {
        // Of this try alone: a hold of the one before may be about to be cancelled.
        let identity = &Identity { id: self.random.bytes(), memo: None, only_looks: identity.only_looks };
        let deadline = (Instant::now() + HOLD - MARGIN).min(until);
        let mut all = Answered { allowed: true, indices: Vec::new(), checks: Vec::new(), refused: None };
        let mut holds = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let one = std::slice::from_ref(call);
            let made = |currents: &[Current]| {
                let mut charge = self.check_charge(one, currents, identity)?;
                charge.memo = None;
                let is_taken = call.cost > 0 && !currents[0].defined.definition.dry_run;
                for claim in charge.claims.iter_mut().filter(|claim| is_taken && claim.row.is_none()) {
                    claim.row = Some(self.hold(identity, index));
                }
                Ok(charge)
            };
            let asked = self.charge_by(&[&call.limit], deadline, made).await;
            let (currents, charge, charged) = match asked {
                Ok(asked) => asked,
                Err(error) => {
                    // It may have arrived.
                    let currents = self.known_definition(&call.limit);
                    if let Some(mut charge) = currents.and_then(|current| made(&[current]).ok()) {
                        let claim = charge.claims.remove(0);
                        holds.push(Hold { limit: call.limit.clone(), claim, cost: call.cost });
                    }
                    self.settle_holds(holds, false);
                    return Err(error);
                }
            };
            let answered = self.answered(one, wanted, identity, &currents, &charge.claims, charged)?;
            let claim = charge.claims.into_iter().next().ok_or(Failure::Internal)?;
            all.indices.push(index);
            all.checks.extend(answered.checks);
            if let Some((_, denial)) = answered.refused {
                self.note_refusal(&claim.key, call.cost, denial.retry_after_ms);
                self.settle_holds(holds, false);
                (all.allowed, all.refused) = (false, Some((index, denial)));
                return Ok(all);
            }
            holds.push(Hold { limit: call.limit.clone(), claim, cost: call.cost });
        }
        if Instant::now() >= deadline {
            self.settle_holds(holds, false);
            return Err(Failure::Unavailable { unknown: false }.into());
        }
        self.settle_holds(holds, true);
        Ok(all)
    }

    fn hold(&self, identity: &Identity, index: usize) -> RowClaim {
        RowClaim {
            id: format!("{}.{index}", hex(&identity.id)),
            owner: format!("{:016x}", self.id.0),
            kind: RowKind::Hold,
            ttl_ms: HOLD.as_millis() as u64,
            sequence: 1,
            spent: 0,
            kept: 0,
        }
    }

    /// Tells the store what became of holds, behind the answer. A place in flight stays, unless it is cancelled.
    fn settle_holds(self: &Arc<Self>, holds: Vec<Hold>, confirmed: bool) {
        let node = self.clone();
        tokio::spawn(async move {
            for Hold { limit, claim, cost } in holds {
                let Some(row) = claim.row.clone() else { continue };
                if confirmed && row.kind != RowKind::Hold {
                    continue;
                }
                let metered = meter_of(&limit, &claim.key.name).unwrap_or_default();
                let spent = if confirmed { cost } else { 0 };
                let made = |currents: &[Current]| {
                    let rule = currents[0].defined.rule(&metered, currents[0].edges);
                    let row = RowClaim { sequence: 2, spent, ttl_ms: 0, ..row.clone() };
                    let claim = Claim { key: claim.key.clone(), rule, take: Take::Nothing, row: Some(row) };
                    Ok(Charge { claims: vec![claim], memo: None })
                };
                // What isn't heard of expires by itself, and counts as spent.
                drop(node.charge_by(&[&limit], node.deadline(), made).await);
            }
        });
    }
}
