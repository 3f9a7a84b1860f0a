//! One check, or several together: all must pass, and a refusal by one charges none (A5).

use super::calls::{Answered, CheckCall, Checked, Denial, LimitError, Place, Source};
use super::definitions::Current;
use super::gossip::{self, is_spread};
use super::leasing::{Local, Ticket};
use super::log::Room;
use super::owned::Way;
use super::purses::Sought;
use crate::engine::{Engine, Node};
use crate::failure::Failure;
use crate::metrics::Metrics;
use baton_core::limit::holder::Seen;
use baton_core::limit::{Log, Mechanism, Metered, Mitigation, Receipt, call_id, memo_key, meter_key};
use baton_core::meter::{Algorithm, Charged, Claim, Memo, RowClaim, RowKind, Take, Verdict};
use baton_store::Charge;
use std::sync::Arc;
use tokio::time::Instant;

/// How long a request is remembered (A6).
pub(super) const MEMORY_MS: u64 = 60_000;
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
#[derive(Clone)]
pub(super) struct Identity {
    pub id: [u8; 16],
    pub memo: Option<String>,
    /// Whether nothing of the whole call counts: beside what counts, a look is only told what it sees.
    pub only_looks: bool,
}

/// Who decides a check that the store can't.
enum InOutage {
    /// This node, as the limit's policy says; remembered by what identifies the call.
    Policy(Option<Identity>),
    /// Whoever forwarded it: a policy's decision is each node's own, and that one has a share too, and owes what it admits of that.
    Forwarder,
}

impl Engine {
    /// Whether all of it may go on.
    pub async fn check_limits(&self, calls: &[CheckCall], wanted: &Wanted) -> Result<Answered, LimitError> {
        let node = &self.node;
        let answered = node.check_limits(calls, wanted, false).await;
        if answered.as_ref().is_ok_and(Answered::is_plain) {
            node.metrics.limit_allowed.inc();
            node.metrics.limit_local.inc();
            return answered;
        }
        let outcome = match &answered {
            Ok(answered) if answered.allowed => "allowed",
            Ok(_) => "refused",
            Err(LimitError::Failed(failure)) => failure.label(),
            Err(_) => "invalid",
        };
        Metrics::count(&node.metrics.limit_checks, outcome);
        for checked in answered.iter().flat_map(|answered| &answered.checks) {
            Metrics::count(&node.metrics.limit_sources, checked.source.as_str());
        }
        answered
    }
}

impl Node {
    /// What another node has forwarded is not forwarded again.
    pub(super) async fn check_limits(
        self: &Arc<Self>,
        calls: &[CheckCall],
        wanted: &Wanted,
        is_forwarded: bool,
    ) -> Result<Answered, LimitError> {
        let at = Instant::now();
        let mut until = at + self.config.store_deadline;
        // What must be remembered, or may be given back, is the store's to decide.
        let may_be_local = wanted.request_id.is_none() && !wanted.receipt;
        // Sent twice at once it is decided twice, one after the other: the second finds what became of the first.
        let request = wanted.request_id.is_some().then(|| self.identity(calls, wanted));
        let mut _turn = None;
        if let Some(request) = &request {
            _turn = Some(self.fallbacks.turn(request.id, until).await?);
            // It has the time that the first one had: with what that left of it a slow store would look like one that is away.
            until = Instant::now() + self.config.store_deadline;
        }
        if let Some(answered) = request.as_ref().map_or(Ok(None), |request| self.repeated(request))? {
            return Ok(answered);
        }
        for call in calls {
            self.hot.note(call, || self.uptime_ms_at(at));
        }
        let mut first = None;
        if let [call] = calls
            && may_be_local
            && call.cost > 0
        {
            let current = self.definition_for(call, at, until).await;
            if let Ok(current) = &current
                && let Some(checked) = self.check_now(call, current, self.uptime_ms_at(at))
            {
                return Ok(Answered {
                    allowed: true,
                    indices: vec![0],
                    checks: vec![checked],
                    refused: None,
                });
            }
            first = Some(current);
        }
        let mut checks: Vec<Option<Checked>> = vec![None; calls.len()];
        let only_looks = calls.iter().all(|call| call.cost == 0);
        let mut spent = SpentHere { node: self, places: Vec::new(), counted: Vec::new(), is_for_good: false };
        let (alone, mut has_spread) = (calls.len() == 1, false);
        let (mut refused, mut rooms, mut low) = (None, Vec::new(), vec![false; calls.len()]);
        for (index, call) in calls.iter().enumerate() {
            let current = match first.take() {
                Some(current) => current,
                None => self.definition_for(call, at, until).await,
            };
            let current = match current {
                // What is asked next fails likewise, and then its policy decides.
                Err(LimitError::Failed(_)) => continue,
                current => current?,
            };
            // What only looks is the store's to tell, unless nobody asks it.
            if call.cost == 0 && !is_spread(&current) {
                continue;
            }
            if call.cost > 0
                && !is_forwarded
                && let Some(capped) = self.capped(call, &current)
            {
                let (denial, checked) = capped;
                (refused, checks[index]) = (Some((index, denial)), Some(checked));
                break;
            }
            if is_spread(&current) {
                has_spread = true;
                let gossip::Counted { checked, denial, ticket } =
                    self.count(call, &current, wanted, only_looks);
                spent.counted.extend(ticket.map(|ticket| (call, ticket)));
                (refused, checks[index]) = (denial.map(|denial| (index, denial)), Some(checked));
                if refused.is_some() {
                    break;
                }
                continue;
            }
            if current.defined.definition.audit {
                rooms.push(self.limit_logs.room(Log::Audit)?);
            }
            if !may_be_local {
                continue;
            }
            let metered = self.metered_here(call, &current);
            match self.way(call, &current, metered) {
                Way::Here => {}
                // Of several an owner elsewhere can't give back what it has spent: the store decides them.
                Way::To(owner) if calls.len() == 1 && !is_forwarded => {
                    match self.ask_owner(owner, call, &current, until).await {
                        Some(answered) => return Ok(answered),
                        None => continue,
                    }
                }
                Way::To(_) | Way::Store => continue,
            }
            let (remaining, reset_ms, source) = match self.spend(call, &current, metered, alone, until).await
            {
                Local::Ask { is_low } => {
                    low[index] = is_low;
                    continue;
                }
                Local::Spent { remaining, reset_ms, renewed, ticket } => {
                    let is_owned = current.defined.definition.mechanism == Mechanism::Owned;
                    let source = match renewed {
                        _ if is_owned && self.owns(&meter_key(&call.limit, metered)) => Source::Owner,
                        true => Source::Renewed,
                        false => Source::Local,
                    };
                    if !alone {
                        spent.places.push((self.purse_of(call, &current, metered), call.cost, ticket));
                    }
                    (remaining, reset_ms, source)
                }
                Local::Refused { retry_after_ms, reset_ms } => {
                    refused = Some((index, Denial { reason: "local_budget_exhausted", retry_after_ms }));
                    (0, reset_ms, Source::Local)
                }
            };
            checks[index] = Some(Checked::plain(&current, metered, remaining, reset_ms, source));
            if refused.is_some() {
                break;
            }
        }
        let asked: Vec<_> = (0..calls.len()).filter(|index| checks[*index].is_none()).collect();
        if refused.is_none() && !asked.is_empty() {
            let calls: Vec<_> = asked.iter().map(|index| calls[*index].clone()).collect();
            let in_outage = match is_forwarded {
                true => InOutage::Forwarder,
                // Of a call that is decided here in part all of it is remembered, below, and never a part.
                false => InOutage::Policy(request.clone().filter(|_| !has_spread)),
            };
            let answered = self.ask_the_store(calls, wanted, in_outage, only_looks, rooms, until).await?;
            refused = answered.refused.map(|(place, denial)| (asked[answered.indices[place]], denial));
            for (index, checked) in answered.indices.into_iter().zip(answered.checks) {
                checks[asked[index]] = Some(checked);
            }
            for checked in
                checks.iter_mut().zip(&low).filter_map(|(checked, low)| checked.as_mut().filter(|_| *low))
            {
                if checked.source == Source::Central {
                    checked.source = Source::GlobalCheck;
                }
            }
            if let Some((index, denial)) = &mut refused
                && checks[*index].as_ref().is_some_and(|checked| checked.source == Source::GlobalCheck)
            {
                denial.reason = "global_budget_exhausted";
            }
        }
        spent.is_for_good = refused.is_none();
        drop(spent);
        // Those that were not asked because another refused have nothing to show.
        let (mut found, mut place) = (Vec::with_capacity(calls.len()), None);
        for (index, checked) in checks.into_iter().enumerate() {
            if let Some(checked) = checked {
                if refused.is_some_and(|(refused, _)| refused == index) {
                    place = Some(found.len());
                }
                found.push((index, checked));
            }
        }
        let refused = refused.zip(place).map(|((_, denial), place)| (place, denial));
        let (indices, checks) = found.into_iter().unzip();
        let answered = Answered { allowed: refused.is_none(), indices, checks, refused };
        if has_spread && let Some(request) = request {
            self.remember(request, &answered);
        }
        Ok(answered)
    }

    /// The limit of a check, as whoever it is about sees it.
    async fn definition_for(
        self: &Arc<Self>,
        call: &CheckCall,
        at: Instant,
        until: Instant,
    ) -> Result<Current, LimitError> {
        Ok(self.definition_at(&call.limit, at, until).await?.of(call.identity))
    }

    /// A check that is spent out of a lease as it is: most are, and there is nothing to wait for, to ask or to put back.
    fn check_now(self: &Arc<Self>, call: &CheckCall, current: &Current, now_ms: u64) -> Option<Checked> {
        let definition = &current.defined.definition;
        let is_leased = matches!(definition.mechanism, Mechanism::Leased | Mechanism::Approximate);
        let is_capped = matches!(definition.hot_key, Mitigation::Cap { .. });
        if !is_leased || is_capped || definition.audit {
            return None;
        }
        let (remaining, reset_ms) = self.spend_now(call, current, now_ms)?;
        Some(Checked::plain(current, &call.key, remaining, reset_ms, Source::Local))
    }

    /// Whose meter a check is of. A key with a purse has its own, and is among those that have one by every message about it: nobody
    /// has to look there for each check.
    fn metered_here<'a>(&self, call: &'a CheckCall, current: &Current) -> &'a str {
        if self.has_purse(&self.purse_of(call, current, &call.key)) {
            return &call.key;
        }
        self.limit_keys.metered(&call.limit, &current.defined.definition, &call.key)
    }

    /// The refusal of a check of a hot key, if that is capped and has had as many in this second as it may. Nothing is counted by it.
    fn capped(&self, call: &CheckCall, current: &Current) -> Option<(Denial, Checked)> {
        let definition = &current.defined.definition;
        let Mitigation::Cap { per_second } = definition.hot_key else { return None };
        let place = meter_key(&call.limit, &call.key);
        let retry_ms = self.hot.pace(&place, per_second, self.uptime_ms()).err()?;
        if definition.dry_run {
            return None;
        }
        self.metrics.hot_key_capped.inc();
        let denial = Denial { reason: "hot_key_capped", retry_after_ms: Some(retry_ms) };
        Some((denial, Checked::plain(current, &call.key, 0, retry_ms, Source::Local)))
    }

    /// Decided by the store, or as a policy says; and written down, if it is to be.
    async fn ask_the_store(
        self: &Arc<Self>,
        calls: Vec<CheckCall>,
        wanted: &Wanted,
        in_outage: InOutage,
        only_looks: bool,
        rooms: Vec<Room>,
        until: Instant,
    ) -> Result<Answered, LimitError> {
        let is_audited = !rooms.is_empty();
        let (node, wanted) = (self.clone(), wanted.clone());
        let asking = async move {
            let answered = match node.check_centrally(&calls, &wanted, only_looks, until).await {
                Ok(answered) => answered,
                Err(error) => match in_outage {
                    InOutage::Policy(request) => node.fall_back(&calls, request, only_looks, error)?,
                    InOutage::Forwarder => return Err(error),
                },
            };
            node.audit_checks(&calls, &wanted, &answered, rooms, until).await?;
            Ok(answered)
        };
        if !is_audited {
            return asking.await;
        }
        // By itself, so that what is counted is written down also if its caller goes away.
        tokio::spawn(asking).await.map_err(|_| Failure::Internal)?
    }

    /// Decided by the store.
    async fn check_centrally(
        self: &Arc<Self>,
        calls: &[CheckCall],
        wanted: &Wanted,
        only_looks: bool,
        until: Instant,
    ) -> Result<Answered, LimitError> {
        let names: Vec<_> = calls.iter().map(|call| &call.limit).collect();
        let identity = Identity { only_looks, ..self.identity(calls, wanted) };
        if self.must_hold(calls, &identity, until).await? {
            return self.check_by_holds(calls, wanted, &identity, until).await;
        }
        let made = |currents: &[Current]| self.check_charge(calls, currents, &identity);
        let (currents, charge, charged) = self.charge_by(&names, until, made).await?;
        self.answered(calls, wanted, &identity, &currents, &charge.claims, charged)
    }

    pub(super) fn identity(&self, calls: &[CheckCall], wanted: &Wanted) -> Identity {
        let Some(request_id) = &wanted.request_id else {
            return Identity { id: self.random.bytes(), memo: None, only_looks: false };
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
        Identity { id, memo: Some(hex(&call_id(&parts))), only_looks: false }
    }

    pub(super) fn check_charge(
        &self,
        calls: &[CheckCall],
        currents: &[Current],
        identity: &Identity,
    ) -> Result<Charge, LimitError> {
        let mut claims: Vec<Claim> = Vec::with_capacity(calls.len());
        for (call, current) in calls.iter().zip(currents) {
            let current = current.clone().of(call.identity);
            let definition = &current.defined.definition;
            if is_spread(&current) {
                // It became one just now, or its definition could be read just now: it isn't counted at the store.
                return Err(Failure::Unavailable { unknown: false }.into());
            }
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
            let row = is_place.then(|| {
                let metered = Metered::of_meter(&call.limit, &key);
                self.place(definition.lease_ttl_ms, identity, metered)
            });
            claims.push(Claim { key, rule, take, row });
        }
        let memo = identity.memo.as_ref().map(|digest| Memo {
            key: memo_key(&claims[0].key, &identity.id),
            digest: digest.clone(),
            ttl_ms: MEMORY_MS,
        });
        Ok(Charge { claims, memo })
    }

    fn place(&self, ttl_ms: Option<u64>, identity: &Identity, metered: Metered) -> RowClaim {
        let id = hex(&identity.id);
        RowClaim {
            id: metered.lease_id(&id).unwrap_or(id),
            owner: format!("{:016x}", self.id.0),
            kind: RowKind::Place,
            ttl_ms: ttl_ms.unwrap_or(PLACE_TTL_MS),
            sequence: 1,
            spent: 0,
            kept: 0,
        }
    }

    pub(super) fn answered(
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
        let key = self.key()?;
        let mut denial = None;
        let mut checks = Vec::with_capacity(calls.len());
        for (index, (call, current)) in calls.iter().zip(currents).enumerate() {
            let current = current.clone().of(call.identity);
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
            } else if identity.only_looks && is_short && !definition.dry_run && denial.is_none() {
                let retry_after_ms = meter.retry_ms(rule, 1);
                denial = Some((index, Denial { reason: "budget_exhausted", retry_after_ms }));
            }
            let counts = refused.is_none() && found.granted > 0;
            let metered = Metered::of_meter(&call.limit, &claim.key);
            let in_flight = definition.algorithm == Algorithm::InFlight;
            let receipt = (wanted.receipt && counts && !in_flight).then(|| {
                let at = Self::counted_at(&charged, index);
                let receipt = Receipt { id: identity.id, amount: found.granted, at, metered };
                receipt.issue(key, &call.limit, &call.key)
            });
            let place = (counts && in_flight).then(|| {
                let row = self.place(definition.lease_ttl_ms, identity, metered);
                Place { lease_id: row.id, ttl_ms: row.ttl_ms }
            });
            self.note_remaining(&call.limit, definition, &claim.key, meter.remaining(rule));
            // What is told again is of the day it was written.
            if definition.mechanism != Mechanism::Central && !charged.repeated {
                let retry_ms =
                    || denial.filter(|_| Some(index) == refused).map(|(_, denial)| denial.retry_after_ms);
                self.note_seen(
                    &self.purse_of(call, &current, metered.key(&call.key)),
                    Seen::of(meter, rule),
                    retry_ms().map(|retry_ms| (call.cost, retry_ms)),
                );
            }
            let capacity = definition.capacity_of(metered.key(&call.key));
            // Of a refused charge the meters are shown as if it had not been: what it would have taken is still there.
            let remaining = meter.remaining(rule) + if refused.is_some() { found.granted } else { 0 };
            checks.push(Checked {
                capacity,
                remaining: remaining.min(capacity),
                reset_ms: meter.reset_ms(rule),
                source: Source::Central,
                would_refuse: definition.dry_run && is_short,
                receipt,
                place,
                defined: Arc::clone(&current.defined),
            });
        }
        let indices = (0..checks.len()).collect();
        Ok(Answered { allowed: denial.is_none(), indices, checks, refused: denial })
    }
}

/// What was spent here for checks that may still not pass: put back unless they do, also if their caller goes away.
struct SpentHere<'a> {
    node: &'a Node,
    places: Vec<(Sought<'a>, u64, Ticket)>,
    counted: Vec<(&'a CheckCall, gossip::Ticket)>,
    is_for_good: bool,
}

impl Drop for SpentHere<'_> {
    fn drop(&mut self) {
        for (sought, cost, ticket) in self.places.drain(..) {
            self.node.decided(&sought, cost, ticket, self.is_for_good);
        }
        for (call, ticket) in self.counted.drain(..).filter(|_| !self.is_for_good) {
            self.node.uncount(call, ticket);
        }
    }
}

impl Answered {
    /// One check, allowed by this node out of what it had.
    fn is_plain(&self) -> bool {
        self.allowed && matches!(&self.checks[..], [checked] if checked.source == Source::Local)
    }
}

impl Checked {
    pub(super) fn plain(
        current: &Current,
        metered: &str,
        remaining: u64,
        reset_ms: u64,
        source: Source,
    ) -> Self {
        let capacity = current.defined.definition.capacity_of(metered);
        Self {
            defined: current.defined.clone(),
            capacity,
            remaining: remaining.min(capacity),
            reset_ms,
            source,
            would_refuse: false,
            receipt: None,
            place: None,
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
