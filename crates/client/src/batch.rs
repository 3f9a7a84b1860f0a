//! Calls that are under way at the same time share a request (P2).
//!
//! A call that finds a free lane goes out at once, alone, as a plain request. While all lanes are busy, calls
//! collect; the next free lane takes what there is in one `POST /v1/batch`. Nobody waits for company. Acquires
//! that wait for a lock never come here: they would keep a lane, and leaving the queue means closing a connection.

use crate::clock::Moment;
use crate::connection::Ask;
use crate::error::Failure;
use crate::held::{self, Held};
use crate::host::Host;
use crate::lane;
use crate::path;
use baton_api::batch::Answer;
use baton_api::limits;
use bytes::Bytes;
use hyper::Method;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::oneshot;

/// Requests under way at a time, per server. More make smaller batches, which cost both sides more per call; with
/// only one, every call would wait for the slowest.
const LANES_MAX: usize = 2;
/// Calls that may wait to be sent, per server.
const PENDING_MAX: usize = 16 * 1024;

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
    Campaign,
    RenewLeader,
    Resign,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Campaign => "campaign",
            Self::Renew | Self::RenewLeader => "renew",
            Self::Release => "release",
            Self::Resign => "resign",
        }
    }

    /// What it is about.
    pub(crate) fn held(self) -> Held {
        match self {
            Self::Acquire | Self::Renew | Self::Release => Held::Lock,
            Self::Campaign | Self::RenewLeader | Self::Resign => Held::Election,
        }
    }

    pub(crate) fn read(self, body: &[u8]) -> serde_json::Result<Answer> {
        Ok(match self {
            Self::Acquire => Answer::Acquire(serde_json::from_slice(body)?),
            Self::Renew => Answer::Renew(serde_json::from_slice(body)?),
            Self::Release => Answer::Release(serde_json::from_slice(body)?),
            Self::Campaign => Answer::Acquire(held::granted(serde_json::from_slice(body)?)),
            Self::RenewLeader => Answer::Renew(held::renewed(serde_json::from_slice(body)?)),
            Self::Resign => Answer::Release(held::released(serde_json::from_slice(body)?)),
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

pub(crate) struct Pending {
    pub(crate) call: Call,
    pub(crate) answer: Option<oneshot::Sender<Result<Answered, Failure>>>,
}

impl Pending {
    pub(crate) fn is_wanted(&self) -> bool {
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
    pub(crate) fn take(&mut self) -> Option<Vec<Pending>> {
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
    /// As a request of its own.
    pub(crate) fn ask(&self) -> Ask {
        let path =
            path::of(self.operation.held(), &self.key, self.operation.name(), self.namespace.as_deref());
        Ask { method: Method::POST, path, body: self.body.clone() }
    }

    /// An upper bound of its size in a batch; a control character takes six bytes as JSON.
    fn bytes(&self) -> usize {
        64 + self.body.len() + 6 * (self.key.len() + self.namespace.as_ref().map_or(0, |name| name.len()))
    }

    pub(crate) fn write(&self, id: usize, out: &mut Vec<u8>) -> serde_json::Result<()> {
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
    /// Sends a call, with others if there are any. Leaders are few, and their calls go alone: there is no batch of them.
    pub(crate) async fn call(self: &Arc<Self>, call: Call) -> Result<Answered, Failure> {
        if call.operation.held() == Held::Election {
            return self.call_alone(&call).await;
        }
        let (answer, answered) = oneshot::channel();
        self.enqueue(Pending { call, answer: Some(answer) })?;
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(Failure::Unknown(format!("{}: the request was dropped", self.address))),
        }
    }

    async fn call_alone(&self, call: &Call) -> Result<Answered, Failure> {
        let reply = self.exchange(&call.ask()).await?;
        if !reply.status.is_success() {
            return Err(reply.refusal(&self.address));
        }
        let answer = call.operation.read(&reply.body);
        let answer = answer.map_err(|error| Failure::Unexpected(format!("{}: {error}", self.address)))?;
        Ok(Answered { answer, sent: reply.sent })
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
            self.runtime.spawn(lane::run(self.clone()));
        }
        Ok(())
    }

    /// Hands an answer to its caller. A grant whose caller is gone for good goes back (L2).
    pub(crate) fn deliver(self: &Arc<Self>, pending: Pending, result: Result<Answered, Failure>) {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn call(key: &str) -> Call {
        Call {
            operation: Operation::Renew,
            namespace: Some("n\"s".into()),
            key: key.into(),
            body: Bytes::from_static(br#"{"lockToken":"t","ownerId":"o","ttlMillis":1000}"#),
            fate: Arc::default(),
        }
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
    fn a_taken_grant_is_never_given_back() {
        let fate = Fate::default();
        fate.take();
        fate.abandon();
        assert!(!fate.is_abandoned());
    }
}
