//! Calls to etcd: each with a deadline, on the member that answered last, else on the next.

use super::url::Target;
use super::wire::{AuthenticateRequest, AuthenticateResponse};
use crate::contract::{Reason, StoreError};
use prost::Message;
use prost::bytes::{BufMut, Bytes};
use std::error::Error;
use std::marker::PhantomData;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Status};
use tonic_prost::{ProstCodec, ProstDecoder};

/// How long a call of the store may take, with all it asks of etcd: less than callers wait.
pub(super) const CALL_MAX: Duration = Duration::from_millis(1500);
/// How long a member may take to answer what another one could answer as well.
const MEMBER_MAX: Duration = Duration::from_millis(600);
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// etcd ends connections that ask more often than each 5 s whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(3);
/// The largest answer: a batch of conflicts may show a record of 512 KiB under each of its keys.
pub(super) const ANSWER_BYTES_MAX: usize = 128 << 20;

pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const LEASE_BEGIN: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const LEASE_LEFT: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// No member got it.
    Unsent(String),
    /// etcd refused it; nothing happened.
    Refused(Reason, String),
    /// A lease it needs is gone; nothing happened.
    LeaseGone,
    /// The answer is larger than is taken.
    TooLarge,
    /// It may have happened, or may still.
    Unknown(String),
}

impl Failure {
    /// For calls that write.
    pub fn of_commit(self) -> StoreError {
        match self {
            Self::Unknown(detail) => StoreError::Unknown { detail },
            Self::TooLarge => StoreError::Unknown { detail: "the answer is too large".into() },
            other => other.of_read(),
        }
    }

    /// For calls without an effect on records.
    pub fn of_read(self) -> StoreError {
        let (reason, detail) = match self {
            Self::Unsent(detail) | Self::Unknown(detail) => (Reason::Unavailable, detail),
            Self::Refused(reason, detail) => (reason, detail),
            Self::LeaseGone => (Reason::Unavailable, "etcd has forgotten a lease".into()),
            Self::TooLarge => (Reason::Unavailable, "the answer is too large".into()),
        };
        StoreError::NotApplied { reason, detail }
    }
}

/// All members that we know of.
pub(super) struct Client {
    members: Vec<Channel>,
    current: AtomicUsize,
    user: Option<(String, String)>,
    token: RwLock<Option<MetadataValue<Ascii>>>,
}

impl Client {
    /// Connects when it is first used.
    pub fn new(target: &Target) -> Result<Self, String> {
        let tls = if target.tls { Some(tls(target)?) } else { None };
        let count = target.endpoints.len();
        let member = |(index, address): (usize, &String)| -> Result<Channel, String> {
            let unusable = |error: tonic::transport::Error| {
                let why = error.source().map(|why| format!(": {why}")).unwrap_or_default();
                // Not which: what can't be used as an address may be part of a password.
                format!("can't use host {} of {count}: {error}{why}", index + 1)
            };
            let mut endpoint = Endpoint::from_shared(address.clone())
                .map_err(unusable)?
                .tcp_nodelay(true)
                .connect_timeout(CONNECT_MAX)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE_MAX);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(unusable)?;
            }
            Ok(endpoint.connect_lazy())
        };
        let members = target.endpoints.iter().enumerate().map(member).collect::<Result<_, _>>()?;
        let (current, token) = (AtomicUsize::new(0), RwLock::new(None));
        Ok(Self { members, current, user: target.user.clone(), token })
    }

    /// Asks what writes: goes on to the next member only if the one before didn't get it.
    pub async fn once<A, B>(&self, path: &'static str, asked: &A, until: Instant) -> Result<B, Failure>
    where
        A: prost::Message,
        B: prost::Message + Default + 'static,
    {
        self.ask(path, asked, until, false).await
    }

    /// Asks what has no effect on records: may be asked of several members.
    pub async fn again<A, B>(&self, path: &'static str, asked: &A, until: Instant) -> Result<B, Failure>
    where
        A: prost::Message,
        B: prost::Message + Default + 'static,
    {
        self.ask(path, asked, until, true).await
    }

    async fn ask<A, B>(
        &self,
        path: &'static str,
        asked: &A,
        until: Instant,
        repeat: bool,
    ) -> Result<B, Failure>
    where
        A: prost::Message,
        B: prost::Message + Default + 'static,
    {
        let asked = Bytes::from(asked.encode_to_vec());
        let mut authenticated = false;
        let mut tries = self.members.len();
        loop {
            let at = self.current.load(Ordering::Relaxed) % self.members.len();
            tries -= 1;
            let patience = if repeat && tries > 0 { until.min(Instant::now() + MEMBER_MAX) } else { until };
            if self.user.is_some() && self.token().is_none() {
                self.authenticate(at, patience).await?;
            }
            let token = self.token();
            let status = match self.call(at, path, asked.clone(), token.clone(), patience).await {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            if is_stale_token(&status) && self.user.is_some() && !authenticated {
                // Refused before anything happened: a new token, and the same member again.
                self.forget(token);
                (authenticated, tries) = (true, tries + 1);
                continue;
            }
            let failure = sort(&status);
            let elsewhere = matches!(failure, Failure::Unsent(_) | Failure::Unknown(_));
            if elsewhere {
                // Somebody else may have moved on already.
                let next = (at + 1) % self.members.len();
                self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).ok();
            }
            let may = elsewhere && (repeat || matches!(failure, Failure::Unsent(_)));
            if !may || tries == 0 || Instant::now() >= until {
                return Err(failure);
            }
        }
    }

    async fn call<B>(
        &self,
        at: usize,
        path: &'static str,
        asked: Bytes,
        token: Option<MetadataValue<Ascii>>,
        until: Instant,
    ) -> Result<B, Status>
    where
        B: prost::Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.members[at].clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let mut request = tonic::Request::new(asked);
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        let answer = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            grpc.unary(request, PathAndQuery::from_static(path), Encoded::default()).await
        };
        match tokio::time::timeout_at(until, answer).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(Status::deadline_exceeded("etcd didn't answer in time")),
        }
    }

    /// The member that is used now, for streams; and what proves who we are.
    pub async fn member(&self) -> Result<(usize, Channel, Option<MetadataValue<Ascii>>), Failure> {
        let at = self.current.load(Ordering::Relaxed) % self.members.len();
        if self.user.is_some() && self.token().is_none() {
            self.authenticate(at, Instant::now() + CALL_MAX).await?;
        }
        Ok((at, self.members[at].clone(), self.token()))
    }

    /// Goes on to the next member, after `at` has failed, with a new token if it has refused the present one.
    pub fn leave(&self, at: usize, status: &Status) {
        if is_stale_token(status) {
            self.forget(self.token());
        } else {
            let next = (at + 1) % self.members.len();
            self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).ok();
        }
    }

    fn token(&self) -> Option<MetadataValue<Ascii>> {
        self.token.read().expect("no panic while held").clone()
    }

    fn forget(&self, refused: Option<MetadataValue<Ascii>>) {
        let mut token = self.token.write().expect("no panic while held");
        if *token == refused {
            *token = None;
        }
    }

    async fn authenticate(&self, at: usize, until: Instant) -> Result<(), Failure> {
        let Some((name, password)) = self.user.clone() else { return Ok(()) };
        let asked = Bytes::from(AuthenticateRequest { name, password }.encode_to_vec());
        // Nothing that matters was sent yet, whatever becomes of this.
        let unsent = |status: Status| match sort(&status) {
            Failure::Refused(reason, detail) => Failure::Refused(reason, detail),
            _ => Failure::Unsent(format!("can't authenticate: {}", describe(&status))),
        };
        let answer: AuthenticateResponse =
            self.call(at, AUTHENTICATE, asked, None, until).await.map_err(|status| {
                if matches!(sort(&status), Failure::Unsent(_) | Failure::Unknown(_)) {
                    let next = (at + 1) % self.members.len();
                    self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).ok();
                }
                unsent(status)
            })?;
        let unreadable = |_| Failure::Unsent("etcd gave a token that can't be sent".into());
        let mut token: MetadataValue<Ascii> = answer.token.parse().map_err(unreadable)?;
        token.set_sensitive(true);
        *self.token.write().expect("no panic while held") = Some(token);
        Ok(())
    }
}

/// Sends what is encoded already, so that another member can be asked the same without a copy of it.
struct Encoded<B>(PhantomData<B>);

impl<B> Default for Encoded<B> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<B: prost::Message + Default + 'static> Codec for Encoded<B> {
    type Encode = Bytes;
    type Decode = B;
    type Encoder = AsItIs;
    type Decoder = ProstDecoder<B>;

    fn encoder(&mut self) -> AsItIs {
        AsItIs
    }

    fn decoder(&mut self) -> ProstDecoder<B> {
        ProstCodec::<B, B>::raw_decoder(BufferSettings::default())
    }
}

struct AsItIs;

impl Encoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

fn tls(target: &Target) -> Result<ClientTlsConfig, String> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|error| format!("can't read {}: {error}", path.display()))
    };
    let mut tls = ClientTlsConfig::new();
    if let Some(ca) = &target.ca {
        tls = tls.ca_certificate(Certificate::from_pem(read(ca)?));
    }
    if let Some((cert, key)) = &target.identity {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(tls)
}

fn is_stale_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || status.message().contains("revision of auth store is old")
}

/// What a status says about what happened. When in doubt: unknown.
fn sort(status: &Status) -> Failure {
    let detail = || describe(status);
    if was_never_connected(status) {
        return Failure::Unsent(detail());
    }
    let refused = |reason| Failure::Refused(reason, detail());
    match status.code() {
        Code::InvalidArgument if status.message().contains("user name is empty") => {
            refused(Reason::Unavailable)
        }
        Code::InvalidArgument | Code::Unimplemented => refused(Reason::Invalid),
        Code::ResourceExhausted if status.message().contains("space exceeded") => refused(Reason::Full),
        Code::ResourceExhausted if status.message().contains("too many requests") => {
            refused(Reason::Unavailable)
        }
        Code::Unauthenticated | Code::PermissionDenied => refused(Reason::Unavailable),
        Code::NotFound if status.message().contains("lease not found") => Failure::LeaseGone,
        Code::OutOfRange if status.message().contains("too large") => Failure::TooLarge,
        _ => Failure::Unknown(detail()),
    }
}

/// What etcd or the way there said; neither knows a password.
fn describe(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut source = status.source();
    while let Some(error) = source {
        // Some repeat what they are made of.
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

fn was_never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}
