//! Cores of their own for those who would have machines of their own: whoever shares a core with a load waits for the scheduler, and
//! that says nothing of them.

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps this thread, and whatever it starts meanwhile, on one core.
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// To the core with this number among those that this process may use.
    pub fn to(number: usize) -> anyhow::Result<Self> {
        let before = sched_getaffinity(None).context("can't ask for this thread's cores")?;
        let core = usable(&before).nth(number);
        let mut only = CpuSet::new();
        only.set(core.with_context(|| format!("there are not {} cores", number + 1))?);
        sched_setaffinity(None, &only).context("can't keep a thread on a core")?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // They were this thread's before.
        sched_setaffinity(None, &self.before).ok();
    }
}

fn usable(set: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core))
}

/// Fails where there are fewer cores than this.
pub fn need(count: usize) -> anyhow::Result<()> {
    let has = usable(&sched_getaffinity(None)?).count();
    ensure!(has >= count, "it needs {count} cores, and there are {has}");
    Ok(())
}
