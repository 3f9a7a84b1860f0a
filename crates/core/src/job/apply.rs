//! Putting and removing a job (J1). An edit keeps the uid and the mark, so that no time fires twice (J15).

use super::definition::{Definition, Missed};
use super::due;
use super::id::{Trigger, Uid};
use super::place::{definition_key, index_key, lease_key, ready_key, state_key};
use super::run::Reason;
use super::state::{Phase, State};
use super::tick::{Looked, Timetables};
use super::timetable::Timetable;
use super::work::Work;
use crate::commit::Ttl;
use crate::name::Name;
use crate::record::WallTime;
use crate::view::{Pause, View};

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
) -> Result<(Put, Definition), Pause> {
    let key = definition_key(name);
    let seen = view.get(&key)?;
    let before = seen.map(|seen| Definition::decode(&seen.value)).transpose()?;
    let (uid, put) = match &before {
        None => (definition.uid, Put::Made),
        Some(before) if before.says_the_same(definition) => return Ok((Put::Same, before.clone())),
        Some(before) => (before.uid, Put::Changed),
    };
    let definition = Definition { uid, changed_at: now, ..definition.clone() };
    let mut work = match before.is_some().then(|| Work::load(name, now, view)).transpose()?.flatten() {
        Some(work) => work,
        None => {
            // A state without a definition is of no job: the new one begins from now.
            let _ = view.get(&state_key(name))?;
            let state = State { mark: now, success_from: now, ..State::default() };
            Work { name, definition: definition.clone(), state, now }
        }
    };
    edit(&mut work, &definition, timetables, view)?;
    view.put(&key, definition.encode(), Ttl::Forever);
    work.store(view);
    Ok((put, definition))
}

/// Goes on by another definition.
fn edit(
    work: &mut Work<'_>,
    definition: &Definition,
    timetables: &Timetables<'_>,
    view: &mut View,
) -> Result<(), Pause> {
    let (was_on, mut looked) = (work.is_on(), Looked::default());
    if !work.definition.is_due_like(definition) {
        // What was due by the old schedule, and nobody had decided yet, is over; the new one counts from now.
        if let Some(old) = timetables(work.name, &work.definition).filter(|_| was_on) {
            let (after, now) = (work.state.mark, work.now);
            due::leave_out(work, &old, after, now, Reason::Missed, &mut looked, view)?;
        }
        work.state.spans.retain(|span| span.trigger != Trigger::Schedule);
        work.state.mark = work.state.mark.max(work.now);
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
    work.definition = definition.clone();
    let timetable = timetables(work.name, definition);
    if was_on || !work.is_on() {
        let on = timetable.filter(|_| work.is_on());
        work.state.next = on.and_then(|timetable| due::next(&timetable, definition, work.state.mark));
        return Ok(());
    }
    come_back(work, timetable.as_deref(), definition.missed, view)
}

/// Its schedule counts again: what passed meanwhile is missed, and the policy says what happens to it (J15).
pub(super) fn come_back(
    work: &mut Work<'_>,
    timetable: Option<&Timetable>,
    policy: Missed,
    view: &mut View,
) -> Result<(), Pause> {
    (work.state.success_from, work.state.is_overdue) = (work.now, false);
    let Some(timetable) = timetable else {
        work.state.next = None;
        return Ok(());
    };
    let (before, now) = (work.state.mark, work.now);
    if let Some(latest) = timetable.latest(before, now) {
        work.state.mark = latest;
        let mut looked = Looked::default();
        due::missed(work, timetable, before, now, Reason::Paused, policy, &mut looked, view)?;
    }
    work.state.next = due::next(timetable, &work.definition, work.state.mark);
    Ok(())
}

/// Removes a job, and everything of it but the records of its runs; gives its number. Whoever runs an attempt of it finds its
/// lease gone.
pub fn remove(name: &Name, now: WallTime, view: &mut View) -> Result<Option<Uid>, Pause> {
    let Some(work) = Work::load(name, now, view)? else { return Ok(None) };
    for active in &work.state.active {
        let id = work.id(active.place);
        match (active.phase, work.definition.target.queue()) {
            (Phase::Running { .. }, _) => view.delete(&lease_key(id)),
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
