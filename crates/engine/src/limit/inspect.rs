//! Usage, leases and the bound.

use super::calls::{LeaseState, LimitError, Overshoot, UsageState};
use super::definitions::Current;
use super::gossip::is_spread;
use crate::engine::Engine;
use baton_core::limit::{self, Bound, meter_key, meter_of, meter_prefix};
use baton_core::meter::{Claim, Meter, Take};
use baton_core::{Group, Name};
use baton_store::{Charge, Range};

/// Records read from the store at once.
const PAGE: usize = 256;
/// Meters looked at for one list of leases; what is beyond them is not shown, and the list says that there is more.
const METERS_MAX: usize = 100_000;

impl Engine {
    /// What a key has used, without using any.
    pub async fn usage(&self, name: &Name, key: &str) -> Result<UsageState, LimitError> {
        let node = &self.node;
        let current = node.definition(name, node.deadline()).await?;
        if is_spread(&current) {
            return Ok(node.used_here(name, &current, key));
        }
        let made = |currents: &[Current]| {
            let current = &currents[0];
            let rule = current.defined.rule(key, current.edges);
            let claim = Claim { key: meter_key(name, key), rule, take: Take::Nothing, row: None };
            Ok(Charge { claims: vec![claim], memo: None })
        };
        let (currents, charge, charged) = node.charge_by(&[name], node.deadline(), made).await?;
        let (rule, found) = (&charge.claims[0].rule, charged.meters.first());
        let meter = &found.ok_or(crate::Failure::Internal)?.meter;
        let capacity = currents[0].defined.definition.capacity_of(key);
        Ok(UsageState {
            capacity,
            used: meter.used(),
            outstanding: meter.outstanding(),
            remaining: meter.remaining(rule).min(capacity),
            reset_ms: meter.reset_ms(rule),
        })
    }

    /// What is outstanding of a limit, at most `most`, and whether there is more.
    pub async fn leases(&self, name: &Name, most: usize) -> Result<(Vec<LeaseState>, bool), LimitError> {
        let node = &self.node;
        node.definition(name, node.deadline()).await?;
        let prefix = meter_prefix(name);
        let (mut leases, mut looked_at) = (Vec::new(), 0);
        for group in 0..=u8::MAX {
            let mut after = None;
            loop {
                let range = Range { group: Group(group), prefix: prefix.clone(), after };
                let page = node.asked(node.store.scan(range, PAGE), node.deadline()).await?;
                looked_at += page.records.len();
                for record in &page.records {
                    let Some(key) = meter_of(name, &record.key.name) else { continue };
                    let Ok(meter) = Meter::decode(&record.value) else { continue };
                    let live = meter.rows.into_iter().filter(|row| row.expires_ms > page.now.0);
                    leases.extend(live.map(|row| LeaseState { key: key.clone(), row, now: page.now }));
                }
                if leases.len() > most || looked_at >= METERS_MAX {
                    leases.truncate(most);
                    return Ok((leases, true));
                }
                after = page.records.last().map(|record| record.key.name.clone());
                if !page.more {
                    break;
                }
            }
        }
        Ok((leases, false))
    }

    /// How much more than the limit may pass, at worst, and in which time; and the most that this node has seen lately, of any key.
    pub async fn bound(&self, name: &Name, key: &str) -> Result<(Bound, u64, Overshoot), LimitError> {
        let current = self.node.definition(name, self.node.deadline()).await?;
        let guarantees = self.node.store.guarantees();
        let definition = &current.defined.definition;
        let bound = match is_spread(&current) {
            true => self.node.spread_bound(name, &current, key),
            false => limit::bound(definition, key, self.nodes() as u64, guarantees.on_failover),
        };
        Ok((bound, definition.window_ms, self.node.overshoots.largest(name)))
    }
}
