//! Usage, the bound, what is given back, and what those are told who would decide in a process of their own.

use super::spread::Report;
use super::table::{Entry, Place};
use super::{Node, rule};
use crate::failure::Failure;
use crate::limit::calls::{LimitError, UsageState};
use crate::limit::definitions::Current;
use crate::replica::Failure as ReplicaFailure;
use baton_core::crdt::{Act, Actor, Edit};
use baton_core::limit::gossip::{EVERY_MS, Spread, Window, bound};
use baton_core::limit::{Bound, Receipt};
use baton_core::meter::Rule;
use baton_core::{Name, WallTime};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Node {
    /// What a key has used, as far as this node knows.
    pub(in crate::limit) fn used_here(&self, limit: &Name, current: &Current, key: &str) -> UsageState {
        let capacity = current.defined.definition.capacity_of(key);
        self.look(limit, current, key, |entry, rule| {
            let meter = entry.known.meter(rule);
            UsageState {
                capacity,
                used: meter.used(),
                outstanding: 0,
                remaining: meter.remaining(rule).min(capacity),
                reset_ms: meter.reset_ms(rule),
            }
        })
    }

    /// Looks at a key's count. One that isn't there is made for the look alone.
    fn look<T>(&self, limit: &Name, current: &Current, key: &str, see: impl FnOnce(&Entry, &Rule) -> T) -> T {
        let (gossip, now_ms) = (&self.gossip, self.gossip.now_ms());
        let (rule, replica) = (rule(current, key, now_ms), gossip.replica.get().map(|replica| &**replica));
        let mut shard = gossip.table.shard(limit, key);
        let mut fresh = Entry::new(&rule, now_ms);
        let entry = shard.find(limit, key).unwrap_or(&mut fresh);
        if entry.learn(replica, gossip.writer, (limit, key), &rule, now_ms).is_news {
            self.note_overshoot_of(limit, entry.known.overshoot(&rule), rule.limit, WallTime(now_ms));
        }
        see(entry, &rule)
    }

    /// How much more than the limit may pass, by what is known of how counts spread. Without a key, for the one that is used fastest.
    pub(in crate::limit) fn spread_bound(&self, limit: &Name, current: &Current, key: &str) -> Bound {
        let (gossip, definition) = (&self.gossip, &current.defined.definition);
        let peers = gossip.source.get().map(|source| source.peers()).unwrap_or_default();
        let others: Vec<_> = peers.iter().filter(|peer| !peer.is_self).collect();
        let lag = others.iter().filter(|peer| peer.is_reachable).filter_map(|peer| peer.lag).max();
        let rate = match key {
            "" => gossip.table.shards().filter_map(|shard| shard.fastest(limit)).max(),
            key => Some(self.look(limit, current, key, |entry, _| entry.pace.rate())),
        };
        let spread = Spread {
            nodes: (others.len() as u64 + 1).max(self.members.count() as u64),
            every_ms: definition.sync_ms.unwrap_or(EVERY_MS),
            written_ms: gossip.written_ms.load(Ordering::Relaxed),
            lag_ms: lag.unwrap_or(Duration::ZERO).as_millis() as u64,
            // Of what was never used nothing was measured.
            rate: rate.filter(|rate| *rate > 0),
        };
        bound(definition, key, &spread)
    }

    /// Gives back what a check was counted for, in the window it was counted in; how much. Its receipt is a slot of what was given
    /// back: given back twice, at whichever nodes, it is given back once. When there are as many as a counter has room for it is refused.
    pub(in crate::limit) async fn uncount_by(
        &self,
        limit: &Name,
        current: &Current,
        key: &str,
        receipt: &Receipt,
    ) -> Result<u64, LimitError> {
        let metered = receipt.metered.key(key);
        let now_ms = self.gossip.now_ms();
        let window = Window::of(&rule(current, metered, now_ms), now_ms);
        if receipt.id[8..] != window.digest() {
            return Ok(0);
        }
        self.gossip.want();
        let replica = self.gossip.opened().await.ok_or(Failure::Unavailable { unknown: false })?;
        let act = Act::Report { writer: Actor(receipt.id), added: 0, taken: receipt.amount };
        let refund = Edit { key: window.refunds(limit, metered), act };
        // With what it was counted with, if that isn't written yet: or others would hear of what is given back first.
        let place = Place { limit: limit.clone(), key: metered.into() };
        let due = self.gossip.table.report_of(place, window);
        let count = due.as_ref().map(|due| due.edit(self.gossip.writer));
        let written =
            match replica.write(&count.into_iter().chain([refund.clone()]).collect::<Vec<_>>(), None).await {
                // If it is the count that can't be written, the other can.
                Err(ReplicaFailure::Refused(_)) if due.is_some() => replica.write(&[refund], None).await,
                written => written.inspect(|_| {
                    if let Some(Report { place, window, tally }) = &due {
                        self.gossip.table.reported(place, *window, *tally);
                    }
                }),
            };
        match written {
            Ok(_) => Ok(receipt.amount),
            Err(ReplicaFailure::Busy | ReplicaFailure::Partial | ReplicaFailure::Refused(_)) => {
                Err(Failure::Overloaded.into())
            }
            Err(ReplicaFailure::Unknown) => Err(Failure::Unavailable { unknown: true }.into()),
            Err(_) => Err(Failure::Unavailable { unknown: false }.into()),
        }
    }
}
