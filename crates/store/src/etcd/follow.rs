//! Hints: one watch over everything of ours, taken up again where it broke off.

use super::client::{ANSWER_BYTES_MAX, Client, WATCH};
use super::keys::Keys;
use super::value::Meta;
use super::wire::{Event, WatchCreate, WatchRequest, WatchResponse};
use crate::backoff::Backoff;
use crate::watch::{Change, Hub};
use baton_core::Revision;
use std::sync::Arc;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

const START_MAX: Duration = Duration::from_secs(3);
const DELETED: i32 = 1;

/// Tells both hubs what happens in etcd.
pub(super) struct Follower {
    pub client: Arc<Client>,
    pub keys: Keys,
    pub hub: Arc<Hub>,
    pub expirations: Arc<Hub>,
    /// The first revision that nobody was told of.
    pub next: i64,
}

impl Follower {
    /// Until the store ends.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            match self.client.member().await {
                Ok((at, channel, token)) => {
                    let began = self.next;
                    let status = self.follow(channel, token).await;
                    if self.next > began {
                        backoff.reset();
                    }
                    if status.code() == Code::OutOfRange {
                        // Compacted, or more at once than is taken: from here on, then.
                        self.next = 0;
                        for hub in [&self.hub, &self.expirations] {
                            hub.publish([Change::Lost].into_iter());
                        }
                    } else {
                        tracing::debug!(code = ?status.code(), "the watch ended: watching again");
                        self.client.leave(at, &status);
                    }
                }
                Err(error) => tracing::debug!(?error, "can't watch yet"),
            }
            backoff.wait().await;
        }
    }

    /// Until the stream breaks; gives why.
    async fn follow(&mut self, channel: Channel, token: Option<MetadataValue<Ascii>>) -> Status {
        match self.try_follow(channel, token).await {
            Ok(()) => Status::unavailable("etcd ended the watch"),
            Err(status) => status,
        }
    }

    async fn try_follow(
        &mut self,
        channel: Channel,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<(), Status> {
        let (key, range_end) = self.keys.all();
        let create = WatchCreate { key, range_end, start_revision: self.next, progress_notify: true };
        let asked = tokio_stream::once(WatchRequest { create: Some(create) }).chain(tokio_stream::pending());
        let mut request = tonic::Request::new(asked);
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        // A member that is cut off from the others ends the watch instead of staying silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let start = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            grpc.streaming(request, PathAndQuery::from_static(WATCH), codec).await
        };
        let late = |_| Status::deadline_exceeded("the watch doesn't start");
        let mut stream = tokio::time::timeout(START_MAX, start).await.map_err(late)??.into_inner();
        while let Some(answer) = stream.message().await? {
            if answer.compact_revision > 0 {
                return Err(Status::out_of_range("compacted"));
            }
            if answer.canceled {
                return Err(Status::unauthenticated("etcd refused the watch"));
            }
            self.tell(&answer);
        }
        Ok(())
    }

    fn tell(&mut self, answer: &WatchResponse) {
        for events in answer.events.chunk_by(|a, b| revision(a) == revision(b)) {
            self.tell_commit(events);
        }
        let seen = match answer.events.last() {
            Some(event) => revision(event) + 1,
            // A sign of life says how far everything was told; the first answer only where the watch began.
            None if answer.created && self.next != 0 => return,
            None => answer.header.as_ref().map_or(0, |header| header.revision) + 1,
        };
        self.next = self.next.max(seen);
    }

    /// All events of one revision. Every commit puts something, if only its mark: what only deletes is an expiry.
    fn tell_commit(&self, events: &[Event]) {
        let expired = events.iter().all(|event| event.kind == DELETED);
        let changes = events.iter().filter_map(|event| {
            let kv = event.kv.as_ref()?;
            let key = self.keys.decode(&kv.key)?;
            let revision = Revision(kv.mod_revision.unsigned_abs());
            match event.kind {
                DELETED if expired => Some(Change::Expired { key }),
                DELETED => Some(Change::Deleted { key, revision }),
                _ => {
                    let (meta, value) = Meta::decode(&kv.value)?;
                    // A Touch is no change.
                    meta.put_at.is_none().then(|| Change::Put { key, value: value.into(), revision })
                }
            }
        });
        let hub = if expired { &self.expirations } else { &self.hub };
        if hub.is_watched() {
            hub.publish(changes);
        }
    }
}

fn revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}
