//! Commits that come together go together, by one command; each is decided as if alone, one after the other.
//!
//! A few batches are under way at a time. Who comes meanwhile waits, and goes with the next one; who comes alone goes at
//! once. On a cluster only what shares a slot can go together, so there each group has a line of its own.
//!
//! Should Redis refuse a batch, nothing of it has happened, and what need not be everybody's fault is sent one by one. A
//! batch without an answer is unknown for everyone in it.

use super::link::{CALL_MAX, Trouble};
use super::plan::{self, Decided};
use super::{COMMIT, Shared, codec};
use crate::contract::{Reason, StoreError};
use crate::watch::Change;
use ::redis::{Cmd, Value};
use baton_core::{Commit, Group, Outcome};
use codec::Terms;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Batches under way at a time: while Redis is busy with one, the next one is on its way.
const LANES: usize = 2;
/// Where each stands still until replicas have it, more of them do.
pub(super) const LANES_WAITING: usize = 16;
/// Commits in one batch: more would make those wait who come next, and save little.
const BATCH_MAX: usize = 64;
/// Bytes in one batch, if it isn't a single commit that is larger.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Checks and writes in one batch: a script can have some thousand values at hand.
const BATCH_OPERATIONS_MAX: usize = 1024;
/// How many may wait in a line; more are refused, because they could not be answered in time.
const WAITING_MAX: usize = 4_096;

type Answer = oneshot::Sender<Result<Outcome, StoreError>>;

/// One whose turn comes.
struct Waiting {
    number: u64,
    commit: Commit,
    answer: Answer,
}

/// Commits that go together, and who wants to know what becomes of each.
#[derive(Default)]
struct Batch {
    commits: Vec<Commit>,
    answers: Vec<Answer>,
}

/// Those who wait.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    numbers: u64,
    lanes: usize,
}

/// Where commits wait for company.
pub(super) struct Lines {
    lines: Vec<Mutex<Line>>,
    lanes: usize,
}

impl Lines {
    /// One line for all groups, or one for each.
    pub fn new(is_one: bool, waits: bool) -> Self {
        let count = if is_one { 1 } else { Group::all().count() };
        let lanes = if waits { LANES_WAITING } else { LANES };
        Self { lines: (0..count).map(|_| Mutex::default()).collect(), lanes }
    }

    fn of(&self, group: Group) -> MutexGuard<'_, Line> {
        self.lines[usize::from(group.0) % self.lines.len()].lock().expect("no panic while held")
    }
}

impl Shared {
    /// Waits until a commit is decided, for as long as an answer may take.
    pub(super) async fn decide(self: &Arc<Self>, commit: Commit) -> Result<Outcome, StoreError> {
        let until = Instant::now() + CALL_MAX;
        let (answer, answered) = oneshot::channel();
        let group = plan::group(&commit);
        let (number, batch) = self.lines.of(group).join(commit, answer, self.lines.lanes)?;
        if !batch.commits.is_empty() {
            tokio::spawn(self.clone().serve(group, batch));
        }
        match tokio::time::timeout_at(until, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::Unknown { detail: "the store was closed".into() }),
            Err(_) if self.lines.of(group).withdraw(number) => {
                Err(unavailable(format!("not sent within {CALL_MAX:?}")))
            }
            Err(_) => Err(StoreError::Unknown { detail: format!("no answer within {CALL_MAX:?}") }),
        }
    }

    /// One batch after the other, until nobody waits.
    async fn serve(self: Arc<Self>, group: Group, mut batch: Batch) {
        while !batch.commits.is_empty() {
            self.send_together(group, batch).await;
            batch = self.lines.of(group).go_on();
        }
    }

    /// Sends a batch, and answers everyone in it.
    async fn send_together(&self, group: Group, batch: Batch) {
        let Batch { commits, answers } = batch;
        let own = self.own_channel.as_deref();
        let add = |command: &mut Cmd, terms: &Terms<'_>| plan::encode(command, &commits, terms, own);
        match self.run(&COMMIT, group, add).await {
            Ok((value, acknowledged)) => {
                let decided = match &value {
                    Value::BulkString(answer) => Decided::read(&commits, answer),
                    _ => None,
                };
                let Some(decided) = decided else {
                    self.hub.publish(std::iter::once(Change::Lost));
                    return refuse(answers, &codec::strange());
                };
                decided.highest().into_iter().for_each(|revision| self.saw(revision));
                if !decided.is_published && self.hub.is_watched() {
                    let each = commits.iter().zip(&decided.outcomes);
                    self.hub.publish(each.flat_map(|(commit, outcome)| plan::changes(commit, outcome)));
                }
                for (answer, outcome) in answers.into_iter().zip(decided.outcomes) {
                    // If nobody listens any more, what was decided stands all the same.
                    answer.send(acknowledged.clone().map(|()| outcome)).ok();
                }
            }
            Err(trouble) if commits.len() > 1 && is_about_one(&trouble) => {
                for (commit, answer) in commits.into_iter().zip(answers) {
                    let alone = Batch { commits: vec![commit], answers: vec![answer] };
                    Box::pin(self.send_together(group, alone)).await;
                }
            }
            Err(trouble) => {
                let error = trouble.sorted();
                if matches!(error, StoreError::Unknown { .. }) {
                    // It may have happened, and nobody has told those who watch.
                    self.hub.publish(std::iter::once(Change::Lost));
                }
                refuse(answers, &error);
            }
        }
    }
}

fn refuse(answers: Vec<Answer>, error: &StoreError) {
    for answer in answers {
        answer.send(Err(error.clone())).ok();
    }
}

/// Whether a refusal need not be everybody's: no memory for what one puts, or no number left in one's group.
fn is_about_one(trouble: &Trouble) -> bool {
    ["OOM", "EXHAUSTED"].iter().any(|code| trouble.is_refusal(code))
}

fn unavailable(detail: String) -> StoreError {
    StoreError::NotApplied { reason: Reason::Unavailable, detail }
}

impl Line {
    /// Gives its number, and the batch that is to be sent now because of it, if there is a lane for one.
    fn join(&mut self, commit: Commit, answer: Answer, lanes: usize) -> Result<(u64, Batch), StoreError> {
        if self.waiting.len() >= WAITING_MAX {
            let detail = format!("{WAITING_MAX} are waiting already");
            return Err(StoreError::NotApplied { reason: Reason::Busy, detail });
        }
        self.numbers += 1;
        self.waiting.push_back(Waiting { number: self.numbers, commit, answer });
        if self.lanes >= lanes {
            return Ok((self.numbers, Batch::default()));
        }
        self.lanes += 1;
        Ok((self.numbers, self.go_on()))
    }

    /// The next batch on a lane; if there is none, the lane ends.
    fn go_on(&mut self) -> Batch {
        let batch = self.take();
        if batch.commits.is_empty() {
            self.lanes -= 1;
        }
        batch
    }

    /// Whether it had not been sent, and now won't be.
    fn withdraw(&mut self, number: u64) -> bool {
        let place = self.waiting.iter().position(|waiting| waiting.number == number);
        place.is_some_and(|place| self.waiting.remove(place).is_some())
    }

    /// The first that wait, as many as go together.
    fn take(&mut self) -> Batch {
        let (mut batch, mut bytes, mut operations) = (Batch::default(), 0, 0);
        while let Some(next) = self.waiting.pop_front() {
            if next.answer.is_closed() {
                // Its caller has gone before it was sent.
                continue;
            }
            bytes += next.commit.bytes();
            operations += next.commit.operations();
            let is_too_much = batch.commits.len() >= BATCH_MAX
                || bytes > BATCH_BYTES_MAX
                || operations > BATCH_OPERATIONS_MAX;
            if is_too_much && !batch.commits.is_empty() {
                self.waiting.push_front(next);
                break;
            }
            batch.commits.push(next.commit);
            batch.answers.push(next.answer);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::{Key, Ttl, Write};

    type Answered = oneshot::Receiver<Result<Outcome, StoreError>>;

    fn join(line: &mut Line, writes: usize, bytes: usize, lanes: usize) -> (Batch, Answered) {
        let write = |name: usize| {
            let key = Key::new(Group(1), name.to_string().as_bytes());
            Write::Put { key, value: vec![0; bytes].into(), ttl: Ttl::Forever }
        };
        let commit = Commit { checks: vec![], writes: (0..writes).map(write).collect() };
        let (answer, answered) = oneshot::channel();
        (line.join(commit, answer, lanes).unwrap().1, answered)
    }

    fn wait(line: &mut Line, count: usize, writes: usize, bytes: usize) -> Vec<Answered> {
        (0..count).map(|_| join(line, writes, bytes, 0).1).collect()
    }

    fn taken(line: &mut Line) -> Vec<usize> {
        std::iter::from_fn(|| Some(line.take().commits.len()).filter(|taken| *taken > 0)).collect()
    }

    #[test]
    fn a_batch_is_bounded_by_number_operations_and_size() {
        let mut line = Line::default();
        let _few = wait(&mut line, 2 * BATCH_MAX + 1, 1, 1);
        assert_eq!(taken(&mut line), [BATCH_MAX, BATCH_MAX, 1]);
        let _wide = wait(&mut line, 40, 60, 1);
        assert_eq!(taken(&mut line), [17, 17, 6]);
        let _large = wait(&mut line, 3, 1, BATCH_BYTES_MAX / 2);
        assert_eq!(taken(&mut line), [1, 1, 1]);
        let _too_large = wait(&mut line, 1, 1, BATCH_BYTES_MAX + 1);
        assert_eq!(taken(&mut line), [1], "alone it goes");
    }

    #[test]
    fn a_line_is_bounded() {
        let mut line = Line::default();
        let _waiting = wait(&mut line, WAITING_MAX, 1, 1);
        let refused = line.join(Commit::default(), oneshot::channel().0, 0);
        assert!(matches!(refused, Err(StoreError::NotApplied { reason: Reason::Busy, .. })));
    }

    #[test]
    fn who_has_gone_is_not_sent_and_who_withdraws_was_not() {
        let mut line = Line::default();
        let callers = wait(&mut line, 3, 1, 1);
        assert!(line.withdraw(2) && !line.withdraw(2));
        drop(callers);
        assert!(line.take().commits.is_empty());
    }

    #[test]
    fn who_comes_alone_goes_at_once_and_a_lane_ends_when_nobody_waits() {
        let mut line = Line::default();
        let callers: Vec<_> = (0..LANES + 3).map(|_| join(&mut line, 1, 1, LANES)).collect();
        let sent: Vec<_> = callers.iter().map(|(batch, _)| batch.commits.len()).collect();
        assert_eq!(sent, [vec![1; LANES], vec![0; 3]].concat());
        assert_eq!(line.go_on().commits.len(), 3);
        for lanes in (0..LANES).rev() {
            assert!(line.go_on().commits.is_empty());
            assert_eq!(line.lanes, lanes);
        }
    }
}
