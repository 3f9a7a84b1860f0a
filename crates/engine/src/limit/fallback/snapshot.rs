//! Snapshots of quotas, for limits whose policy is `snapshot`: every minute, what remains of the keys in use, as the store has it. So
//! what others have spent is known too, up to the last one.
//!
//! A key that has no snapshot, or one that is too old, is admitted nothing in an outage: what was spent since isn't known.

use super::table::Own;
use crate::engine::Node;
use crate::failure::Failure;
use baton_core::limit::{Policy, meter_of};
use baton_core::meter::{Claim, Meter, Take, charge};
use baton_core::{Key, Name};
use std::sync::Arc;
use std::time::Duration;

/// How often they are taken.
const EVERY: Duration = Duration::from_secs(60);
/// An older one isn't used when an outage begins: a few in a row could not be taken, or the key isn't in use.
const STALE_MS: u64 = 5 * 60 * 1000;
/// A key is in use for so long after it was last checked.
const IN_USE_MS: u64 = 10 * 60 * 1000;
/// Keys whose snapshots are taken; of more, those that were used last.
const KEYS_MAX: usize = 10_000;
/// Meters read at once.
const READ_AT_ONCE: usize = 256;

/// What remained, if that was heard of not too long ago.
pub(super) fn usable(own: Option<&Own>, now_ms: u64) -> Option<u64> {
    let (remained, heard_ms) = own?.remained?;
    (now_ms <= heard_ms.saturating_add(STALE_MS)).then_some(remained)
}

impl Node {
    /// Keys whose limits divide a snapshot, the last used first.
    fn snapshot_keys(&self) -> Vec<(Name, Key)> {
        let now_ms = self.uptime_ms();
        let table = self.fallbacks.table();
        let mut keys = Vec::new();
        for limit in table.limits() {
            let is_concerned = self
                .known_definition(limit)
                .is_some_and(|current| current.defined.definition.on_failure == Policy::Snapshot);
            let of = table.keys_of(limit).filter(|(_, own)| is_concerned && now_ms < own.used_ms + IN_USE_MS);
            keys.extend(of.map(|(place, own)| (own.used_ms, limit.clone(), place.clone())));
        }
        keys.sort_unstable_by(|one, other| other.cmp(one));
        keys.truncate(KEYS_MAX);
        keys.into_iter().map(|(_, limit, place)| (limit, place)).collect()
    }

    async fn take_snapshots(&self) -> Result<(), Failure> {
        for some in self.snapshot_keys().chunks(READ_AT_ONCE) {
            // As of before it was asked for: that is never too fresh.
            let asked_ms = self.uptime_ms();
            let places = some.iter().map(|(_, place)| place.clone()).collect();
            let reading = self.read(places, self.deadline()).await?;
            for ((limit, place), record) in some.iter().zip(reading.records) {
                let (Some(current), Some(key)) = (self.known_definition(limit), meter_of(limit, &place.name))
                else {
                    continue;
                };
                let rule = current.defined.rule(&key, current.edges);
                let found = match record.map(|record| Meter::decode(&record.value)) {
                    Some(Err(_)) => continue,
                    found => found.and_then(Result::ok),
                };
                let claim = Claim { key: place.clone(), rule, take: Take::Nothing, row: None };
                // A meter that follows a newer definition is looked at once that is known.
                let Ok(effect) = charge(found, &claim, reading.now.0) else { continue };
                let mut table = self.fallbacks.table();
                if let Some(own) = table.get_mut(limit, place)
                    && own.remained.is_none_or(|(_, heard_ms)| heard_ms < asked_ms)
                {
                    own.remained = Some((effect.meter.remaining(&claim.rule), asked_ms));
                }
            }
        }
        Ok(())
    }
}

/// Takes snapshots until the node drains.
pub(crate) async fn keep_snapshots(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(node.random.jittered(EVERY)) => {}
        }
        if node.take_snapshots().await.is_err() {
            tracing::debug!("the snapshots of quotas are as old as they are: the store is away");
        }
    }
}
