//! The store: a meter for each key, charged by the core's function at the store's clock.

use crate::plan::{Mechanism, Plan};
use baton_core::limit::purse::Message;
use baton_core::limit::{Defined, slack};
use baton_core::meter::{Claim, Meter, RowClaim, RowKind, Rule, Take, charge};
use baton_core::{Group, Key, Revision};

/// The store's clock at the start.
const EPOCH_MS: u64 = 1_000_000_000;

/// All meters of a simulation.
pub struct Store {
    meters: Vec<Option<Meter>>,
    /// What a check claims, of each key.
    checks: Vec<Claim>,
}

/// What the store said to a check.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    pub is_admitted: bool,
    /// What isn't counted yet.
    pub left: u64,
    /// What may still be taken.
    pub remaining: u64,
    /// When to come back, if it was refused and that was asked for.
    pub retry_ms: Option<u64>,
}

/// What the store said to a holder.
#[derive(Clone, Copy, Debug)]
pub struct Leased {
    /// What the row has.
    pub amount: u64,
    pub left: u64,
    pub remaining: u64,
}

impl Store {
    pub fn new(plan: &Plan, mechanism: Mechanism) -> Self {
        let defined = Defined { definition: plan.definition.clone(), version: Revision(1) };
        let checks = (0..plan.keys).map(|key| {
            let rule = defined.rule(&key_name(key as usize), None);
            let rule = match mechanism {
                Mechanism::Approximate => slack::widened(rule, plan.epsilon),
                Mechanism::Central | Mechanism::Leased => rule,
            };
            Claim { key: Key::new(Group(0), []), rule, take: Take::AllOrNone(1), row: None }
        });
        Self { meters: vec![None; plan.keys as usize], checks: checks.collect() }
    }

    pub fn rule(&self, key: usize) -> &Rule {
        &self.checks[key].rule
    }

    fn charge(&mut self, key: usize, claim: Option<&Claim>, at_us: u64) -> u64 {
        let claim = claim.unwrap_or(&self.checks[key]);
        let effect = charge(self.meters[key].take(), claim, now_ms(at_us));
        let effect = effect.expect("there is one definition, so no meter follows a newer one");
        self.meters[key] = Some(effect.meter);
        effect.granted
    }

    /// What is left and what remains.
    fn shown(&self, key: usize) -> (u64, u64) {
        let (meter, rule) = (&self.meters[key], self.rule(key));
        meter.as_ref().map_or((rule.capacity, rule.capacity), |meter| {
            (rule.capacity.saturating_sub(meter.used()), meter.remaining(rule))
        })
    }

    /// Counts one, if there is room.
    pub fn admits(&mut self, key: usize, at_us: u64) -> bool {
        self.charge(key, None, at_us) == 1
    }

    /// The same, and what it shows. When to come back takes a while to find out: only for those who want to know.
    pub fn check(&mut self, key: usize, at_us: u64, asks_when: bool) -> Checked {
        let is_admitted = self.admits(key, at_us);
        let (left, remaining) = self.shown(key);
        let retry_ms = match (is_admitted, asks_when, &self.meters[key]) {
            (false, true, Some(meter)) => meter.retry_ms(self.rule(key), 1),
            _ => None,
        };
        Checked { is_admitted, left, remaining, retry_ms }
    }

    /// Hears what a holder says of its row.
    pub fn hear(&mut self, key: usize, row: &str, message: Message, at_us: u64) -> Leased {
        let rule = self.rule(key).clone();
        let want = message.want.min(rule.algorithm.amount_max(rule.window_ms));
        let said = RowClaim {
            id: row.into(),
            owner: row.into(),
            kind: RowKind::Lease,
            ttl_ms: message.ttl_ms,
            sequence: message.sequence,
            spent: message.spent,
            kept: message.kept,
        };
        let take = if want == 0 { Take::Nothing } else { Take::Share(want) };
        let claim = Claim { key: Key::new(Group(0), []), rule, take, row: Some(said) };
        self.charge(key, Some(&claim), at_us);
        let amount = self.meters[key].as_ref().and_then(|meter| meter.row(row)).map_or(0, |row| row.amount);
        let (left, remaining) = self.shown(key);
        Leased { amount, left, remaining }
    }

    /// Counts what was admitted without it.
    pub fn owe(&mut self, key: usize, amount: u64, at_us: u64) {
        let take = Take::Forced(amount);
        let claim = Claim { take, ..self.checks[key].clone() };
        self.charge(key, Some(&claim), at_us);
    }
}

/// The store's clock.
pub fn now_ms(at_us: u64) -> u64 {
    EPOCH_MS + at_us / 1_000
}

/// A key's name: where its windows begin depends on it.
pub fn key_name(key: usize) -> String {
    format!("key-{key}")
}
