//! A lane: sends what has collected for a server, one request at a time, and hands out the answers.

use crate::batch::{Answered, Pending};
use crate::clock::Moment;
use crate::connection::{Ask, Connection, Reply};
use crate::error::Failure;
use crate::host::Host;
use baton_api::batch::{Answer, BatchAnswer};
use hyper::Method;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long a lane gives a request at most.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// How often a lane looks whether anybody still wants its answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of one line of an answer.
const LINE_BYTES_MAX: usize = 256 * 1024;

/// Sends what has collected until nothing is left.
pub(crate) async fn run(host: Arc<Host>) {
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
                Failure::Unknown(format!("{}: the answer ended without this call's", host.address))
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
            return Ok(call.ask());
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
    use crate::batch::tests::call;

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
}
