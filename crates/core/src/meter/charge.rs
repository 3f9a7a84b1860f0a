//! The function: what one claim does to one meter, and what several do together.

use super::claim::{Algorithm, Claim, Reclaim, RowClaim, RowKind, Rule, Take};
use super::state::{Meter, Row};
use super::{NUMBER_MAX, ROWS_MAX, Verdict};
use crate::codec::Unreadable;
use crate::record::Bytes;
use alloc::vec::Vec;

/// What a claim did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The meter afterwards.
    pub meter: Meter,
    /// How much was taken; for a credit how much was given back, for a booking the amount if it was booked. What a row was
    /// given before by the same message counts as given now.
    pub granted: u64,
    /// For a booking: when it begins, in milliseconds from now.
    pub wait_ms: u64,
}

/// What one claim does to one meter.
///
/// `now_ms` is the store's clock; a meter never goes back. The error is the version that the meter follows, when the claim is of
/// an older one.
pub fn charge(found: Option<Meter>, claim: &Claim, now_ms: u64) -> Result<Effect, u64> {
    let rule = &claim.rule;
    let mut meter = found.unwrap_or_else(|| Meter::fresh(rule, now_ms));
    if meter.version > rule.version {
        return Err(meter.version);
    }
    let now_ms = now_ms.max(meter.at_ms);
    meter.burn(rule, now_ms);
    meter.advance(rule, now_ms);
    meter.adopt(rule);
    let granted;
    let mut wait_ms = 0;
    if let Some(row) = &claim.row {
        let place = meter.rows.iter().position(|known| known.id == row.id);
        if let Some(known) = place.map(|place| &meter.rows[place])
            && row.sequence <= known.sequence
        {
            let granted = if row.sequence == known.sequence { known.amount } else { 0 };
            return Ok(Effect { meter, granted, wait_ms });
        }
        let kept = place.map_or(0, |place| meter.report(place, row));
        let room = meter.room(rule.capacity).saturating_sub(kept);
        let has_place = meter.rows.len() < ROWS_MAX;
        granted = if has_place { meter.granted(claim, room, &mut wait_ms) } else { 0 };
        meter.keep(row, kept.saturating_add(granted), now_ms);
    } else if let Take::Credit { amount, at_ms } = claim.take {
        granted = meter.credit(amount, at_ms);
    } else {
        granted = meter.granted(claim, meter.room(rule.capacity), &mut wait_ms);
        meter.add(granted);
    }
    Ok(Effect { meter, granted, wait_ms })
}

impl Meter {
    /// What may still be taken.
    fn room(&self, capacity: u64) -> u64 {
        capacity.saturating_sub(self.used()).saturating_sub(self.outstanding())
    }

    /// What has expired is counted as of its expiry, unless it was not spent for good.
    fn burn(&mut self, rule: &Rule, now_ms: u64) {
        while self.rows.first().is_some_and(|row| row.expires_ms <= now_ms) {
            let row = self.rows.remove(0);
            let is_dropped = row.kind == RowKind::Place
                || (row.kind == RowKind::Lease && rule.reclaim == Reclaim::Drop)
                || self.algorithm == Algorithm::InFlight;
            if !is_dropped {
                self.advance(rule, row.expires_ms);
                self.add(row.amount);
            }
        }
    }

    /// Brings it to the moment at which its first row expires.
    pub(super) fn expire(&mut self, rule: &Rule, due_ms: u64) {
        self.burn(rule, due_ms);
        self.advance(rule, due_ms);
    }

    /// Follows a newer definition: what was used stays used, up to the new limit if it counts another way now.
    fn adopt(&mut self, rule: &Rule) {
        self.version = rule.version;
        if self.has_shape(rule) {
            // What was taken before leaked faster than a credit would reckon.
            if self.algorithm == Algorithm::TokenBucket && rule.limit < self.limit {
                self.since_ms = self.at_ms;
            }
            self.limit = rule.limit;
            return;
        }
        let used = self.used().min(rule.limit);
        let rows = core::mem::take(&mut self.rows);
        *self = Self::fresh(rule, self.at_ms);
        // Of what was taken in this millisecond before, a part may just have been cut off.
        self.since_ms = (self.at_ms + 1).min(NUMBER_MAX);
        self.rows = rows;
        self.add(used);
    }

    /// Takes the row at `place` out and counts what was spent of it. Gives what its holder keeps: never more than it had.
    fn report(&mut self, place: usize, said: &RowClaim) -> u64 {
        let row = self.rows.remove(place);
        let spent = said.spent.saturating_sub(row.spent);
        self.add(spent);
        said.kept.min(row.amount.saturating_sub(spent))
    }

    /// Puts a row back, or a new one in, by its expiry.
    fn keep(&mut self, said: &RowClaim, amount: u64, now_ms: u64) {
        if amount == 0 {
            return;
        }
        let expires_ms = now_ms.saturating_add(said.ttl_ms).min(NUMBER_MAX);
        let row = Row {
            id: said.id.clone(),
            owner: said.owner.clone(),
            kind: said.kind,
            amount,
            spent: said.spent,
            sequence: said.sequence,
            expires_ms,
        };
        let place = self.rows.partition_point(|known| known.expires_ms <= expires_ms);
        self.rows.insert(place, row);
    }

    fn granted(&self, claim: &Claim, room: u64, wait_ms: &mut u64) -> u64 {
        match claim.take {
            Take::Nothing | Take::Credit { .. } => 0,
            Take::AllOrNone(amount) | Take::Try(amount) => {
                if amount <= room {
                    amount
                } else {
                    0
                }
            }
            Take::Share(wanted) => {
                let id = claim.row.as_ref().map_or("", |row| &row.id);
                let others = self.rows.iter().filter(|row| row.kind == RowKind::Lease && row.id != id);
                let holders = others.count() as u64 + 1;
                let fair = (room / (2 * holders)).max(1);
                wanted.min((self.limit / 20).max(1)).min(fair).min(room)
            }
            Take::Forced(amount) => amount,
            Take::Book { amount, wait_max_ms } => match self.booked_after(claim.rule.capacity, amount) {
                Some(after_ms) if after_ms <= wait_max_ms => {
                    *wait_ms = after_ms;
                    amount
                }
                _ => 0,
            },
        }
    }

    /// How long it is worth keeping: after that it is as if it had never been.
    fn worth_ms(&self) -> u64 {
        let (at_ms, window_ms) = (self.at_ms, self.window_ms);
        let last_ms = self.rows.last().map_or(0, |row| row.expires_ms.saturating_sub(at_ms));
        let drained_ms = match self.algorithm {
            Algorithm::TokenBucket => {
                let level = self.outstanding().saturating_mul(window_ms).saturating_add(self.current);
                level.div_ceil(self.limit)
            }
            _ => 0,
        };
        last_ms.saturating_add(drained_ms).saturating_add(2 * window_ms).min(NUMBER_MAX)
    }
}

/// What several claims did together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    /// For each claim what it did; nothing of it is to be kept unless all are charged.
    pub verdict: Verdict,
    /// For each claim: how much was taken, when a booking begins, and the meter's new value.
    pub effects: Vec<(u64, u64, Bytes)>,
    /// For each claim, how long the value is worth keeping, in milliseconds.
    pub worth_ms: Vec<u64>,
}

/// What several claims do together: all of them, or none.
pub fn settle(claims: &[Claim], found: &[Option<Bytes>], now_ms: u64) -> Result<Settled, Unreadable> {
    let mut settled = Settled { verdict: Verdict::Charged, effects: Vec::new(), worth_ms: Vec::new() };
    for (index, (claim, found)) in claims.iter().zip(found).enumerate() {
        let meter = found.as_deref().map(Meter::decode).transpose()?;
        let refuses = matches!(claim.take, Take::AllOrNone(_) | Take::Book { .. });
        match charge(meter, claim, now_ms) {
            Ok(effect) => {
                let is_refused = refuses && effect.granted < claim.take.amount();
                if is_refused && settled.verdict == Verdict::Charged {
                    settled.verdict = Verdict::Refused { index };
                }
                settled.worth_ms.push(effect.meter.worth_ms());
                settled.effects.push((effect.granted, effect.wait_ms, effect.meter.encode()));
            }
            Err(version) => {
                let verdict = Verdict::Outdated { index, version };
                return Ok(Settled { verdict, effects: Vec::new(), worth_ms: Vec::new() });
            }
        }
    }
    Ok(settled)
}
