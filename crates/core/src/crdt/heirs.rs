//! Which run takes over the totals of runs that are over: one, or none.
//!
//! The next run of the same directory is the heir of those before it. But a directory can be there twice, as a disk's snapshot is, and
//! both copies begin to run: then each believes to be the heir, and what both had before would count twice. So an heir says
//! beforehand what it claims, waits until all other replicas have heard that, and only then asks them what they have heard: of two who
//! claim the same run, one at least finds the other's claim, and leaves that run as it is. If both find it, both do.
//!
//! An heir asks *twice*: an answer shows some rows earlier than others, so a claim that is taken back meanwhile, its work done, could be missed together
//! with that work. The second answer shows the work.
//!
//! A claim is an element of a set that callers can't name: the run (16), then its heir (16). It is removed when its work was heard of by all.

use super::dot::Actor;
use super::edit::Edit;
use super::kind::Object;
use alloc::vec::Vec;

/// Runs of one directory whose totals are in slots of their own, before they are folded. Fewer aren't worth rewriting rows.
pub const FOLD_FROM_RUNS: usize = 16;
/// The most runs of one directory that wait for that; the slots of older ones stay in rows.
pub const RUNS_MAX: usize = 1024;

/// That an heir takes over what a run counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Which run is over.
    pub run: Actor,
    /// Which one takes over.
    pub heir: Actor,
}

/// The set of claims.
pub fn claims() -> Object {
    Object::plain("\u{1}", "heirs")
}

impl Claim {
    /// As an element of the set.
    pub fn element(self) -> [u8; 32] {
        let mut element = [0; 32];
        element[..16].copy_from_slice(&self.run.0);
        element[16..].copy_from_slice(&self.heir.0);
        element
    }

    /// Of an element; nothing if it isn't one.
    pub fn of(element: &[u8]) -> Option<Self> {
        let (run, heir) = element.split_at_checked(16)?;
        Some(Self { run: Actor(run.try_into().ok()?), heir: Actor(heir.try_into().ok()?) })
    }

    /// Makes it known.
    pub fn raise(self) -> Edit {
        Edit::insert(&claims(), &self.element())
    }

    /// Takes it back, as far as this replica has seen it.
    pub fn lower(self) -> Edit {
        Edit::remove(&claims(), &self.element(), None)
    }
}

/// The runs that nobody claims but this one or a run of the same directory, which is over.
pub fn uncontested(runs: &[Actor], heir: Actor, known: &[Claim]) -> Vec<Actor> {
    let is_ours = |of: Actor| of == heir || runs.contains(&of);
    let is_free = |run: &&Actor| known.iter().all(|claim| claim.run != **run || is_ours(claim.heir));
    runs.iter().filter(is_free).copied().collect()
}
