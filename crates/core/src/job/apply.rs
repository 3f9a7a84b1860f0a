//! Putting and removing a job (J1). An edit keeps the uid and the mark, so that no time fires twice (J15).

use super::calendar;
use super::carry::carry_over;
use super::definition::{Definition, Guarantee, Missed};
use super::due;
use super::id::Uid;
use super::place::{definition_key, index_key, lease_key, limit_key, ready_key, state_key};
use super::run::Reason;
use super::state::{Phase, State};
use super::tick::{Looked, Timetables};
use super::timetable::Timetable;
use super::work::Work;
use crate::commit::Ttl;
use crate::name::Name;
use crate::record::WallTime;
use crate::view::{Pause, View};
use alloc::vec::Vec;

/// What putting one did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// There was none.
    Made,
    /// There was another.
    Changed,
    /// It says what it said.
    Same,
}

/// Puts a job. `definition.uid` is for a job that is new; one that is there keeps its own.
pub fn apply(
    name: &Name,
    definition: &Definition,
    now: WallTime,
    timetables: &Timetables<'_>,
    view: &mut View,
) -> Result<(Put, Definition, Looked), Pause> {
    let key = definition_key(name);
    let seen = view.get(&key)?;
    let before = seen.map(|seen| Definition::decode(&seen.value)).transpose()?;
    let mut definition = definition.clone();
    if let Some(before) = &before {
        calendar::newest(&mut definition, before);
    }
    let (uid, put) = match &before {
        None => (definition.uid, Put::Made),
        Some(before) if before.says_the_same(&definition) => {
            return Ok((Put::Same, before.clone(), Looked::default()));
        }
        Some(before) => (before.uid, Put::Changed),
    };
    let definition = Definition { uid, changed_at: now, done: Vec::new(), ..definition };
    let mut work = match before.is_some().then(|| Work::load(name, now, view)).transpose()?.flatten() {
        Some(work) => work,
        None => {
            // A state without a definition is of no job: the new one begins from now.
            let _ = view.get(&state_key(name))?;
            let state = State { mark: now, success_from: now, ..State::default() };
            Work { name, definition: definition.clone(), state, now }
        }
    };
    let looked = edit(&mut work, &definition, timetables, view)?;
    let definition = work.definition.clone();
    view.put(&key, definition.encode(), Ttl::Forever);
    work.store(view);
    Ok((put, definition, looked))
}

/// Goes on by another definition; says which times are left out because of it.
pub(super) fn edit(
    work: &mut Work<'_>,
    definition: &Definition,
    timetables: &Timetables<'_>,
    view: &mut View,
) -> Result<Looked, Pause> {
    let (was_on, mut looked) = (work.is_on(), Looked::default());
    let mut definition = definition.clone();
    if !work.definition.is_due_like(&definition) {
        // What was due by the old schedule is over, whether nobody had decided it yet or it was to be made up for; the new one counts
        // from now.
        let old = timetables(work.name, &work.definition);
        due::drop_planned(work, old.as_deref(), &mut looked, view)?;
        if let Some(old) = old {
            let (after, now) = (work.state.mark, work.now);
            // What passed while it was off has no other record: it comes back from now.
            let reason = if was_on { Reason::Missed } else { Reason::Paused };
            due::leave_out(work, &old, after, now, reason, &mut looked, view)?;
            if let Some(times) = old.left_out() {
                due::leave_out(work, &times, after, now, Reason::Calendar, &mut looked, view)?;
            }
        }
        work.state.mark = work.state.mark.max(work.now);
    } else if work.definition.calendars == definition.calendars {
        definition.done.clone_from(&work.definition.done);
    } else {
        definition.done.clear();
        let (old, new) = (timetables(work.name, &work.definition), timetables(work.name, &definition));
        if let (Some(old), Some(new)) = (old, new) {
            definition.done = carry_over(work, &old, &new, &mut looked, view)?;
        }
    }
    work.state.left_out_at = None;
    if work.definition.guarantee == Guarantee::AtMostOnce && definition.guarantee != Guarantee::AtMostOnce {
        // What was sent once stays so.
        let sent = work.state.active.iter_mut().filter(|active| active.attempt > 0);
        sent.for_each(|active| active.is_once = true);
    }
    let queue = work.definition.target.queue();
    if queue != definition.target.queue() {
        for index in 0..work.state.active.len() {
            let active = work.state.active[index];
            if let (Phase::Ready, Some(queue)) = (active.phase, work.definition.target.queue()) {
                let id = work.id(active.place);
                view.delete(&ready_key(work.name.namespace(), queue, active.due, id));
                work.state.active[index].phase = Phase::Waiting(work.now);
            }
        }
    }
    if definition.success_within_ms != work.definition.success_within_ms {
        (work.state.success_from, work.state.is_overdue) = (work.now, false);
    }
    let missed = definition.missed;
    work.definition = definition;
    let timetable = timetables(work.name, &work.definition);
    if was_on || !work.is_on() {
        let on = timetable.filter(|_| work.is_on());
        work.state.next = on.as_ref().and_then(|on| due::next(on, &work.definition, work.state.mark));
        let left_out = on.and_then(|on| on.left_out());
        let next = work.state.next.map(|next| next.nominal);
        work.state.left_out_at = left_out.and_then(|times| times.end_of_day(work.state.mark, next));
        return Ok(looked);
    }
    come_back(work, timetable.as_deref(), missed, &mut looked, view)?;
    Ok(looked)
}

/// Its schedule counts again: what passed meanwhile is missed, and the policy says what happens to it (J15).
pub(super) fn come_back(
    work: &mut Work<'_>,
    timetable: Option<&Timetable>,
    policy: Missed,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    (work.state.success_from, work.state.is_overdue) = (work.now, false);
    work.state.left_out_at = None;
    let Some(timetable) = timetable else {
        work.state.next = None;
        return Ok(());
    };
    let (before, now) = (work.state.mark, work.now);
    if let Some(latest) = timetable.latest(before, now) {
        work.state.mark = latest;
        due::missed(work, timetable, before, now, Reason::Paused, policy, looked, view)?;
    }
    work.state.next = due::next(timetable, &work.definition, work.state.mark);
    due::left_out(work, timetable, before, looked, view)
}

/// Removes a job, and everything of it but the records of its runs; gives its number. Whoever runs an attempt of it finds its
/// lease gone.
pub fn remove(name: &Name, now: WallTime, view: &mut View) -> Result<Option<Uid>, Pause> {
    let Some(work) = Work::load(name, now, view)? else { return Ok(None) };
    for active in &work.state.active {
        let id = work.id(active.place);
        match (active.phase, work.definition.target.queue()) {
            (Phase::Running { .. }, _) => {
                view.delete(&lease_key(id));
                view.delete(&limit_key(id));
            }
            (Phase::Ready, Some(queue)) => {
                view.delete(&ready_key(name.namespace(), queue, active.due, id));
            }
            (Phase::Ready, None) | (Phase::Waiting(_), _) => {}
        }
    }
    if let Some(at) = work.state.index_at {
        view.delete(&index_key(name, at));
    }
    view.delete(&state_key(name));
    view.delete(&definition_key(name));
    Ok(Some(work.definition.uid))
}
