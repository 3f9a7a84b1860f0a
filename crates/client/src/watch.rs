//! What happens to a lock, as server-sent events (L12).
//!
//! A watch ends when its connection does: it doesn't hide the gap. Watch again, and read the status first.

use crate::address::Address;
use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::connection::{Ask, Connection, Reply};
use crate::error::{Error, Failure};
use crate::host::Host;
use crate::retry::Retry;
use baton_api::lock::LockEvent;
use hyper::Method;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::timeout;

/// A server says something every 15 s, if only that it is there. One that doesn't has stopped, whatever its kernel says.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// Bytes of one event.
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// What a watch brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    /// Something happened.
    Event(LockEvent),
    /// The server couldn't keep up: events may be missing. Read the status again.
    Gap,
}

/// A stream of what happens to a lock, or to several. Dropping it closes its connection.
pub struct LockWatch(Events);

impl std::fmt::Debug for LockWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockWatch").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl LockWatch {
    pub(crate) async fn open(baton: &Baton, path: String) -> Result<Self, Error> {
        Events::open(baton, path).await.map(Self)
    }

    /// The next event; nothing when the server ended the stream. After an error there is nothing more.
    pub async fn next(&mut self) -> Option<Result<Watched, Error>> {
        Some(match self.0.next().await? {
            Ok(Event { name, .. }) if name == "lost" => Ok(Watched::Gap),
            Ok(event) => self.0.read(&event).map(Watched::Event),
            Err(error) => Err(error),
        })
    }
}

/// A stream of server-sent events on a connection of its own.
pub(crate) struct Events {
    address: Address,
    connection: Connection,
    body: Incoming,
    text: EventText,
    ready: VecDeque<Event>,
}

impl Events {
    pub(crate) async fn open(baton: &Baton, path: String) -> Result<Self, Error> {
        let ask = Ask { method: Method::GET, path, body: Default::default() };
        let mut retry = Retry::until(Moment::now().after(baton.0.call_timeout));
        loop {
            let (index, host) = baton.0.host();
            let failure = match tokio::time::timeout(TRY_MAX, Self::try_open(host, &ask)).await {
                Ok(Ok(watch)) => return Ok(watch),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Unknown(format!("{}: no answer within {TRY_MAX:?}", host.address)),
            };
            baton.0.failed(index, &failure);
            retry.pause(failure).await?;
        }
    }

    async fn try_open(host: &Host, ask: &Ask) -> Result<Self, Failure> {
        let address = host.address.clone();
        let mut connection = Connection::open(&address).await?;
        let (response, sent) = connection.send(&address, ask).await?;
        let status = response.status();
        let body = response.into_body();
        if !status.is_success() {
            let body = connection.read(&address, body).await?;
            return Err(Reply { status, body, sent }.refusal(&address));
        }
        Ok(Self { address, connection, body, text: EventText::default(), ready: VecDeque::new() })
    }

    /// What an event's data says.
    pub(crate) fn read<T: DeserializeOwned>(&self, event: &Event) -> Result<T, Error> {
        serde_json::from_str(&event.data)
            .map_err(|error| Error::unexpected(format!("{}: {error}", self.address)))
    }

    /// The next event; nothing when the server ended the stream. After an error there is nothing more.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let Ok(piece) = timeout(SILENCE_MAX, self.connection.piece(&mut self.body)).await else {
                let failure = Failure::Unknown(format!("{}: the watch fell silent", self.address));
                return Some(Err(Error::from_failure(failure, false)));
            };
            match piece? {
                Ok(piece) => {
                    if self.text.read(&piece, &mut self.ready).is_err() {
                        return Some(Err(Error::unexpected(format!("{}: an event too long", self.address))));
                    }
                }
                Err(error) => {
                    let failure = Failure::Unknown(format!("{}: the watch broke off: {error}", self.address));
                    return Some(Err(Error::from_failure(failure, false)));
                }
            }
        }
    }
}

/// One server-sent event.
#[derive(Default, PartialEq, Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    data: String,
}

/// Cuts the stream into events. Comments and ids are skipped.
#[derive(Default)]
struct EventText {
    line: Vec<u8>,
    event: Event,
}

struct TooLong;

impl EventText {
    fn read(&mut self, piece: &[u8], ready: &mut VecDeque<Event>) -> Result<(), TooLong> {
        for byte in piece {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() + self.event.data.len() > EVENT_BYTES_MAX {
                    return Err(TooLong);
                }
                continue;
            }
            let line = String::from_utf8_lossy(&self.line);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                ready.extend((!event.data.is_empty()).then_some(event));
            } else if let Some((field, value)) = line.split_once(':') {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "event" => self.event.name = value.to_owned(),
                    "data" if self.event.data.is_empty() => self.event.data = value.to_owned(),
                    "data" => {
                        self.event.data.push('\n');
                        self.event.data.push_str(value);
                    }
                    _ => {}
                }
            }
            self.line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let stream = b": hello\n\nevent: granted\ndata: {\"a\":\ndata: 1}\n\nid: 7\r\ndata:two\r\n\r\n";
        for size in 1..=stream.len() {
            let (mut text, mut ready) = (EventText::default(), VecDeque::new());
            for piece in stream.chunks(size) {
                assert!(text.read(piece, &mut ready).is_ok());
            }
            let found: Vec<_> =
                ready.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
            assert_eq!(found, [("granted", "{\"a\":\n1}"), ("", "two")], "{size}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        let mut text = EventText::default();
        assert!(text.read(&vec![b'x'; EVENT_BYTES_MAX + 1], &mut VecDeque::new()).is_err());
    }
}
