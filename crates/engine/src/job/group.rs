//! A look at all that is due in a group: several jobs in one commit, as many as fit (J12).
//!
//! A group is looked at a moment before its time too. Jobs that nothing is under way of are read and decided then, as of their time, so that
//! only the commit is left when it comes: many that are due together would else wait for each other's reading and deciding. What has
//! changed by then conflicts, and is decided anew.
//!
//! Nothing of a job is kept between looks but its timetable. What is decided rests on what was read just before, and the commit
//! checks it: another node that looks at the same time, or this one after a long sleep, changes nothing that was decided.

use crate::asleep::Moment;
use crate::engine::Node;
use baton_core::job::place::{definition_key, index_entry, index_prefix, index_time, lease_key, state_key};
use baton_core::job::{self, Beginner, Definition, Lease, Look, Looked, RunId, State};
use baton_core::lock::FencingToken;
use baton_core::{Group, Name, Outcome, Pause, Record, Revision, View, WallTime};
use baton_store::{Page, Range};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Index entries read at first: most often that is all that is due, and the next time. However many jobs are stored, most of a group's entries are
/// of later times, and reading them for nothing was a third of what a run cost.
const FEW: usize = 8;
/// Index entries read at once where those weren't all.
const PAGE: usize = 128;
/// Jobs read at once, and decided in as many commits as it takes.
const SOME: usize = 16;
/// How long before its time a group is looked at.
pub(super) const AHEAD: Duration = Duration::from_millis(500);
/// When a group is looked at again in which something couldn't be decided.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A job that is due: by its entry in the index.
#[derive(Clone)]
struct Due {
    entry: WallTime,
    name: Name,
}

/// Decides whatever is due in a group, and notes when something is next.
pub(super) async fn look(node: Arc<Node>, group: Group) {
    loop {
        node.jobs.agenda.begin(group);
        let again = || node.jobs.agenda.note(group, node.now().after(AGAIN_AFTER));
        let Some(page) = earliest(&node, group).await else { return again() };
        let prepared = node.jobs.agenda.pass_over_prepared(group);
        let entries = page.records.iter().filter_map(|record| index_entry(&record.key.name));
        let entries = entries.filter(|(entry, _)| Some(*entry) != prepared);
        let (due, later): (Vec<_>, Vec<_>) =
            entries.map(|(entry, name)| Due { entry, name }).partition(|due| due.entry <= page.now);
        look_ahead(&node, group, &later, page.more, page.now);
        let mut tasks = JoinSet::new();
        for some in due.chunks(SOME) {
            let (node, some) = (node.clone(), some.to_vec());
            tasks.spawn(async move { decide_some(&node, group, some, page.now).await });
        }
        let mut are_decided = true;
        while let Some(decided) = tasks.join_next().await {
            are_decided &= decided.unwrap_or(false);
        }
        if !are_decided {
            return again();
        }
        if !page.more || !later.is_empty() {
            return;
        }
    }
}

/// The first entries of a group's index, as of one moment: up to the first that is neither due nor soon, if they aren't too many.
async fn earliest(node: &Node, group: Group) -> Option<Page> {
    let scan = async |count| {
        let range = Range { group, prefix: index_prefix(), after: None };
        let page = node.asked(node.store.scan(range, count), node.deadline()).await.ok()?;
        node.note_time(page.now);
        Some(page)
    };
    let page = scan(FEW).await?;
    let last = page.records.last().and_then(|record| index_time(&record.key));
    let is_all = !page.more || last.is_some_and(|(_, at)| at > page.now.after(AHEAD));
    if is_all { Some(page) } else { scan(PAGE).await }
}

/// Notes when something is next; what is soon is decided now.
fn look_ahead(node: &Arc<Node>, group: Group, later: &[Due], more: bool, now: WallTime) {
    let agenda = &node.jobs.agenda;
    let Some(next) = later.first().map(|due| due.entry) else { return };
    if next > now.after(AHEAD) {
        return agenda.note(group, next);
    }
    agenda.looked_ahead(group, next);
    let soon: Vec<_> = later.iter().take_while(|due| due.entry == next).cloned().collect();
    // All of that time, or none: those that are left out would have to wait for the others.
    let are_all = soon.len() < later.len() || !more;
    if are_all && agenda.prepare(group, next, soon.len()) {
        if let Some(after) = later.get(soon.len()) {
            agenda.note(group, after.entry);
        }
        tokio::spawn(decide_ahead(node.clone(), group, soon, next));
    } else {
        agenda.note(group, next);
    }
}

/// Decides jobs of a group ahead of the one time that they are due at, and commits when it has come.
async fn decide_ahead(node: Arc<Node>, group: Group, soon: Vec<Due>, at: WallTime) {
    let drafted = draft(&node, group, soon, at, true).await;
    tokio::time::sleep(Duration::from_millis(at.0.saturating_sub(node.now().0))).await;
    // A node that stops begins nothing, and one that slept finds that other rules apply to what it missed.
    let is_present = node.now() <= at.after(AHEAD) && !node.is_draining();
    let are_decided = match drafted {
        Some(drafted) if is_present => drafted.commit(&node, at).await,
        Some(_) | None => false,
    };
    if node.jobs.agenda.end_prepared(group) || !are_decided {
        node.jobs.agenda.note(group, at);
    }
}

/// Decides some jobs of a group; whether all were.
async fn decide_some(node: &Arc<Node>, group: Group, some: Vec<Due>, now: WallTime) -> bool {
    match draft(node, group, some, now, false).await {
        Some(drafted) => drafted.commit(node, now).await,
        None => false,
    }
}

/// What was decided of some jobs, before it is committed.
struct Drafted {
    batches: Vec<Batch>,
    /// To be decided in commits of their own.
    alone: Vec<Due>,
    /// Whether none was left out.
    is_whole: bool,
}

/// Reads some jobs, and decides them as of a time. Nothing if they can't be read. `ahead` of it only those that nothing is under way of.
async fn draft(node: &Node, group: Group, some: Vec<Due>, now: WallTime, ahead: bool) -> Option<Drafted> {
    let keys = some.iter().flat_map(|due| [state_key(&due.name), definition_key(&due.name)]);
    let reading = node.read(keys.collect(), node.deadline()).await.ok()?;
    let mut records = reading.records.into_iter();
    let mut waiting: VecDeque<_> =
        some.into_iter().map(|due| (due, [records.next().flatten(), records.next().flatten()])).collect();
    let count = waiting.len();
    if ahead {
        waiting.retain(|(_, [state, _])| state.as_ref().is_some_and(is_idle));
    }
    let mut drafted = Drafted { batches: Vec::new(), alone: Vec::new(), is_whole: waiting.len() == count };
    while !waiting.is_empty() {
        let mut batch = Batch::new(node, group, now);
        while let Some((due, records)) = waiting.front() {
            match batch.add(node, due, records) {
                Added::Yes => drop(waiting.pop_front()),
                Added::Full => break,
                Added::Alone => drafted.alone.extend(waiting.pop_front().map(|(due, _)| due)),
                Added::Never => {
                    drafted.is_whole = false;
                    waiting.pop_front();
                }
            }
        }
        drafted.batches.push(batch);
    }
    Some(drafted)
}

fn is_idle(state: &Record) -> bool {
    State::decode(&state.value).is_ok_and(|state| state.active.is_empty() && state.queue.is_empty())
}

impl Drafted {
    /// Commits all of it at once; whether everything is decided.
    async fn commit(self, node: &Arc<Node>, now: WallTime) -> bool {
        let (mut alone, mut are_decided) = (self.alone, self.is_whole);
        let mut commits = JoinSet::new();
        for batch in self.batches {
            let node = node.clone();
            commits.spawn(async move { batch.commit(&node).await });
        }
        while let Some(committed) = commits.join_next().await {
            match committed {
                Ok(Some(others)) => alone.extend(others),
                Ok(None) | Err(_) => are_decided = false,
            }
        }
        for due in alone {
            are_decided &= decide_alone(node, &due, now).await;
        }
        are_decided
    }
}

/// Jobs that are decided in one commit.
struct Batch {
    group: Group,
    view: View,
    now: WallTime,
    nonce: u64,
    decided: Vec<(Due, Looked)>,
}

enum Added {
    Yes,
    /// It is for the next commit.
    Full,
    /// It has to read more, or is too large for company.
    Alone,
    /// It can't be read by this version.
    Never,
}

impl Batch {
    fn new(node: &Node, group: Group, now: WallTime) -> Self {
        let nonce = node.random.number();
        Self { group, view: View::new(group), now, nonce, decided: Vec::new() }
    }

    fn add(&mut self, node: &Node, due: &Due, records: &[Option<Record>; 2]) -> Added {
        self.view.learn(&state_key(&due.name), records[0].clone());
        self.view.learn(&definition_key(&due.name), records[1].clone());
        self.view.save();
        match tick(node, due, self.now, self.nonce, &mut self.view) {
            Ok(looked) if self.view.fits() => {
                if looked.caught_up {
                    node.jobs.agenda.caught_up();
                }
                self.decided.push((due.clone(), looked));
                Added::Yes
            }
            Ok(_) if !self.decided.is_empty() => {
                self.view.roll_back();
                Added::Full
            }
            Ok(_) | Err(Pause::Read(_)) => {
                self.view.roll_back();
                Added::Alone
            }
            Err(_) => {
                self.view.roll_back();
                tracing::error!(job = due.name.key(), "a job's records can't be read by this version");
                Added::Never
            }
        }
    }

    /// Commits; gives those that have to be decided again. Nothing if it isn't known what became of it.
    async fn commit(self, node: &Arc<Node>) -> Option<Vec<Due>> {
        if !self.view.is_dirty() {
            return Some(Vec::new());
        }
        let (sent, until) = (node.moment(), node.deadline());
        let answer = node.send(|| self.view.commit(), until, until, false).await;
        match answer.outcome {
            Ok(Outcome::Committed { revision, now, .. }) => {
                node.note_time(now);
                let mut are_told = true;
                for (due, looked) in self.decided {
                    are_told &= carry_out(node, &due.name, looked, revision, &sent).await;
                }
                are_told.then(Vec::new)
            }
            Ok(Outcome::Conflict { now, .. }) => {
                node.note_time(now);
                node.metrics.conflicts.inc();
                let mut again = Vec::new();
                for (due, looked) in self.decided {
                    if answer.lost {
                        recover(node, self.group, &due.name, looked, self.nonce, &sent).await?;
                    }
                    again.push(due);
                }
                Some(again)
            }
            Err(_) => None,
        }
    }
}

/// The answer to a commit got lost, and its copy found that something had changed: by the first, perhaps. An attempt whose lease has
/// this commit's nonce was begun by it, and is this node's to make.
async fn recover(
    node: &Arc<Node>,
    group: Group,
    name: &Name,
    looked: Looked,
    nonce: u64,
    sent: &Moment,
) -> Option<()> {
    let Some(begun) = looked.begun else { return Some(()) };
    let key = lease_key(begun.run);
    debug_assert_eq!(key.group, group);
    let lease = node.read(vec![key], node.deadline()).await.ok()?.records.pop().flatten();
    if let Some(lease) = lease
        && Lease::decode(&lease.value).is_ok_and(|said| said.nonce == nonce)
    {
        node.dispatch(name, begun, FencingToken::from(lease.created), sent);
    }
    Some(())
}

/// Decides one job in a commit of its own, however often it takes; whether it was.
async fn decide_alone(node: &Arc<Node>, due: &Due, now: WallTime) -> bool {
    let (sent, nonce) = (node.moment(), node.random.number());
    let rule = |view: &mut View| tick(node, due, now, nonce, view);
    let Ok(decided) = node.decide(due.name.group(), node.deadline(), rule).await else { return false };
    if decided.reply.caught_up {
        node.jobs.agenda.caught_up();
    }
    carry_out(node, &due.name, decided.reply, decided.revision, &sent).await
}

fn tick(node: &Node, due: &Due, now: WallTime, nonce: u64, view: &mut View) -> Result<Looked, Pause> {
    let runner = node.jobs.runner_name(node.id);
    let look = Look {
        now: now.max(node.now()),
        entry: due.entry,
        by: Beginner { runner, nonce, has_room: node.jobs.dispatch.has_room() },
        may_catch_up: node.jobs.agenda.may_catch_up(node.members.ring().part_of(node.id)),
    };
    let timetables = |name: &Name, definition: &Definition| node.jobs.timetables.of(name, definition);
    job::tick(&due.name, &look, &timetables, view)
}

/// What follows from a look that was committed. Whether everybody was told who had to be.
async fn carry_out(node: &Arc<Node>, name: &Name, looked: Looked, revision: Revision, sent: &Moment) -> bool {
    node.metrics.jobs.looked(&looked, node.now());
    if looked.overdue {
        tracing::warn!(namespace = name.namespace(), job = name.key(), "no success within the expected time");
    }
    if let Some(begun) = looked.begun {
        let fencing = FencingToken::from(begun.token.resolve(revision));
        node.dispatch(name, begun, fencing, sent);
    }
    if let Some(kept) = looked.kept_max {
        node.prune(name, looked.uid, kept as usize);
    }
    if let Some(next) = looked.next {
        node.jobs.agenda.note(name.group(), next);
    }
    if looked.deliveries.is_empty() {
        return true;
    }
    // Told first, and only then taken off the list: told twice is told once, by the id of the run that follows (J13).
    let mut told = Vec::new();
    for delivery in looked.deliveries {
        let to = Name::new(name.namespace(), &delivery.to);
        let run = RunId { uid: looked.uid, place: delivery.place };
        let rule = |view: &mut View| job::chain(&to, run, node.now(), view);
        if let Ok(decided) = node.decide(to.group(), node.deadline(), rule).await {
            node.metrics.jobs.looked(&decided.reply.unwrap_or_default(), node.now());
            told.push(delivery);
        }
    }
    let rule = |view: &mut View| job::told(name, &told, node.now(), view);
    node.decide(name.group(), node.deadline(), rule).await.is_ok()
}
