//! Several limits whose meters the store can't charge in one step: hold, then confirm (A5).
//!
//! A hold is outstanding for two seconds. All of them are taken one after the other; a refusal cancels those before it. Only if the
//! last one was taken while all were surely still there does anybody hear yes: counted from before the first was sent, less a
//! margin. A confirmation that gets lost changes nothing, since a hold that expires counts as spent; a cancellation that gets
//! lost costs what it held until its window is over. So too much is never admitted, and too little may be.
//!
//! A limit that can't refuse, because it only counts or is only looked at, is asked when all others are held: what comes to
//! nothing isn't counted there either.
//!
//! It runs by itself, so that a caller who goes away leaves nothing held: then everything is cancelled.
//!
//! **With a `requestId`** the commit point is the first meter's confirmation, which puts the memo, before anybody hears yes. The memo
//! names the try that put it: another one finds that the request was admitted already, and cancels what it held itself.

use super::calls::{Answered, CheckCall, Checked, LimitError};
use super::check::{Identity, MEMORY_MS, Wanted, hex};
use super::definitions::Current;
use crate::asleep::Moment;
use crate::engine::Node;
use crate::failure::Failure;
use baton_core::Name;
use baton_core::limit::{Metered, Receipt, memo_key, meter_key, meter_of};
use baton_core::meter::{Algorithm, Charged, Claim, Memo, RowClaim, RowKind, Take};
use baton_store::Charge;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a hold lives.
const HOLD: Duration = Duration::from_secs(2);
/// By how much sooner than that all must be held.
const MARGIN: Duration = Duration::from_millis(200);
/// Checks that hold, or settle what they held, at once. One more waits its turn for as long as a call may take, and is refused
/// as overload then.
const ROUNDS_MAX: u32 = 1_000;

/// Places for checks that hold.
pub(crate) struct Rounds(Arc<Semaphore>);

impl Default for Rounds {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROUNDS_MAX as usize)))
    }
}

/// Before stopping: what is held is settled, for as long as a hold lives.
pub(crate) async fn settled(node: &Node) {
    // What isn't by then counts as spent.
    drop(timeout(HOLD, node.rounds.0.acquire_many(ROUNDS_MAX)).await);
}

/// One check of several limits.
struct Round {
    node: Arc<Node>,
    calls: Vec<CheckCall>,
    wanted: Wanted,
    /// Of this try alone: a hold of the one before may be about to be cancelled.
    own: Identity,
    /// Where the request is remembered, and as what. Nothing if it isn't, or has a place in flight, which is its try's own.
    memo: Option<Memo>,
    /// What receipts are made out to.
    id: [u8; 16],
    deadline: Instant,
    /// Before the first hold was sent.
    began: Moment,
}

/// A hold that may have been taken.
#[derive(Clone)]
struct Hold {
    limit: Name,
    claim: Claim,
    cost: u64,
}

/// What is to become of holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Confirmed,
    Cancelled,
    /// Nobody knows whether it was admitted: they expire, and count as spent.
    Left,
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
        let turn = timeout_at(until, self.rounds.0.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(Failure::Overloaded.into()) };
        let own = Identity { id: self.random.bytes(), memo: None, only_looks: identity.only_looks };
        let has_place = calls.iter().any(|call| {
            let current = self.known_definition(&call.limit);
            current.is_none_or(|current| current.defined.definition.algorithm == Algorithm::InFlight)
        });
        let digest = identity.memo.as_ref().filter(|_| !has_place && !identity.only_looks);
        let memo = digest.map(|digest| Memo {
            key: memo_key(&meter_key(&calls[0].limit, &calls[0].key), &identity.id),
            digest: format!("{digest}.{}", hex(&own.id)),
            ttl_ms: MEMORY_MS,
        });
        let id = if memo.is_some() { identity.id } else { own.id };
        let began = self.moment();
        let deadline = (began.at + HOLD - MARGIN).min(until);
        let (calls, wanted) = (calls.to_vec(), wanted.clone());
        let round = Round { node: self.clone(), calls, wanted, own, memo, id, deadline, began };
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            round.run(answer).await;
            drop(turn);
        });
        answered.await.unwrap_or(Err(Failure::Internal.into()))
    }
}

impl Round {
    async fn run(self, answer: oneshot::Sender<Result<Answered, LimitError>>) {
        let mut holds = Vec::with_capacity(self.calls.len());
        let (mut answered, mut fate) = match self.take(&mut holds, &answer).await {
            Ok(answered) if answered.allowed => (Ok(answered), Fate::Confirmed),
            refused => (refused, Fate::Cancelled),
        };
        let mut is_sealed = false;
        if let Some(memo) = &self.memo {
            if fate == Fate::Confirmed && !answer.is_closed() {
                match self.seal(memo, &holds).await {
                    Ok(true) => is_sealed = true,
                    // Another try of this request was admitted, and is what counts.
                    Ok(false) => fate = Fate::Cancelled,
                    Err(error) => {
                        let is_unknown = error == Failure::Unavailable { unknown: true }.into();
                        fate = if is_unknown { Fate::Left } else { Fate::Cancelled };
                        answered = Err(error);
                    }
                }
            } else if answered.as_ref().is_ok_and(|answered| !answered.allowed) {
                // It may have been admitted before there was nothing left.
                answered = match self.remembered(memo).await {
                    Ok(None) => answered,
                    Ok(Some(before)) => self.again(&before).await,
                    Err(error) => Err(error),
                };
            }
        }
        if answer.send(answered).is_err() && fate == Fate::Confirmed && !is_sealed {
            // Nobody heard it, so nobody goes on.
            fate = Fate::Cancelled;
        }
        self.settle(holds, fate).await;
    }

    /// Takes one hold after the other, until one is refused or the caller has gone.
    async fn take(
        &self,
        holds: &mut Vec<Hold>,
        answer: &oneshot::Sender<Result<Answered, LimitError>>,
    ) -> Result<Answered, LimitError> {
        let node = &self.node;
        let can_refuse = |index: &usize| {
            let call = &self.calls[*index];
            let current = node.known_definition(&call.limit);
            call.cost > 0 && current.is_none_or(|current| !current.defined.definition.dry_run)
        };
        let (first, last): (Vec<_>, Vec<_>) = (0..self.calls.len()).partition(can_refuse);
        let mut found = Vec::with_capacity(self.calls.len());
        for index in first.into_iter().chain(last) {
            if answer.is_closed() {
                return Err(Failure::Unavailable { unknown: false }.into());
            }
            let call = &self.calls[index];
            let made = |currents: &[Current]| self.hold(call, index, currents);
            let hold = |claim| Hold { limit: call.limit.clone(), claim, cost: call.cost };
            let asked = node.charge_by(&[&call.limit], self.deadline, made).await;
            let (currents, mut charge, charged) = match asked {
                Ok(asked) => asked,
                Err(error) => {
                    // It may have arrived.
                    let currents = node.known_definition(&call.limit);
                    if let Some(mut charge) = currents.and_then(|current| made(&[current]).ok()) {
                        holds.push(hold(charge.claims.remove(0)));
                    }
                    return Err(error);
                }
            };
            let identity = Identity { id: self.id, memo: None, only_looks: self.own.only_looks };
            let one = std::slice::from_ref(call);
            let mut answered =
                node.answered(one, &self.wanted, &identity, &currents, &charge.claims, charged)?;
            let claim = charge.claims.remove(0);
            found.push((index, answered.checks.remove(0)));
            if let Some((_, denial)) = answered.refused {
                let refused = Some((found.len() - 1, denial));
                return Ok(Answered { allowed: false, refused, ..admitted(found) });
            }
            holds.push(hold(claim));
        }
        // Timers stand still while the machine sleeps, and holds don't.
        let is_held = self.began.elapsed() < HOLD - MARGIN;
        match is_held && Instant::now() < self.deadline {
            true => Ok(admitted(found)),
            false => Err(Failure::Unavailable { unknown: false }.into()),
        }
    }

    /// What is asked of one meter: to hold it, if it could refuse.
    fn hold(&self, call: &CheckCall, index: usize, currents: &[Current]) -> Result<Charge, LimitError> {
        let mut charge = self.node.check_charge(std::slice::from_ref(call), currents, &self.own)?;
        charge.memo = None;
        let is_taken = call.cost > 0 && !currents[0].defined.definition.dry_run;
        for claim in charge.claims.iter_mut().filter(|claim| is_taken && claim.row.is_none()) {
            claim.row = Some(RowClaim {
                id: format!("{}.{index}", hex(&self.own.id)),
                owner: format!("{:016x}", self.node.id.0),
                kind: RowKind::Hold,
                ttl_ms: HOLD.as_millis() as u64,
                sequence: 1,
                spent: 0,
                kept: 0,
            });
        }
        Ok(charge)
    }

    /// Makes it true, and remembered. Whether it was this try that did: if not, another one of the same request had.
    async fn seal(&self, memo: &Memo, holds: &[Hold]) -> Result<bool, LimitError> {
        let CheckCall { limit, key, .. } = &self.calls[0];
        let place = meter_key(limit, key);
        let held = holds.iter().find(|hold| hold.claim.key == place);
        let made = |currents: &[Current]| {
            let rule = currents[0].defined.rule(key, currents[0].edges);
            let row = held.and_then(|hold| hold.settled(Fate::Confirmed));
            let claim = Claim { key: place.clone(), rule, take: Take::Nothing, row };
            Ok(Charge { claims: vec![claim], memo: Some(memo.clone()) })
        };
        let (_, _, charged) = self.node.charge_by(&[limit], self.deadline, made).await?;
        is_same_request(memo, &charged)?;
        Ok(charged.is_of(memo))
    }

    /// Whether the request was admitted before.
    async fn remembered(&self, memo: &Memo) -> Result<Option<Charged>, LimitError> {
        let mut reading = self.node.read(vec![memo.key.clone()], self.deadline).await?;
        let Some(record) = reading.records.pop().flatten() else { return Ok(None) };
        let charged = Charged::decode_memo(&record.value).map_err(|_| Failure::Internal)?;
        is_same_request(memo, &charged)?;
        Ok(Some(charged))
    }

    /// The answer to a request that was admitted before: yes, and how things are now.
    async fn again(&self, before: &Charged) -> Result<Answered, LimitError> {
        let key = self.node.key()?;
        let mut found = Vec::with_capacity(self.calls.len());
        for (index, call) in self.calls.iter().enumerate() {
            let looks = [CheckCall { cost: 0, ..call.clone() }];
            let made = |currents: &[Current]| self.hold(&looks[0], index, currents);
            let (currents, charge, charged) =
                self.node.charge_by(&[&call.limit], self.deadline, made).await?;
            let answered =
                self.node.answered(&looks, &self.wanted, &self.own, &currents, &charge.claims, charged)?;
            let metered = Metered::of_meter(&call.limit, &charge.claims[0].key);
            for mut checked in answered.checks {
                let is_counted = call.cost > 0 && !currents[0].defined.definition.dry_run;
                checked.receipt = (self.wanted.receipt && is_counted).then(|| {
                    let receipt = Receipt { id: self.id, amount: call.cost, at: before.now, metered };
                    receipt.issue(key, &call.limit, &call.key)
                });
                found.push((index, checked));
            }
        }
        Ok(admitted(found))
    }

    /// Tells the store what became of holds, all at once. A place in flight stays, unless it is cancelled.
    async fn settle(&self, holds: Vec<Hold>, fate: Fate) {
        let mut under_way = JoinSet::new();
        for hold in holds {
            let Some(row) = hold.settled(fate) else { continue };
            let node = self.node.clone();
            under_way.spawn(async move {
                let Hold { limit, claim, .. } = hold;
                let metered = meter_of(&limit, &claim.key.name).unwrap_or_default();
                let made = |currents: &[Current]| {
                    let rule = currents[0].defined.rule(&metered, currents[0].edges);
                    let row = Some(row.clone());
                    let claim = Claim { key: claim.key.clone(), rule, take: Take::Nothing, row };
                    Ok(Charge { claims: vec![claim], memo: None })
                };
                // What isn't heard of expires by itself, and counts as spent.
                drop(node.charge_by(&[&limit], node.deadline(), made).await);
            });
        }
        while under_way.join_next().await.is_some() {}
    }
}

impl Hold {
    /// What is said of it at the end, if anything has to be.
    fn settled(&self, fate: Fate) -> Option<RowClaim> {
        let row = self.claim.row.as_ref()?;
        let spent = match fate {
            Fate::Confirmed if row.kind == RowKind::Hold => self.cost,
            Fate::Confirmed | Fate::Left => return None,
            Fate::Cancelled => 0,
        };
        Some(RowClaim { sequence: 2, spent, ttl_ms: 0, ..row.clone() })
    }
}

/// A memo's digest is what was asked for, and by which try.
fn is_same_request(memo: &Memo, charged: &Charged) -> Result<(), LimitError> {
    let asked = |digest: &str| digest.split('.').next().map(str::to_owned);
    match &charged.digest {
        Some(digest) if asked(digest) != asked(&memo.digest) => Err(LimitError::RequestIdReused),
        _ => Ok(()),
    }
}

/// What was found, and that it was enough.
fn admitted(found: Vec<(usize, Checked)>) -> Answered {
    let (indices, checks) = found.into_iter().unzip();
    Answered { allowed: true, indices, checks, refused: None }
}
