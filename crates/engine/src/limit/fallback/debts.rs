//! What was admitted here and the store doesn't know of: written down before anybody hears yes, and counted at the store, once, when it
//! is back.

use super::table::Table;
use super::{Fallbacks, is_outage};
use crate::engine::Node;
use crate::limit::calls::LimitError;
use crate::limit::definitions::Current;
use crate::state::{Left, Line, Owed, Spool, SpoolError, State};
use baton_core::Name;
use baton_core::limit::{call_id, memo_key, meter_key};
use baton_core::meter::{Claim, Memo, Take};
use baton_store::Charge;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Debts at once. Beyond it nothing is admitted whose key has none yet.
const DEBTS_MAX: usize = 200_000;
/// How often what is owed is offered to the store.
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// How often what was written down is synced.
const SYNC_EVERY: Duration = Duration::from_millis(500);
/// Debts offered between two looks at what is owed.
const OFFERED_AT_ONCE: usize = 32;
/// How often what doesn't matter any more is looked for.
const FORGET_EVERY_MS: u64 = 10_000;
/// How long the store remembers a debt that was settled: a node that was killed in between offers it again when it is back.
const MEMORY_MS: u64 = 24 * 60 * 60 * 1000;

/// All that is owed.
#[derive(Default)]
pub(crate) struct Debts {
    all: BTreeMap<u64, Owed>,
    /// Numbers given out so far.
    numbers: u64,
    /// Numbers up to this one are of nodes that are gone.
    adopted: u64,
    spool: Option<Spool>,
    /// Files of nodes that are gone which couldn't be taken over on disk.
    left: Vec<Left>,
    /// Whose store this is, once that is known.
    cluster: Option<[u8; 16]>,
    forgot_ms: u64,
    /// Whether it was said that nothing more can be written down.
    pub(super) is_told: bool,
}

/// Something that is about to be admitted.
pub(super) struct Admission<'a> {
    pub limit: &'a Name,
    /// The key that is metered.
    pub key: &'a str,
    pub amount: u64,
    /// The debt that it is added to.
    pub debt: Option<u64>,
}

impl Debts {
    /// Writes down what is about to be admitted, all of it or nothing, and says which debts have it. What can't be written is an
    /// error if it `must` be, and else owed for as long as this node lives. `id` makes ids that no other debt has.
    pub fn admit(
        &mut self,
        admissions: &[Admission<'_>],
        must: bool,
        id: impl Fn() -> [u8; 16],
    ) -> Result<Vec<u64>, SpoolError> {
        let mut numbers = Vec::with_capacity(admissions.len());
        let mut lines = Vec::with_capacity(admissions.len());
        for admission in admissions {
            let known = admission.debt.filter(|number| self.all.contains_key(number));
            lines.push(match known {
                Some(number) => Line::Added(number, admission.amount),
                None => {
                    self.numbers += 1;
                    let (limit, key) = (admission.limit.clone(), admission.key.into());
                    let owed = Owed { id: id(), cluster: self.cluster, limit, key, amount: admission.amount };
                    Line::Begun(self.numbers, owed)
                }
            });
            numbers.push(known.unwrap_or(self.numbers));
        }
        let begun = lines.iter().filter(|line| matches!(line, Line::Begun(..))).count();
        if begun > 0 && self.all.len() + begun > DEBTS_MAX {
            return Err(SpoolError::Full);
        }
        if let Some(spool) = &mut self.spool
            && let Err(error) = spool.append(&lines, &self.all)
            && must
        {
            return Err(error);
        }
        self.is_told = false;
        for line in lines {
            match line {
                Line::Begun(number, owed) => drop(self.all.insert(number, owed)),
                Line::Added(number, amount) => {
                    if let Some(owed) = self.all.get_mut(&number) {
                        owed.amount = owed.amount.saturating_add(amount);
                    }
                }
                Line::Settled(_) => {}
            }
        }
        Ok(numbers)
    }

    /// Those after a number that this store is owed.
    fn after(&self, number: u64) -> impl Iterator<Item = (u64, &Owed)> {
        let is_ours = |owed: &Owed| owed.cluster.is_none() || owed.cluster == self.cluster;
        self.all
            .range(number + 1..)
            .map(|(number, owed)| (*number, owed))
            .filter(move |(_, owed)| is_ours(owed))
    }

    /// The store has it, or never will.
    fn settled(&mut self, number: u64) {
        let Some(owed) = self.all.remove(&number) else { return };
        if let Some(spool) = &mut self.spool {
            spool.settled(number, &owed);
        }
        if self.all.is_empty() {
            self.spool.iter_mut().for_each(Spool::clear);
            self.left.drain(..).for_each(Left::remove);
        }
    }
}

impl Table {
    /// Takes over what nodes that are gone have left, and writes down from now on what is owed.
    pub fn adopt(&mut self, state: &State, name: u64) {
        self.debts.spool = Some(state.spool(name));
        let mut known = HashSet::new();
        for left in state.take_left() {
            if self.debts.all.len() + left.owed.len() > DEBTS_MAX {
                tracing::warn!("too much is owed already: a spool in the state directory is left for later");
                continue;
            }
            for owed in &left.owed {
                // It may be in two spools, if a node was killed that was about to take it over.
                if !known.insert(owed.id) {
                    continue;
                }
                self.debts.numbers += 1;
                self.entry(&owed.limit, &meter_key(&owed.limit, &owed.key)).left += owed.amount;
                self.debts.all.insert(self.debts.numbers, owed.clone());
            }
            self.debts.left.push(left);
        }
        let debts = &mut self.debts;
        debts.adopted = debts.numbers;
        if debts.all.is_empty() {
            return debts.left.drain(..).for_each(Left::remove);
        }
        tracing::info!(
            debts = debts.all.len(),
            "what was admitted without the store is still to be counted there"
        );
        let Some(spool) = &mut debts.spool else { return };
        let written = spool.append(&[], &debts.all).is_ok()
            && spool.unsynced().is_some_and(|unsynced| unsynced.sync().is_ok());
        if written {
            debts.left.drain(..).for_each(Left::remove);
        } else {
            tracing::warn!("what is owed to the store can't be taken over on disk: it stays where it is");
        }
    }
}

impl Fallbacks {
    /// Whose store it is.
    pub fn know_cluster(&self, cluster: [u8; 16]) {
        let mut table = self.table();
        table.debts.cluster = Some(cluster);
        let ours = table.debts.after(0).count();
        let others = table.debts.all.len() - ours;
        if others > 0 {
            tracing::warn!(others, "the state directory has debts to another store: they are kept for it");
        }
    }
}

impl Node {
    pub(super) fn show_debts(&self, debts: &Debts) {
        self.metrics.debts.set(debts.all.len() as i64);
        self.metrics.spool_bytes.set(debts.spool.as_ref().map_or(0, Spool::bytes) as i64);
    }

    /// Offers the store what is owed to it, some of it at a time, until it has all or is gone; forgets what is settled and old.
    async fn settle_debts(self: &Arc<Self>) {
        let mut last = 0;
        loop {
            let offers = self.offers(last);
            let Some((number, _)) = offers.last() else { return };
            last = *number;
            for (number, owed) in offers {
                match self.settle_debt(&owed).await {
                    // Of a limit that is gone nobody counts anything.
                    Ok(()) | Err(LimitError::NotFound { .. }) => {}
                    // The store isn't back: the same is offered later.
                    Err(LimitError::Failed(failure)) if is_outage(failure) => return,
                    // This one can't be settled now; those behind it can.
                    Err(_) => continue,
                }
                let mut table = self.fallbacks.table();
                if number <= table.debts.adopted
                    && let Some(own) = table.get_mut(&owed.limit, &meter_key(&owed.limit, &owed.key))
                {
                    own.left = own.left.saturating_sub(owed.amount);
                }
                table.debts.settled(number);
                self.show_debts(&table.debts);
                self.metrics.overage.inc_by(owed.amount);
            }
        }
    }

    /// Some of what is owed, after a number. Nothing is added to it any more, so that it is the same whenever it is offered.
    fn offers(&self, after: u64) -> Vec<(u64, Owed)> {
        let now_ms = self.uptime_ms();
        let mut table = self.fallbacks.table();
        if now_ms >= table.debts.forgot_ms + FORGET_EVERY_MS {
            table.debts.forgot_ms = now_ms;
            table.forget_old(now_ms);
        }
        let offers: Vec<_> = table
            .debts
            .after(after)
            .take(OFFERED_AT_ONCE)
            .map(|(number, owed)| (number, owed.clone()))
            .collect();
        for (number, owed) in &offers {
            if let Some(own) = table.get_mut(&owed.limit, &meter_key(&owed.limit, &owed.key)) {
                own.debt.take_if(|debt| debt == number);
            }
        }
        offers
    }

    async fn settle_debt(self: &Arc<Self>, owed: &Owed) -> Result<(), LimitError> {
        let made = |currents: &[Current]| {
            let current = &currents[0];
            let place = meter_key(&owed.limit, &owed.key);
            let rule = current.defined.rule(&owed.key, current.edges);
            let take = Take::Forced(owed.amount.min(rule.algorithm.amount_max(rule.window_ms)));
            let id = call_id(&[b"limit debt".as_slice(), &owed.id]);
            let digest = crate::limit::check::hex(&id);
            let memo = Memo { key: memo_key(&place, &id), digest, ttl_ms: MEMORY_MS };
            Ok(Charge { claims: vec![Claim { key: place, rule, take, row: None }], memo: Some(memo) })
        };
        self.charge_by(&[&owed.limit], self.deadline(), made).await.map(drop)
    }

    /// Syncs what was written down, elsewhere: a slow disk must not keep a thread that serves.
    async fn sync_spool(&self) {
        let unsynced = self.fallbacks.table().debts.spool.as_mut().and_then(Spool::unsynced);
        let Some(unsynced) = unsynced else { return };
        let generation = unsynced.generation;
        let synced = tokio::task::spawn_blocking(move || unsynced.sync()).await;
        let is_done = matches!(synced, Ok(Ok(())));
        if let Ok(Err(error)) = synced {
            tracing::error!(%error, "what was admitted without the store can't be synced to disk");
        }
        if let Some(spool) = &mut self.fallbacks.table().debts.spool {
            spool.synced(generation, is_done);
        }
    }
}

/// Settles debts until the node drains.
pub(crate) async fn keep(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(SETTLE_EVERY) => {}
        }
        node.settle_debts().await;
    }
}

/// Syncs what is written down, until the node drains.
pub(crate) async fn keep_synced(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(SYNC_EVERY) => node.sync_spool().await,
        }
    }
}

/// Before stopping.
pub(crate) async fn settle_all(node: &Arc<Node>) {
    node.settle_debts().await;
    node.sync_spool().await;
}
