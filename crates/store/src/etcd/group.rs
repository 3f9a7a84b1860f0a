//! Transactions that come together go together: one transaction of etcd whose operations are transactions, each with
//! its own compares, its own writes and its own answer.
//!
//! A few batches are under way at a time. Who comes meanwhile waits, and goes with the next one; who comes alone goes at
//! once, and as it is. Nobody in a batch writes a key that another one looks at or writes, so each is decided as if
//! alone. All of a batch have one revision: within a key, revisions still only grow and never repeat.
//!
//! Should etcd refuse a batch, nothing of it has happened, and what need not be everybody's fault is sent one by one.
//! A batch without an answer is unknown for everyone in it.

use super::client::{Client, Failure, TXN};
use super::wire::{PutRequest, Request, RequestOp, Response, TxnRequest, TxnResponse};
use crate::contract::Reason;
use baton_core::Key;
use prost::Message;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Batches under way at a time.
const LANES: usize = 2;
/// etcd takes so many operations in a transaction; those of one inside another count on top of those beside it.
const OPERATIONS_MAX: usize = 128;
/// Transactions in one batch: more would make those wait who come next, and save little.
const BATCH_MAX: usize = 48;
/// Bytes in one batch, if it isn't a single transaction that is larger. etcd takes 1.5 MiB.
const BATCH_BYTES_MAX: usize = 768 << 10;
/// Keys in one batch: its answer may have to show what is under each of them.
pub(super) const BATCH_KEYS_MAX: usize = 240;

/// A transaction, and who wants to know what becomes of it.
struct Asked {
    txn: TxnRequest,
    caller: Caller,
}

struct Caller {
    /// Whether the transaction puts something: what doesn't is given a mark to put.
    puts: bool,
    until: Instant,
    answer: oneshot::Sender<Result<TxnResponse, Failure>>,
}

/// The keys of a transaction.
#[derive(Default)]
pub(super) struct Touched {
    /// Those that it only looks at.
    pub read: Vec<Key>,
    pub written: Vec<Key>,
}

/// Keys that are taken, and whether somebody writes them.
#[derive(Default)]
struct Held(HashMap<Key, bool>);

impl Held {
    fn admits(&self, keys: &Touched) -> bool {
        keys.read.iter().all(|key| self.0.get(key) != Some(&true))
            && keys.written.iter().all(|key| !self.0.contains_key(key))
    }

    fn hold(&mut self, keys: Touched) {
        self.0.extend(keys.read.into_iter().map(|key| (key, false)));
        self.0.extend(keys.written.into_iter().map(|key| (key, true)));
    }
}

/// One whose turn comes.
struct Waiting {
    number: u64,
    keys: Touched,
    bytes: usize,
    asked: Asked,
}

/// Those who wait. How many is bounded by how many commits may be under way.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    numbers: u64,
    lanes: usize,
}

/// Where transactions wait for company.
pub(super) struct Group {
    client: Arc<Client>,
    mark: Vec<u8>,
    line: Mutex<Line>,
}

impl Group {
    /// `mark` is the key that is put where nothing else is.
    pub fn new(client: Arc<Client>, mark: Vec<u8>) -> Self {
        Self { client, mark, line: Mutex::default() }
    }

    /// Waits until a transaction is decided. `puts` says whether it puts any of its keys.
    pub async fn decide(
        self: &Arc<Self>,
        txn: TxnRequest,
        puts: bool,
        keys: Touched,
        until: Instant,
    ) -> Result<TxnResponse, Failure> {
        let (answer, answered) = oneshot::channel();
        let bytes = txn.encoded_len();
        let asked = Asked { txn, caller: Caller { puts, until, answer } };
        let (number, batch) = self.line.lock().expect("no panic while held").join(keys, bytes, asked);
        if !batch.is_empty() {
            tokio::spawn(self.clone().serve(batch));
        }
        match tokio::time::timeout_at(until, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::Unknown("the store was closed".into())),
            Err(_) if self.line.lock().expect("no panic while held").withdraw(number) => {
                Err(Failure::Unsent("not sent in time".into()))
            }
            Err(_) => Err(Failure::Unknown("etcd didn't answer in time".into())),
        }
    }

    /// One batch after the other, until nobody waits.
    async fn serve(self: Arc<Self>, mut batch: Vec<Asked>) {
        while !batch.is_empty() {
            self.send(batch).await;
            batch = self.line.lock().expect("no panic while held").go_on();
        }
    }

    /// Sends a batch, and answers everyone in it.
    async fn send(&self, batch: Vec<Asked>) {
        let batch = match <[Asked; 1]>::try_from(batch) {
            Ok([Asked { txn, caller }]) => return self.send_alone(txn, caller).await,
            Err(batch) => batch,
        };
        let until = batch.iter().map(|asked| asked.caller.until).max().unwrap_or_else(Instant::now);
        let (mut success, callers): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|Asked { txn, caller }| (RequestOp::from(Request::Txn(txn)), caller))
            .unzip();
        // The mark makes a revision where nobody puts anything. And etcd sees by it that the whole takes space: it
        // doesn't look at what is inside.
        success.push(self.put_mark());
        let whole = TxnRequest { success, ..TxnRequest::default() };
        let answered: Result<TxnResponse, _> = self.client.once(TXN, &whole, until).await;
        match answered {
            Ok(TxnResponse { header, responses, .. }) => {
                let mut responses = responses.into_iter();
                for caller in callers {
                    let own = match responses.next().and_then(|response| response.response) {
                        Some(Response::Txn(own)) => Ok(TxnResponse { header, ..own }),
                        _ => Err(Failure::Unknown("etcd said nothing of it".into())),
                    };
                    caller.answer.send(own).ok();
                }
            }
            Err(failure) if is_about_one(&failure) => {
                for (operation, caller) in whole.success.into_iter().zip(callers) {
                    if let Some(Request::Txn(txn)) = operation.request {
                        self.send_alone(txn, caller).await;
                    }
                }
            }
            Err(failure) => {
                for caller in callers {
                    caller.answer.send(Err(failure.clone())).ok();
                }
            }
        }
    }

    async fn send_alone(&self, mut txn: TxnRequest, caller: Caller) {
        if !caller.puts {
            txn.success.push(self.put_mark());
        }
        caller.answer.send(self.client.once(TXN, &txn, caller.until).await).ok();
    }

    fn put_mark(&self) -> RequestOp {
        Request::Put(PutRequest { key: self.mark.clone(), ..PutRequest::default() }).into()
    }
}

impl Line {
    /// Gives its number, and the batch that is to be sent now because of it, if there is a lane for one.
    fn join(&mut self, keys: Touched, bytes: usize, asked: Asked) -> (u64, Vec<Asked>) {
        self.numbers += 1;
        self.waiting.push_back(Waiting { number: self.numbers, keys, bytes, asked });
        if self.lanes >= LANES {
            return (self.numbers, Vec::new());
        }
        self.lanes += 1;
        (self.numbers, self.go_on())
    }

    /// The next batch on a lane; if there is none, the lane ends.
    fn go_on(&mut self) -> Vec<Asked> {
        let batch = self.take();
        if batch.is_empty() {
            self.lanes -= 1;
        }
        batch
    }

    /// Whether it had not been sent, and now won't be.
    fn withdraw(&mut self, number: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.number != number);
        self.waiting.len() < before
    }

    /// The first that wait and don't write each other's keys.
    fn take(&mut self) -> Vec<Asked> {
        let (mut taken, mut bytes, mut deepest) = (Vec::new(), 0, 0);
        let (mut held, mut shown, mut left) = (Held::default(), 0, VecDeque::new());
        while let Some(next) = self.waiting.pop_front() {
            if next.asked.caller.answer.is_closed() {
                // Its caller has gone before it was sent.
                continue;
            }
            let operations = depth(&next.asked.txn).max(deepest);
            let keys = next.keys.read.len() + next.keys.written.len();
            let is_too_much = taken.len() >= BATCH_MAX
                // The mark is one more.
                || taken.len() + 2 + operations > OPERATIONS_MAX
                || bytes + next.bytes > BATCH_BYTES_MAX
                || shown + keys > BATCH_KEYS_MAX;
            if is_too_much && !taken.is_empty() {
                left.push_back(next);
                left.append(&mut self.waiting);
            } else if !held.admits(&next.keys) {
                left.push_back(next);
            } else {
                (bytes, deepest, shown) = (bytes + next.bytes, operations, shown + keys);
                held.hold(next.keys);
                taken.push(next.asked);
            }
        }
        self.waiting = left;
        taken
    }
}

/// How many operations etcd counts for it.
fn depth(txn: &TxnRequest) -> usize {
    txn.compare.len().max(txn.success.len()).max(txn.failure.len())
}

/// Whether a refusal need not be everybody's: too much, no space, or a lease that is gone.
fn is_about_one(failure: &Failure) -> bool {
    matches!(failure, Failure::LeaseGone | Failure::Refused(Reason::Invalid | Reason::Full, _))
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::Group as Part;

    type Answered = oneshot::Receiver<Result<TxnResponse, Failure>>;

    /// One that waits although there may be a lane.
    fn wait(line: &mut Line, names: &[&str], operations: usize, bytes: usize) -> Answered {
        let (answer, answered) = oneshot::channel();
        let txn = TxnRequest { success: vec![RequestOp::default(); operations], ..TxnRequest::default() };
        // A name that begins with ? is only looked at.
        let (mut keys, named) = (Touched::default(), |name: &str| Key::new(Part(1), name.as_bytes()));
        for name in names {
            match name.strip_prefix('?') {
                Some(name) => keys.read.push(named(name)),
                None => keys.written.push(named(name)),
            }
        }
        let asked = Asked { txn, caller: Caller { puts: true, until: Instant::now(), answer } };
        let lanes = std::mem::replace(&mut line.lanes, LANES);
        assert!(line.join(keys, bytes, asked).1.is_empty());
        line.lanes = lanes;
        answered
    }

    fn many(line: &mut Line, count: usize, operations: usize, bytes: usize) -> Vec<Answered> {
        let one = |number: usize| wait(line, &[&number.to_string()], operations, bytes);
        (0..count).map(one).collect()
    }

    fn taken(line: &mut Line) -> Vec<usize> {
        std::iter::from_fn(|| Some(line.take().len()).filter(|taken| *taken > 0)).collect()
    }

    #[test]
    fn who_writes_what_others_look_at_goes_in_another_batch_and_keeps_its_turn() {
        let mut line = Line::default();
        // Told apart by their sizes.
        let names = [&["a", "x"][..], &["b", "?e"], &["x"], &["c", "?e"], &["a", "?x"], &["x", "b"]];
        let _callers: Vec<_> =
            names.iter().enumerate().map(|(number, names)| wait(&mut line, names, number, 1)).collect();
        let mut next = || line.take().iter().map(|asked| asked.txn.success.len()).collect::<Vec<_>>();
        assert_eq!([next(), next(), next(), next()], [vec![0, 1, 3], vec![2], vec![4], vec![5]]);
    }

    #[test]
    fn a_batch_is_bounded_by_number_operations_keys_and_size() {
        let mut line = Line::default();
        let _few = many(&mut line, 2 * BATCH_MAX + 1, 1, 1);
        assert_eq!(taken(&mut line), [BATCH_MAX, BATCH_MAX, 1]);
        let _deep = many(&mut line, 60, 100, 1);
        assert_eq!(taken(&mut line), [27, 27, 6], "with the mark, 28 beside 100");
        let _large = many(&mut line, 3, 1, BATCH_BYTES_MAX / 2 + 1);
        assert_eq!(taken(&mut line), [1, 1, 1]);
        let names: Vec<_> = (0..BATCH_KEYS_MAX).map(|name| name.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let _wide = [
            wait(&mut line, &names[1..], 1, 1),
            wait(&mut line, &["x"], 1, 1),
            wait(&mut line, &["y"], 1, 1),
        ];
        assert_eq!(taken(&mut line), [2, 1]);
        let _too_large = wait(&mut line, &["a"], OPERATIONS_MAX, BATCH_BYTES_MAX + 1);
        assert_eq!(taken(&mut line), [1], "alone it goes");
    }

    #[test]
    fn who_has_gone_is_not_sent_and_who_withdraws_was_not() {
        let mut line = Line::default();
        let callers = many(&mut line, 3, 1, 1);
        assert!(line.withdraw(2) && !line.withdraw(2));
        drop(callers);
        assert!(line.take().is_empty());
    }

    #[test]
    fn who_comes_alone_goes_at_once_and_a_lane_ends_when_nobody_waits() {
        let mut line = Line::default();
        let join = |line: &mut Line, name: &str| {
            let (answer, answered) = oneshot::channel();
            let caller = Caller { puts: true, until: Instant::now(), answer };
            let asked = Asked { txn: TxnRequest::default(), caller };
            let written = vec![Key::new(Part(1), name.as_bytes())];
            (line.join(Touched { written, ..Touched::default() }, 1, asked).1.len(), answered)
        };
        let callers: Vec<_> = (0..LANES + 3).map(|name| join(&mut line, &name.to_string())).collect();
        let sent: Vec<_> = callers.iter().map(|(sent, _)| *sent).collect();
        assert_eq!(sent, [vec![1; LANES], vec![0; 3]].concat());
        assert_eq!(line.go_on().len(), 3);
        for lanes in (0..LANES).rev() {
            assert!(line.go_on().is_empty());
            assert_eq!(line.lanes, lanes);
        }
    }
}
