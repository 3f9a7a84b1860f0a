//! What earlier runs of this directory counted becomes this run's, so that counters have a slot for each replica and not for each start
//! (D5, D8). Who may do that when is for `replication::inherit`, which knows the others.

use super::write::EDITS_MAX;
use super::{Failure, Replica, records};
use baton_core::crdt::heirs::{self, Claim, FOLD_FROM_RUNS};
use baton_core::crdt::{Actor, renewal};
use baton_core::{Commit, Ttl, Write};
use baton_store::Store;

/// Claims that are looked at, at most: with more, nothing is taken over.
const CLAIMS_MAX: usize = 4096;

impl Replica {
    /// The runs whose totals are to become this one's; none while there are few.
    pub fn inheritance(&self) -> Vec<Actor> {
        let lineage = self.shared.lineage.lock().expect("no panic while held");
        if lineage.unfolded.len() < FOLD_FROM_RUNS { Vec::new() } else { lineage.unfolded.clone() }
    }

    /// Whether all that it has ever seen was written in this very directory.
    pub fn was_always_alone(&self) -> bool {
        let own = self.actor();
        let others = self.context().actors().filter(|actor| *actor != own).count() as u64;
        others <= self.shared.lineage.lock().expect("no panic while held").runs
    }

    /// Claims runs for this one.
    pub async fn claim(&self, runs: &[Actor]) -> Result<(), Failure> {
        let heir = self.actor();
        for runs in runs.chunks(EDITS_MAX) {
            let claims: Vec<_> = runs.iter().map(|run| Claim { run: *run, heir }.raise()).collect();
            self.write(&claims, None).await?;
        }
        Ok(())
    }

    /// Moves the totals of those of the runs that nobody else claims; how many rows had some.
    pub async fn inherit(&self, runs: &[Actor]) -> Result<usize, Failure> {
        let own = self.actor();
        let known = self.elements(&heirs::claims(), None, CLAIMS_MAX).value;
        let claims: Vec<_> = known.items.iter().filter_map(|element| Claim::of(element)).collect();
        let ours = if known.more { Vec::new() } else { heirs::uncontested(runs, own, &claims) };
        if ours.len() < runs.len() {
            let contested = runs.len() - ours.len();
            tracing::warn!(
                contested,
                "another replica was begun from a copy of this one's disk: what it claims too stays as it is"
            );
        }
        let (mut rows, mut after) = (0, None);
        loop {
            let fold = |row: &_, key: &_, mint: &mut dyn FnMut() -> _| {
                renewal::fold(row, key, |slot| ours.contains(&slot), mint())
            };
            let folded = self.rewrite(fold, after.as_ref()).await?;
            rows += folded.rows;
            after = folded.next;
            if after.is_none() {
                return Ok(rows);
            }
        }
    }

    /// All that was claimed is done, or left alone for good: the claims go, those too that an earlier run of this directory left.
    pub async fn settle_claims(&self, runs: &[Actor]) -> Result<(), Failure> {
        let own = self.actor();
        let known = self.elements(&heirs::claims(), None, CLAIMS_MAX).value.items;
        let claims = known.iter().filter_map(|element| Claim::of(element));
        let done: Vec<_> = claims
            .filter(|claim| runs.contains(&claim.run) && (claim.heir == own || runs.contains(&claim.heir)))
            .map(Claim::lower)
            .collect();
        for done in done.chunks(EDITS_MAX) {
            self.write(done, None).await?;
        }
        // On the disk first: whoever sees that nothing is left to take over may rely on it after a restart too.
        let mut left = self.shared.lineage.lock().expect("no panic while held").clone();
        left.unfolded.retain(|run| !runs.contains(run));
        let write = Write::Put { key: records::lineage(), value: left.encode(), ttl: Ttl::Forever };
        let commit = Commit { checks: Vec::new(), writes: vec![write] };
        self.store.commit(commit).await.map_err(|_| Failure::Unknown)?;
        *self.shared.lineage.lock().expect("no panic while held") = left;
        Ok(())
    }
}
