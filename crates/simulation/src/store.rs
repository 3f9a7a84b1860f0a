//! The store: a meter for each key, charged by the core's function at the store's clock.

use baton_core::limit::holder::{Seen, taken};
use baton_core::limit::purse::Message;
use baton_core::limit::{Defined, Definition};
use baton_core::meter::{Claim, Meter, RowClaim, RowKind, Take, charge};
use baton_core::{Group, Key, Revision};

/// The store's clock at the start.
const EPOCH_MS: u64 = 1_000_000_000;

/// All meters of a simulation.
pub struct Store {
    meters: Vec<Option<Meter>>,
    /// What a check claims, by version and key.
    checks: Vec<Vec<Claim>>,
}

/// There is a newer definition than the one somebody counts by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outdated;

/// What the store said to a check.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    pub is_admitted: bool,
    pub seen: Seen,
    /// When to come back, if it was refused and that was asked for.
    pub retry_ms: Option<u64>,
}

/// What the store said to a holder.
#[derive(Clone, Copy, Debug)]
pub struct Leased {
    /// What the row has.
    pub amount: u64,
    pub seen: Seen,
}

impl Store {
    /// Of limits as they are defined one after the other.
    pub fn new(definitions: &[Definition], keys: u64) -> Self {
        let of = |(index, definition): (usize, &Definition)| {
            let version = Revision(index as u64 + 1);
            let defined = Defined { definition: definition.clone(), version };
            let claim = |key| {
                let rule = defined.rule(&key_name(key as usize), None);
                Claim { key: Key::new(Group(0), []), rule, take: Take::AllOrNone(1), row: None }
            };
            (0..keys).map(claim).collect()
        };
        let checks = definitions.iter().enumerate().map(of).collect();
        Self { meters: vec![None; keys as usize], checks }
    }

    fn check_of(&self, version: usize, key: usize) -> &Claim {
        &self.checks[version][key]
    }

    /// Which definition a key's meter follows; nothing before there is one.
    pub fn followed(&self, key: usize) -> Option<usize> {
        Some(self.meters[key].as_ref()?.version as usize - 1)
    }

    fn seen(&self, version: usize, key: usize) -> Seen {
        let rule = &self.check_of(version, key).rule;
        self.meters[key].as_ref().map(|meter| Seen::of(meter, rule)).unwrap_or_default()
    }

    /// Counts one, if there is room.
    pub fn admits(&mut self, version: usize, key: usize, at_us: u64) -> Result<bool, Outdated> {
        Ok(charged(&mut self.meters[key], &self.checks[version][key], at_us)? == 1)
    }

    /// The same, and what it shows. When to come back takes a while to find out: only for those who want to know.
    pub fn check(
        &mut self,
        version: usize,
        key: usize,
        at_us: u64,
        asks_when: bool,
    ) -> Result<Checked, Outdated> {
        let is_admitted = self.admits(version, key, at_us)?;
        if !asks_when {
            let rule = &self.check_of(version, key).rule;
            let remaining = self.meters[key].as_ref().map_or(rule.capacity, |meter| meter.remaining(rule));
            let seen = Seen { remaining, ..Seen::default() };
            return Ok(Checked { is_admitted, seen, retry_ms: None });
        }
        let retry_ms = match (is_admitted, &self.meters[key]) {
            (false, Some(meter)) => meter.retry_ms(&self.check_of(version, key).rule, 1),
            _ => None,
        };
        Ok(Checked { is_admitted, seen: self.seen(version, key), retry_ms })
    }

    /// Hears what a holder says of its row.
    pub fn hear(
        &mut self,
        version: usize,
        key: usize,
        row: &str,
        message: Message,
        at_us: u64,
    ) -> Result<Leased, Outdated> {
        let rule = self.check_of(version, key).rule.clone();
        let claim = Claim { key: Key::new(Group(0), []), take: taken(&message, &rule), row: None, rule };
        let said = RowClaim {
            id: row.into(),
            owner: row.into(),
            kind: RowKind::Lease,
            ttl_ms: message.ttl_ms,
            sequence: message.sequence,
            spent: message.spent,
            kept: message.kept,
        };
        charged(&mut self.meters[key], &Claim { row: Some(said), ..claim }, at_us)?;
        let amount = self.meters[key].as_ref().and_then(|meter| meter.row(row)).map_or(0, |row| row.amount);
        Ok(Leased { amount, seen: self.seen(version, key) })
    }

    /// Counts what was admitted without it.
    pub fn owe(&mut self, version: usize, key: usize, amount: u64, at_us: u64) -> Result<(), Outdated> {
        let take = Take::Forced(amount);
        let claim = Claim { take, ..self.check_of(version, key).clone() };
        charged(&mut self.meters[key], &claim, at_us).map(drop)
    }
}

fn charged(meter: &mut Option<Meter>, claim: &Claim, at_us: u64) -> Result<u64, Outdated> {
    if meter.as_ref().is_some_and(|meter| meter.version > claim.rule.version) {
        return Err(Outdated);
    }
    let effect = charge(meter.take(), claim, now_ms(at_us)).map_err(|_| Outdated)?;
    *meter = Some(effect.meter);
    Ok(effect.granted)
}

/// The store's clock.
pub fn now_ms(at_us: u64) -> u64 {
    EPOCH_MS + at_us / 1_000
}

/// A key's name: where its windows begin depends on it.
pub fn key_name(key: usize) -> String {
    format!("key-{key}")
}
