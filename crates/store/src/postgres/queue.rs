//! What waits for a connection, and goes together with others of its kind.

use super::hints::Hints;
use super::session::{ANSWER_MAX, Failure, Session};
use super::target::Target;
use crate::contract::{Reason, StoreError};
use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// In one batch: more would make those wait who come next, and save little.
const BATCH_MAX: usize = 64;
/// Bytes in one batch, if it isn't a single one that is larger.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Names that one batch is about: the server's table of locks has a few thousand places for everybody, other applications too.
const LATCHES_MAX: usize = 256;
/// A batch that has been under way for so long keeps nobody back any more: it may wait for somebody else's lock.
pub(super) const SLOW: Duration = Duration::from_millis(10);
/// How many may wait; more are refused, because they could not be answered in time.
const WAITING_MAX: usize = 4096;

/// What became of each of a batch, in order; or how all of it failed.
pub(super) type Answers<W> = Result<Vec<Result<<W as Work>::Answer, StoreError>>, Failure>;

/// What is asked of the server in one statement together with others of its kind.
pub(super) trait Work: Send + Sync + Sized + 'static {
    /// What comes back if it is decided.
    type Answer: Send;

    /// Whether those about one name are decided one after the other in one statement. Then they wait for each other here: at the
    /// server each connection would wait for the next one, with few in each batch.
    const SHARES_NAMES: bool;

    /// So many have to wait for each batch that is under way, before another goes beside them: what comes together costs
    /// less together, and whoever waits for the next batch waits for company.
    const BESIDE_MIN: usize;

    /// The locks under which it is decided, once each.
    fn latches(&self, target: &Target) -> Vec<i64>;

    /// About how large it is on its way.
    fn bytes(&self) -> usize;

    /// One statement for all of them.
    fn ask(batch: &[Waiting<Self>], session: &Session) -> impl Future<Output = Answers<Self>> + Send;

    /// Makes known what it did.
    fn tell(self, answer: &Self::Answer, hints: &Hints);

    /// Something like it may have happened, and it is not known what.
    fn tell_lost(hints: &Hints);
}

/// One whose turn comes.
pub(super) struct Waiting<W: Work> {
    number: u64,
    pub work: W,
    pub latches: Vec<i64>,
    pub answer: oneshot::Sender<Result<W::Answer, StoreError>>,
}

struct Line<W: Work> {
    waiting: VecDeque<Waiting<W>>,
    /// Of batches that were sent, if names are shared.
    under_way: HashSet<i64>,
    /// How many were sent and not answered, and when the last one was.
    batches: usize,
    sent_at: Option<Instant>,
}

impl<W: Work> Line<W> {
    /// Whether a batch may go now, besides those that are under way.
    fn may_go(&self, now: Instant) -> bool {
        let is_slow = self.sent_at.is_none_or(|sent_at| now.saturating_duration_since(sent_at) >= SLOW);
        is_slow || self.waiting.len() >= W::BESIDE_MIN * self.batches
    }
}

/// Where work of one kind waits for a connection.
pub(super) struct Queue<W: Work> {
    line: Mutex<Line<W>>,
    numbers: AtomicU64,
}

impl<W: Work> Default for Queue<W> {
    fn default() -> Self {
        let (waiting, under_way) = (VecDeque::new(), HashSet::new());
        let line = Line { waiting, under_way, batches: 0, sent_at: None };
        Self { line: Mutex::new(line), numbers: AtomicU64::new(0) }
    }
}

impl<W: Work> Queue<W> {
    /// Waits until it is decided, for as long as an answer may take.
    pub async fn submit(&self, work: W, target: &Target, arrived: &Notify) -> Result<W::Answer, StoreError> {
        let (answer, answered) = oneshot::channel();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let latches = work.latches(target);
        {
            let mut line = self.line.lock().expect("no panic while held");
            if line.waiting.len() >= WAITING_MAX {
                let detail = format!("{WAITING_MAX} are waiting already");
                return Err(StoreError::NotApplied { reason: Reason::Busy, detail });
            }
            line.waiting.push_back(Waiting { number, work, latches, answer });
        }
        arrived.notify_one();
        match tokio::time::timeout(ANSWER_MAX, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::Unknown { detail: "the store was closed".into() }),
            Err(_) if self.withdraw(number) => Err(unavailable(format!("not sent within {ANSWER_MAX:?}"))),
            Err(_) => Err(StoreError::Unknown { detail: format!("no answer within {ANSWER_MAX:?}") }),
        }
    }

    /// Whether it had not been sent, and now won't be.
    fn withdraw(&self, number: u64) -> bool {
        let mut line = self.line.lock().expect("no panic while held");
        let before = line.waiting.len();
        line.waiting.retain(|waiting| waiting.number != number);
        line.waiting.len() < before
    }

    /// The next batch: the first that wait, as far as the names they are about allow it.
    pub fn take(&self, arrived: &Notify) -> Vec<Waiting<W>> {
        let mut line = self.line.lock().expect("no panic while held");
        let now = Instant::now();
        if !line.may_go(now) {
            return Vec::new();
        }
        let Line { waiting, under_way, batches, sent_at } = &mut *line;
        let (mut taken, mut bytes, mut names, mut held) = (Vec::new(), 0, 0, HashSet::new());
        let (mut left, mut passed) = (VecDeque::new(), HashSet::new());
        while let Some(next) = waiting.pop_front() {
            let (more_bytes, more_names) = (next.work.bytes(), next.latches.len());
            let is_too_much = bytes + more_bytes > BATCH_BYTES_MAX || names + more_names > LATCHES_MAX;
            let waits_for = |latch: &i64| match W::SHARES_NAMES {
                true => under_way.contains(latch) || passed.contains(latch),
                false => held.contains(latch),
            };
            if taken.len() >= BATCH_MAX || (is_too_much && !taken.is_empty()) {
                left.push_back(next);
                left.append(waiting);
                arrived.notify_one();
            } else if next.answer.is_closed() {
                // Its caller has gone before it was sent.
            } else if next.latches.iter().any(waits_for) {
                // Where names are shared nobody about one of these goes before it, or it could wait for ever for several.
                passed.extend(next.latches.iter().copied());
                left.push_back(next);
            } else {
                (bytes, names) = (bytes + more_bytes, names + more_names);
                held.extend(next.latches.iter().copied());
                taken.push(next);
            }
        }
        if W::SHARES_NAMES {
            under_way.extend(held);
        }
        *waiting = left;
        if !taken.is_empty() {
            (*batches, *sent_at) = (*batches + 1, Some(now));
        }
        taken
    }

    /// Whether somebody waits though there is a connection: one has to look again when a batch has become slow.
    pub fn is_held_back(&self) -> bool {
        let line = self.line.lock().expect("no panic while held");
        line.batches > 0 && !line.waiting.is_empty()
    }

    /// A batch about these names has been decided.
    pub fn release(&self, latches: &[i64], arrived: &Notify) {
        let mut line = self.line.lock().expect("no panic while held");
        line.batches = line.batches.saturating_sub(1);
        for latch in latches {
            line.under_way.remove(latch);
        }
        if !line.waiting.is_empty() {
            arrived.notify_one();
        }
    }
}

fn unavailable(detail: String) -> StoreError {
    StoreError::NotApplied { reason: Reason::Unavailable, detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Charge;
    use baton_core::meter::{Algorithm, Claim, Edges, Reclaim, Rule, Take};
    use baton_core::{Commit, Group, Key, Ttl, Write};

    type Caller<W> = oneshot::Receiver<Result<<W as Work>::Answer, StoreError>>;

    fn key(name: &str) -> Key {
        Key::new(Group(1), name.as_bytes())
    }

    fn commit(name: &str, value_bytes: usize) -> Commit {
        let write = Write::Put { key: key(name), value: vec![0; value_bytes].into(), ttl: Ttl::Forever };
        Commit { checks: vec![], writes: vec![write] }
    }

    fn charge(names: &[&str]) -> Charge {
        let rule = Rule {
            version: 1,
            algorithm: Algorithm::TokenBucket,
            limit: 1,
            window_ms: 1,
            capacity: 1,
            edges: Edges::Every { offset_ms: 0 },
            reclaim: Reclaim::Burn,
        };
        let claim =
            |name: &&str| Claim { key: key(name), rule: rule.clone(), take: Take::AllOrNone(1), row: None };
        Charge { claims: names.iter().map(claim).collect(), memo: None }
    }

    fn wait<W: Work>(queue: &Queue<W>, work: W) -> Caller<W> {
        let target = Target::parse("postgres://me@host/db").unwrap();
        let (answer, answered) = oneshot::channel();
        let latches = work.latches(&target);
        let number = queue.numbers.fetch_add(1, Ordering::Relaxed);
        let mut line = queue.line.lock().unwrap();
        line.waiting.push_back(Waiting { number, work, latches, answer });
        answered
    }

    /// The numbers of a batch that is decided at once, but for the names it is about.
    fn taken<W: Work>(queue: &Queue<W>) -> Vec<u64> {
        let taken = queue.take(&Notify::new()).iter().map(|waiting| waiting.number).collect();
        queue.release(&[], &Notify::new());
        taken
    }

    fn release(queue: &Queue<Charge>, names: &[&str]) {
        let target = Target::parse("postgres://me@host/db").unwrap();
        queue.release(&charge(names).latches(&target), &Notify::new());
    }

    #[test]
    fn commits_that_share_a_name_go_in_other_batches_and_keep_their_turns() {
        let queue = Queue::default();
        let _callers = ["a", "b", "a", "c", "a"].map(|name| wait(&queue, commit(name, 1)));
        assert_eq!(taken(&queue), [0, 1, 3]);
        assert_eq!(taken(&queue), [2]);
        assert_eq!(taken(&queue), [4]);
        assert_eq!(taken(&queue), [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_goes_beside_another_if_many_wait_or_that_one_is_slow() {
        let queue = Queue::default();
        let wait = |names: std::ops::Range<usize>| -> Vec<_> {
            names.map(|name| wait(&queue, commit(&name.to_string(), 1))).collect()
        };
        let take = || queue.take(&Notify::new()).len();
        let _first = wait(0..1);
        assert_eq!((queue.is_held_back(), take(), queue.is_held_back()), (false, 1, false));
        let _few = wait(1..Commit::BESIDE_MIN);
        assert_eq!((take(), queue.is_held_back()), (0, true), "they wait for company");
        let _many = wait(Commit::BESIDE_MIN..Commit::BESIDE_MIN + 1);
        assert_eq!(take(), Commit::BESIDE_MIN);
        let _few = wait(100..100 + Commit::BESIDE_MIN);
        assert_eq!(take(), 0, "two are under way");
        queue.release(&[], &Notify::new());
        assert_eq!(take(), Commit::BESIDE_MIN);
        let _one = wait(200..201);
        tokio::time::advance(SLOW).await;
        assert_eq!(take(), 1);
        let _another = wait(201..202);
        for _ in 0..3 {
            assert_eq!(take(), 0);
            queue.release(&[], &Notify::new());
        }
        assert_eq!(take(), 1, "nothing is under way any more");
    }

    #[test]
    fn charges_that_share_a_name_go_together_and_wait_for_those_under_way() {
        let queue = Queue::default();
        let _callers = ["a", "b", "a"].map(|name| wait(&queue, charge(&[name])));
        assert_eq!(taken(&queue), [0, 1, 2]);
        let _later = ["b", "c", "a", "a"].map(|name| wait(&queue, charge(&[name])));
        assert_eq!(taken(&queue), [4], "of the others some are under way");
        release(&queue, &["a", "b"]);
        assert_eq!(taken(&queue), [3, 5, 6]);
    }

    #[test]
    fn who_charges_several_meters_that_are_always_busy_gets_its_turn() {
        let queue = Queue::default();
        let _callers = [&["a"][..], &["a", "b"], &["b"]].map(|names| wait(&queue, charge(names)));
        assert_eq!(taken(&queue), [0, 1, 2]);
        release(&queue, &["b"]);
        let _later = [&["a", "b"][..], &["b"]].map(|names| wait(&queue, charge(names)));
        assert_eq!(taken(&queue), [0; 0], "the last one would go before the one that waits for `a`");
        release(&queue, &["a"]);
        assert_eq!(taken(&queue), [3, 4]);
    }

    #[test]
    fn a_batch_is_bounded_by_number_by_size_and_by_names() {
        let queue = Queue::default();
        let _callers: Vec<_> = (0..100).map(|name| wait(&queue, commit(&name.to_string(), 1))).collect();
        assert_eq!((taken(&queue).len(), taken(&queue).len()), (64, 36));
        let _large: Vec<_> = (0..3).map(|name| wait(&queue, commit(&name.to_string(), 600 << 10))).collect();
        assert_eq!((taken(&queue), taken(&queue), taken(&queue)), (vec![100], vec![101], vec![102]));
        let queue = Queue::default();
        let names: Vec<_> = (0..16).map(|name| name.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let _many: Vec<_> = (0..20).map(|_| wait(&queue, charge(&names))).collect();
        assert_eq!(taken(&queue).len(), 16);
    }

    #[test]
    fn who_has_gone_is_not_sent_and_who_withdraws_was_not() {
        let queue = Queue::default();
        let callers: Vec<_> = ["a", "b", "c"].iter().map(|name| wait(&queue, commit(name, 1))).collect();
        assert!(queue.withdraw(1) && !queue.withdraw(1));
        drop(callers);
        assert_eq!(taken(&queue), [0; 0]);
    }
}
