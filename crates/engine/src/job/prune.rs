//! Bringing ended runs down to as many as are kept (J10). Behind everything else, and one job at a time.

use crate::engine::Node;
use baton_core::Name;
use baton_core::job::{self, Run, Uid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Prunes {
    is_busy: AtomicBool,
}

impl Node {
    /// Deletes the oldest ended runs of a job. If another job's are being deleted, a later look asks again.
    pub(super) fn prune(self: &Arc<Self>, name: &Name, uid: Uid, kept: usize) {
        if self.jobs.prunes.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let (node, name) = (self.clone(), name.clone());
        tokio::spawn(async move {
            if let Ok(runs) = node.all_runs(uid).await {
                let is_over = |value: &[u8]| Run::decode(value).is_ok_and(|run| run.end().is_some());
                let mut ended: Vec<_> = runs.into_iter().map(|(_, record)| record).collect();
                ended.retain(|record| is_over(&record.value));
                let surplus = ended.len().saturating_sub(kept);
                let keys: Vec<_> = ended.drain(..surplus).map(|record| record.key).collect();
                if node.delete_all(&keys).await {
                    let left = ended.len() as u32;
                    let rule = |view: &mut _| job::counted(&name, left, node.now(), view);
                    drop(node.decide(name.group(), node.deadline(), rule).await);
                }
            }
            node.jobs.prunes.is_busy.store(false, Ordering::Release);
        });
    }
}
