//! What whoever runs an attempt can say: that it lives, what it writes, that it is done, that it failed, that it was never made.
//!
//! The fencing token is enough: it is the lease's creation, and a lease that is still there is still the same attempt's. An
//! attempt that was taken for dead has no lease, and whatever it says then is refused (J3).

use super::id::RunId;
use super::place::{lease_key, limit_key, ready_key, run_key};
use super::run::{Outcome, Progress, Run, tail};
use super::state::Phase;
use super::work::{AttemptEnd, Beginner, Begun, Work};
use super::{Lease, Ready};
use crate::commit::Ttl;
use crate::name::Name;
use crate::record::{Revision, WallTime};
use crate::view::{Pause, Stamp, View};
use core::time::Duration;

/// What came of what an attempt said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// It counts, now or since it was said before.
    Yes {
        /// How far the run is after it.
        progress: Progress,
    },
    /// The attempt isn't running any more, and nothing was changed: its lease ran out, or it was called off.
    Lost,
    /// There is no such run.
    Unknown,
}

/// The attempt lives: its lease lasts until `ttl` from now, or as long as it would have anyway.
pub fn heartbeat(id: RunId, token: Revision, ttl: Duration, view: &mut View) -> Result<bool, Pause> {
    let lease = lease_key(id);
    let lives = view.holds(&lease, Stamp::At(token));
    if lives {
        view.touch(&lease, ttl);
    }
    Ok(lives)
}

/// The attempt lives, and this is the end of what it has written so far. Only its own lease lets it say so.
pub fn report(
    id: RunId,
    token: Revision,
    ttl: Duration,
    output: &[u8],
    view: &mut View,
) -> Result<bool, Pause> {
    if !heartbeat(id, token, ttl, view)? {
        return Ok(false);
    }
    let Some(seen) = view.get(&run_key(id))? else { return Ok(true) };
    let run = Run::decode(&seen.value)?;
    let output = tail(output);
    if run.progress == Progress::Running && run.output != output {
        // It is kept for as long as it would have been.
        let kept = seen.expires_in.map_or(Ttl::Forever, Ttl::AtLeast);
        view.put(&run_key(id), Run { output, ..run }.encode(), kept);
    }
    Ok(true)
}

/// A target has taken the attempt, and says itself how it ended, within `left`: however long its heartbeats let the lease last.
pub fn taken(id: RunId, token: Revision, left: Duration, view: &mut View) -> Result<(), Pause> {
    if view.holds(&lease_key(id), Stamp::At(token)) {
        view.put(&limit_key(id), [1][..].into(), Ttl::Exactly(left));
    }
    Ok(())
}

/// The attempt has ended, says the node that made it.
pub fn finish(
    id: RunId,
    token: Revision,
    end: &AttemptEnd,
    now: WallTime,
    view: &mut View,
) -> Result<Heard, Pause> {
    ended(id, token, end, false, now, view)
}

/// The attempt has ended, says a worker, or a target that had taken it.
pub fn finish_elsewhere(
    id: RunId,
    token: Revision,
    end: &AttemptEnd,
    now: WallTime,
    view: &mut View,
) -> Result<Heard, Pause> {
    ended(id, token, end, true, now, view)
}

fn ended(
    id: RunId,
    token: Revision,
    end: &AttemptEnd,
    has_limit: bool,
    now: WallTime,
    view: &mut View,
) -> Result<Heard, Pause> {
    let Some(run) = view.peek(&run_key(id))? else { return Ok(Heard::Unknown) };
    let run = Run::decode(&run.value)?;
    if run.token == token.0 && says_again(&run, end) {
        return Ok(Heard::Yes { progress: run.progress });
    }
    let name = Name::new(&run.namespace, &run.job);
    let Some((mut work, index)) = running(&name, id, token, now, view)? else { return Ok(Heard::Lost) };
    work.attempted(index, token.0, end, view)?;
    if has_limit {
        view.delete(&limit_key(id));
    }
    let after = work.get_run(id.place, view)?;
    work.store(view);
    Ok(Heard::Yes { progress: after.map_or(run.progress, |run| run.progress) })
}

/// Whether an attempt only says again what it said.
fn says_again(run: &Run, end: &AttemptEnd) -> bool {
    match run.progress {
        Progress::Ended(before) => (before.outcome == Outcome::Succeeded) == end.succeeded,
        _ => !end.succeeded,
    }
}

/// The attempt was never made, because there was no room after all: it doesn't count.
pub fn give_back(id: RunId, token: Revision, now: WallTime, view: &mut View) -> Result<bool, Pause> {
    let Some(run) = view.peek(&run_key(id))? else { return Ok(false) };
    let run = Run::decode(&run.value)?;
    let name = Name::new(&run.namespace, &run.job);
    let Some((mut work, index)) = running(&name, id, token, now, view)? else { return Ok(false) };
    work.give_back(index, view)?;
    work.store(view);
    Ok(true)
}

/// The job of an attempt that runs, and its place among those under way.
fn running<'a>(
    name: &'a Name,
    id: RunId,
    token: Revision,
    now: WallTime,
    view: &mut View,
) -> Result<Option<(Work<'a>, usize)>, Pause> {
    let Some(work) = Work::load(name, now, view)?.filter(|work| work.definition.uid == id.uid) else {
        return Ok(None);
    };
    let is_it =
        |active: &super::Active| active.place == id.place && matches!(active.phase, Phase::Running { .. });
    let Some(index) = work.state.active.iter().position(is_it) else { return Ok(None) };
    Ok(view.holds(&lease_key(id), Stamp::At(token)).then_some((work, index)))
}

/// A worker takes a run that is ready, and has to be heard of within `ttl` from then on. Nothing if another has it.
pub fn claim(
    ready: &Ready<'_>,
    by: &Beginner<'_>,
    ttl: Duration,
    now: WallTime,
    view: &mut View,
) -> Result<Option<(Begun, Run)>, Pause> {
    let id = ready.run;
    let key = ready_key(ready.namespace, ready.queue, ready.due, id);
    let Some(run) = view.peek(&run_key(id))? else {
        // Nobody can take it, so that nobody has to look at it again.
        if view.get(&key)?.is_some() {
            view.delete(&key);
        }
        return Ok(None);
    };
    let run = Run::decode(&run.value)?;
    let name = Name::new(&run.namespace, &run.job);
    let Some(mut work) = Work::load(&name, now, view)?.filter(|work| work.definition.uid == id.uid) else {
        view.delete(&key);
        return Ok(None);
    };
    let index = work.state.active.iter().position(|active| active.place == id.place);
    if view.get(&key)?.is_none() {
        // Perhaps it is taken by this very call, whose answer got lost.
        let seen = view.lease(&lease_key(id))?;
        let Some(seen) = seen.filter(|_| index.is_some()) else { return Ok(None) };
        let lease = Lease::decode(&seen.value)?;
        let (definition, attempt, token) = (work.definition, lease.attempt, seen.created);
        let begun = Begun { run: id, attempt, due: ready.due, token, lease: ttl, definition };
        return Ok((lease.nonce == by.nonce).then_some((begun, run)));
    }
    view.delete(&key);
    let Some(index) = index.filter(|index| work.state.active[*index].phase == Phase::Ready) else {
        return Ok(None);
    };
    if !work.may_begin(&work.state.active[index]) {
        work.give_up(index, view)?;
        work.store(view);
        return Ok(None);
    }
    let begun = work.lease(index, run.clone(), by, ttl, view);
    work.store(view);
    Ok(Some((begun, run)))
}
