//! Calls that are under way at the same time share a request (P2).
//!
//! A call that finds a free lane goes out at once, alone, as a plain request. While all lanes are busy, calls
//! collect; the next free lane takes what there is in one `POST /v1/batch`. Nobody waits for company. Acquires
//! that wait for a lock never come here: they would keep a lane, and leaving the queue means closing a connection.

use crate::clock::Moment;
use crate::connection::{Ask, Connection, Reply};
use crate::error::Failure;
use crate::host::Host;
use crate::path;
use baton_api::batch::{Answer, BatchAnswer};
use baton_api::limits;
use bytes::Bytes;
use hyper::Method;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests under way at a time, per server.
const LANES_MAX: usize = 4;
/// Calls that may wait to be sent, per server.
const PENDING_MAX: usize = 16 * 1024;
/// How long a lane gives a request at most.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// How often a lane looks whether anybody still wants its answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of one line of an answer.
const LINE_BYTES_MAX: usize = 256 * 1024;

/// A call, encoded once for all its tries.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    /// Nothing is the server's `default`.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) key: Arc<str>,
    pub(crate) body: Bytes,
    pub(crate) fate: Arc<Fate>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Acquire,
    Renew,
    Release,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
        }
    }

    fn read(self, body: &[u8]) -> serde_json::Result<Answer> {
        Ok(match self {
            Self::Acquire => Answer::Acquire(serde_json::from_slice(body)?),
            Self::Renew => Answer::Renew(serde_json::from_slice(body)?),
            Self::Release => Answer::Release(serde_json::from_slice(body)?),
        })
    }
}

/// What became of an acquire as a whole, over all its tries. A grant that arrives after the caller went away is
/// given back; one that arrives late for a try whose successor was answered is the very same grant, and stays.
#[derive(Default)]
pub(crate) struct Fate(AtomicU8);

impl Fate {
    const TAKEN: u8 = 1;
    const ABANDONED: u8 = 2;

    pub(crate) fn take(&self) {
        self.0.store(Self::TAKEN, Ordering::Release);
    }

    /// Nobody is going to take it, unless somebody has.
    pub(crate) fn abandon(&self) {
        self.0.compare_exchange(0, Self::ABANDONED, Ordering::AcqRel, Ordering::Acquire).ok();
    }

    fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::ABANDONED
    }
}

/// An answer, and when its request was sent.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) sent: Moment,
}

struct Pending {
    call: Call,
    answer: Option<oneshot::Sender<Result<Answered, Failure>>>,
}

impl Pending {
    fn is_wanted(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| !answer.is_closed())
    }
}

/// Calls that wait to be sent.
#[derive(Default)]
pub(crate) struct Queue {
    pending: VecDeque<Pending>,
    lanes: usize,
}

impl Queue {
    /// The next request's calls, or nothing, and the lane ends.
    fn take(&mut self) -> Option<Vec<Pending>> {
        let mut batch = Vec::with_capacity(self.pending.len().min(*limits::BATCH_CALLS.end()));
        let mut bytes = 64;
        while let Some(next) = self.pending.front() {
            bytes += next.call.bytes();
            if batch.len() == *limits::BATCH_CALLS.end() || bytes > limits::BATCH_BYTES_MAX {
                break;
            }
            // A caller that left before its call was sent costs nothing.
            batch.extend(self.pending.pop_front().filter(Pending::is_wanted));
        }
        if batch.is_empty() {
            self.lanes -= 1;
            return None;
        }
        Some(batch)
    }
}

impl Call {
    /// An upper bound of its size in a batch; a control character takes six bytes as JSON.
    fn bytes(&self) -> usize {
        64 + self.body.len() + 6 * (self.key.len() + self.namespace.as_ref().map_or(0, |name| name.len()))
    }

    fn write(&self, id: usize, out: &mut Vec<u8>) -> serde_json::Result<()> {
        out.extend_from_slice(b"{\"id\":");
        serde_json::to_writer(&mut *out, &id)?;
        if let Some(namespace) = &self.namespace {
            out.extend_from_slice(b",\"namespace\":");
            serde_json::to_writer(&mut *out, &**namespace)?;
        }
        out.extend_from_slice(b",\"lockKey\":");
        serde_json::to_writer(&mut *out, &*self.key)?;
        out.extend_from_slice(b",\"call\":{\"");
        out.extend_from_slice(self.operation.name().as_bytes());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(&self.body);
        out.extend_from_slice(b"}}");
        Ok(())
    }
}

impl Host {
    /// Sends a call, with others if there are any.
    pub(crate) async fn call(self: &Arc<Self>, call: Call) -> Result<Answered, Failure> {
        let (answer, answered) = oneshot::channel();
        self.enqueue(Pending { call, answer: Some(answer) })?;
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(Failure::Unknown(format!("{}: the request was dropped", self.address))),
        }
    }

    fn enqueue(self: &Arc<Self>, pending: Pending) -> Result<(), Failure> {
        let mut queue = self.queue();
        if queue.pending.len() >= PENDING_MAX {
            return Err(Failure::NotSent(format!("{PENDING_MAX} calls to {} wait already", self.address)));
        }
        queue.pending.push_back(pending);
        if queue.lanes < LANES_MAX {
            queue.lanes += 1;
            drop(queue);
            self.runtime.spawn(lane(self.clone()));
        }
        Ok(())
    }

    /// Hands an answer to its caller. A grant whose caller is gone for good goes back (L2).
    fn deliver(self: &Arc<Self>, pending: Pending, result: Result<Answered, Failure>) {
        let Pending { call, answer } = pending;
        let undelivered = match answer {
            Some(answer) => answer.send(result).err(),
            None => return,
        };
        if let Some(Ok(Answered { answer: Answer::Acquire(grant), .. })) = undelivered
            && call.fate.is_abandoned()
        {
            let body = baton_api::lock::ReleaseRequest {
                lock_token: grant.lock_token,
                owner_id: grant.owner_id,
                request_id: Some(crate::random::request_id()),
            };
            if let Ok(body) = serde_json::to_vec(&body) {
                let call = Call { operation: Operation::Release, body: body.into(), ..call };
                // If there is no room, the lease runs out by itself.
                drop(self.enqueue(Pending { call, answer: None }));
            }
        }
    }
}

/// Sends what has collected until nothing is left.
async fn lane(host: Arc<Host>) {
    let mut connection = None;
    loop {
        // Callers that were woken by the same answer get to send their next call together.
        tokio::task::yield_now().await;
        let Some(pending) = host.queue().take() else { break };
        let until = Moment::now().after(REQUEST_MAX);
        let mut batch = Batch { host: &host, pending: pending.into_iter().map(Some).collect(), until };
        let failure = match batch.send(connection.take()).await {
            Ok(kept) => {
                connection = Some(kept);
                Failure::Unexpected(format!("{}: a batch was answered without this call", host.address))
            }
            Err(failure) => failure,
        };
        batch.fail(&failure);
    }
    if let Some(connection) = connection {
        host.keep(connection);
    }
}

/// The calls of one request.
struct Batch<'a> {
    host: &'a Arc<Host>,
    /// By id; nothing where an answer has come.
    pending: Vec<Option<Pending>>,
    until: Moment,
}

impl Batch<'_> {
    /// Sends the calls and hands out the answers. Gives the connection back if it can be used again.
    async fn send(&mut self, kept: Option<Connection>) -> Result<Connection, Failure> {
        let address = &self.host.address;
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.host.connection().await?,
        };
        let ask = self.ask().map_err(|error| Failure::NotSent(format!("{address}: {error}")))?;
        let mut sent = self.patiently(connection.send(address, &ask)).await?;
        if connection.used && matches!(sent, Err(Failure::NotSent(_))) {
            connection = Connection::open(address).await?;
            sent = self.patiently(connection.send(address, &ask)).await?;
        }
        let (response, sent) = sent?;
        let status = response.status();
        let mut incoming = response.into_body();
        if status.is_success() && self.pending.len() > 1 {
            let mut lines = Lines::default();
            while let Some(piece) = self.patiently(connection.piece(&mut incoming)).await? {
                let piece = piece.map_err(|error| Failure::Unknown(format!("{address}: {error}")))?;
                lines.read(&piece, |line| self.answer(line, sent))?;
            }
        } else {
            let body = self.patiently(connection.read(address, incoming)).await??;
            let reply = Reply { status, body, sent };
            if !status.is_success() {
                return Err(reply.refusal(address));
            }
            self.answer_one(&reply)?;
        }
        connection.used = true;
        Ok(connection)
    }

    fn ask(&self) -> serde_json::Result<Ask> {
        if let [Some(Pending { call, .. })] = &self.pending[..] {
            let path = path::of(&call.key, call.operation.name(), call.namespace.as_deref());
            return Ok(Ask { method: Method::POST, path, body: call.body.clone() });
        }
        let bytes = self.pending.iter().flatten().map(|pending| pending.call.body.len() + 128).sum();
        let mut body = Vec::with_capacity(bytes);
        body.extend_from_slice(b"{\"calls\":[");
        for (id, pending) in self.pending.iter().enumerate() {
            let Some(pending) = pending else { continue };
            if id > 0 {
                body.push(b',');
            }
            pending.call.write(id, &mut body)?;
        }
        body.extend_from_slice(b"]}");
        Ok(Ask { method: Method::POST, path: "/v1/batch".into(), body: body.into() })
    }

    /// A plain answer to a lone call.
    fn answer_one(&mut self, reply: &Reply) -> Result<(), Failure> {
        let Some(pending) = self.pending.first_mut().and_then(Option::take) else { return Ok(()) };
        let read = pending.call.operation.read(&reply.body);
        let result = read
            .map(|answer| Answered { answer, sent: reply.sent })
            .map_err(|error| Failure::Unexpected(format!("{}: {error}", self.host.address)));
        self.host.deliver(pending, result);
        Ok(())
    }

    /// One line of a batch's answer.
    fn answer(&mut self, line: &[u8], sent: Moment) -> Result<(), Failure> {
        let BatchAnswer { id, answer } = serde_json::from_slice(line)
            .map_err(|error| Failure::Unexpected(format!("{}: {error}", self.host.address)))?;
        let pending = usize::try_from(id).ok().and_then(|id| self.pending.get_mut(id)).and_then(Option::take);
        let pending = pending
            .ok_or_else(|| Failure::Unexpected(format!("{}: an answer to no call", self.host.address)))?;
        let result = match answer {
            Answer::Error(body) => Err(Failure::Refused(Box::new(body))),
            answer => Ok(Answered { answer, sent }),
        };
        self.host.deliver(pending, result);
        Ok(())
    }

    /// Whatever has no answer failed alike.
    fn fail(&mut self, failure: &Failure) {
        for pending in self.pending.iter_mut().filter_map(Option::take) {
            self.host.deliver(pending, Err(failure.clone()));
        }
    }

    /// Waits while somebody waits for an answer, but not for ever: a server that hangs must not keep the lane.
    async fn patiently<F: Future>(&self, future: F) -> Result<F::Output, Failure> {
        let mut future = pin!(future);
        loop {
            if let Ok(output) = tokio::time::timeout(LOOK_EVERY, future.as_mut()).await {
                return Ok(output);
            }
            if self.until.has_passed() || !self.pending.iter().flatten().any(Pending::is_wanted) {
                return Err(Failure::Unknown(format!("{}: no answer in time", self.host.address)));
            }
        }
    }
}

/// Cuts a streamed body into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn read(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let Some(end) = part.strip_suffix(b"\n") else {
                self.0.extend_from_slice(part);
                break;
            };
            if !self.0.is_empty() {
                self.0.extend_from_slice(end);
                each(&self.0)?;
                self.0.clear();
            } else if !end.is_empty() {
                each(end)?;
            }
        }
        if self.0.len() > LINE_BYTES_MAX {
            return Err(Failure::Unexpected(format!("a line of more than {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(key: &str) -> Call {
        Call {
            operation: Operation::Renew,
            namespace: Some("n\"s".into()),
            key: key.into(),
            body: Bytes::from_static(br#"{"lockToken":"t","ownerId":"o","ttlMillis":1000}"#),
            fate: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_batch_is_what_the_server_reads() {
        let address = crate::address::parse_list("http://a").unwrap().remove(0);
        let host = Arc::new(Host::new(address, tokio::runtime::Handle::current()));
        let pending = ["a", "b\"\\"].map(|key| Some(Pending { call: call(key), answer: None }));
        let batch = Batch { host: &host, pending: pending.into(), until: Moment::now() };
        let ask = batch.ask().unwrap();
        let read: baton_api::batch::BatchRequest = serde_json::from_slice(&ask.body).unwrap();
        assert_eq!(ask.path, "/v1/batch");
        assert_eq!(read.calls.iter().map(|call| call.id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(read.calls[1].lock_key, "b\"\\");
        assert_eq!(read.calls[1].namespace.as_deref(), Some("n\"s"));
        assert!(matches!(read.calls[0].call, baton_api::batch::Call::Renew(_)));
    }

    #[test]
    fn a_request_takes_no_more_calls_or_bytes_than_the_server_allows() {
        let mut queue = Queue { lanes: 1, ..Queue::default() };
        for _ in 0..300 {
            queue.pending.push_back(Pending { call: call("k"), answer: None });
        }
        assert_eq!(queue.take().unwrap().len(), 256);
        assert_eq!(queue.take().unwrap().len(), 44);
        assert!(queue.take().is_none() && queue.lanes == 0);

        let big = Call { body: vec![b'x'; 60_000].into(), ..call("k") };
        queue.lanes = 1;
        for _ in 0..20 {
            queue.pending.push_back(Pending { call: big.clone(), answer: None });
        }
        assert_eq!(queue.take().unwrap().len(), 17);
        assert_eq!(queue.take().unwrap().len(), 3);
    }

    #[test]
    fn a_caller_that_left_before_its_call_was_sent_is_skipped() {
        let mut queue = Queue { lanes: 1, ..Queue::default() };
        let (answer, answered) = oneshot::channel();
        queue.pending.push_back(Pending { call: call("k"), answer: Some(answer) });
        drop(answered);
        assert!(queue.take().is_none());
    }

    #[test]
    fn lines_are_found_however_the_body_is_cut() {
        let whole = b"one\ntwo\n\nthree\n";
        for size in 1..=whole.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in whole.chunks(size) {
                lines
                    .read(piece, |line| {
                        found.push(String::from_utf8(line.to_vec()).unwrap());
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(found, ["one", "two", "three"], "{size}");
        }
    }

    #[test]
    fn a_taken_grant_is_never_given_back() {
        let fate = Fate::default();
        fate.take();
        fate.abandon();
        assert!(!fate.is_abandoned());
    }
}
