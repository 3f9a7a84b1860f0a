//! `envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas`: a proxy decides by itself, out of what it was assigned.
//!
//! Each bucket that a stream reports has a lease on its key's meter, which covers all that its assignment can let pass (see
//! [`baton_core::limit::quota`]). A report settles what passed and is answered with the assignment that goes on. A stream that ends leaves its
//! leases to run out, since the proxy may go on with what it was assigned: what isn't reported by then counts as spent.

use super::descriptor;
use super::frame::{self, Messages};
use super::quota_wire::{
    Abandon, Action, Blanket, BucketAction, BucketId, BucketUsage, QuotaAssignment, QuotaResponse, Rule,
    Strategy, TokenBucket, UsageReports,
};
use super::wire::{Duration, Entry, RateLimitDescriptor};
use super::{NAMESPACE, namespace};
use crate::gate::{Class, Place};
use crate::http::Shared;
use crate::http::answer::Problem;
use crate::http::calls::anybody;
use crate::http::exchange::Exchange;
use crate::http2::Heard;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use baton_api::limits;
use baton_core::Name;
use baton_core::limit::Identity;
use baton_core::limit::quota::{Assignment, Quota};
use baton_engine::limit::{CheckCall, LendCall, LimitError, Wanted};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::unfold;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::header::HeaderValue;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch::Receiver;

/// Buckets of one stream. Of more it hears nothing: what the proxy does without an assignment is in its configuration.
const BUCKETS_MAX: usize = 4_096;
/// Buckets of one report that are settled at the store at a time.
const AT_ONCE: usize = 64;
/// For how many seconds it is known that a bucket isn't limited.
const UNLIMITED_S: u64 = 10;

pub(super) async fn stream_quotas(server: Arc<Shared>, mut request: Request) -> Response {
    let namespace = request.headers_mut().remove(NAMESPACE);
    let heard = request.extensions_mut().remove::<Heard>();
    let (mut exchange, body) = Exchange::begin(server, Route::StreamRateLimitQuotas, request);
    exchange.waits = true;
    let outcome = opened(&exchange, namespace.as_ref(), heard, body);
    exchange.end_as(outcome, frame::refusal)
}

fn opened(
    exchange: &Exchange,
    said: Option<&HeaderValue>,
    heard: Option<Heard>,
    body: Body,
) -> Result<Response, Problem> {
    exchange.same_site()?;
    let namespace = namespace(said)?.to_owned();
    let server = exchange.server.clone();
    if server.is_stopping() {
        return Err(Problem::not_ready("the server is stopping; use another one"));
    }
    let place = exchange.enter(Class::Watching)?;
    let stream = Stream {
        owner: server.engine.new_lease_id(),
        stopping: server.stopping.clone(),
        server,
        namespace,
        domain: None,
        buckets: HashMap::new(),
        messages: Messages::new(body),
        heard,
        began: Instant::now(),
        is_over: false,
        _place: place,
    };
    let frames = unfold(stream, async |mut stream| {
        let frame = stream.next().await?;
        Some((Ok::<_, Infallible>(frame), stream))
    });
    Ok(frame::respond(Body::new(StreamBody::new(frames))))
}

/// A proxy's stream.
struct Stream {
    server: Arc<Shared>,
    stopping: Receiver<bool>,
    namespace: String,
    /// Of the first report.
    domain: Option<String>,
    /// As whom its leases are held.
    owner: String,
    buckets: HashMap<BucketId, Bucket>,
    messages: Messages,
    heard: Option<Heard>,
    began: Instant,
    is_over: bool,
    _place: Place,
}

/// A bucket of the proxy's.
struct Bucket {
    limit: Name,
    key: String,
    identity: Identity,
    lease_id: String,
    quota: Quota,
}

impl Stream {
    /// What is sent next: assignments, and when it is over the status. Then nothing.
    async fn next(&mut self) -> Option<Frame<Bytes>> {
        if self.is_over {
            return None;
        }
        loop {
            let reports = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => None,
                reports = self.messages.next::<UsageReports>() => Some(reports),
            };
            let Some(reports) = reports else {
                return self.ends(Err(Problem::not_ready("the server is stopping; use another one")));
            };
            let answered = match reports {
                Ok(Some(reports)) => self.answer(reports).await,
                Ok(None) => return self.ends(Ok(())),
                Err(problem) => Err(problem),
            };
            match answered {
                Ok(response) if response.actions.is_empty() => {}
                Ok(response) => match frame::encoded(&response) {
                    Some(bytes) => return Some(Frame::data(bytes)),
                    None => return self.ends(Err(Problem::internal())),
                },
                Err(problem) => return self.ends(Err(problem)),
            }
        }
    }

    fn ends(&mut self, outcome: Result<(), Problem>) -> Option<Frame<Bytes>> {
        self.is_over = true;
        Some(Frame::trailers(frame::trailers(outcome.err().as_ref())))
    }

    async fn answer(&mut self, reports: UsageReports) -> Result<QuotaResponse, Problem> {
        if let Some(heard) = &self.heard {
            heard.note();
        }
        let domain = self.domain.get_or_insert(reports.domain.clone()).clone();
        if !reports.domain.is_empty() && reports.domain != domain {
            return Err(Problem::invalid("domain", "a stream is of one domain; open another one"));
        }
        let mut usages = HashMap::<_, (Bucket, BucketUsage)>::new();
        for (index, usage) in reports.usages.into_iter().enumerate() {
            let Some(id) = usage.bucket_id.clone() else {
                let field = format!("bucket_quota_usages[{index}].bucket_id");
                return Err(Problem::invalid(field, "a bucket's name is needed"));
            };
            if let Some((_, before)) = usages.get_mut(&id) {
                before.allowed = before.allowed.saturating_add(usage.allowed);
                before.denied = before.denied.saturating_add(usage.denied);
                continue;
            }
            let bucket = match self.buckets.remove(&id) {
                Some(bucket) => bucket,
                None if self.buckets.len() + usages.len() >= BUCKETS_MAX => continue,
                None => self.bucket(&domain, index, &id)?,
            };
            usages.insert(id, (bucket, usage));
        }
        // Without a place nothing is said: what was assigned goes on for a while, and what was reported is in the next report.
        let place = self.server.enter(Class::Work);
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (server, owner) = (self.server.clone(), self.owner.clone());
        let mut actions = Vec::new();
        let mut usages = usages.into_iter().peekable();
        while usages.peek().is_some() {
            let some = usages.by_ref().take(AT_ONCE);
            let settling = some.map(|(id, (mut bucket, usage))| {
                let (server, owner, may_ask) = (&server, &owner, place.is_ok());
                async move {
                    bucket.quota.reported(usage.allowed, usage.denied, now_ms);
                    let action =
                        if may_ask { bucket.settle(server, owner, &usage, now_ms).await } else { None };
                    (id, bucket, action)
                }
            });
            for (id, bucket, action) in join_all(settling).await {
                let is_kept = !matches!(action, Some(Action::Abandon(_)));
                if action.is_some() {
                    actions.push(BucketAction { bucket_id: Some(id.clone()), action });
                }
                if is_kept {
                    self.buckets.insert(id, bucket);
                }
            }
        }
        Ok(QuotaResponse { actions })
    }

    /// One that is heard of for the first time. Its names, in their order, are the limit's, and its values the key.
    fn bucket(&self, domain: &str, index: usize, id: &BucketId) -> Result<Bucket, Problem> {
        let entry = |(key, value): (&String, &Vec<u8>)| Entry { key: key.clone(), value: value.clone() };
        let entries = id.bucket.iter().map(entry).collect();
        let described = RateLimitDescriptor { entries, ..RateLimitDescriptor::default() };
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(Bucket {
            limit: descriptor::limit(&self.namespace, domain, index, &described)?,
            key: descriptor::key(&described.entries),
            identity: descriptor::identity(&described.entries),
            lease_id: self.server.engine.new_lease_id(),
            quota: Quota::new(now_ms),
        })
    }
}

impl Bucket {
    /// Settles what was reported, and says how it goes on. Nothing is said if that can't be found out, or a proxy can't have a part of this limit:
    /// what was assigned ends by itself then.
    async fn settle(
        &mut self,
        server: &Shared,
        owner: &str,
        usage: &BucketUsage,
        now_ms: u64,
    ) -> Option<Action> {
        let defined = server.engine.known_limit(&self.limit).await.ok()?;
        server.metrics.described(defined.is_some());
        let Some(defined) = defined else { return Some(blanket(Blanket::AllowAll, UNLIMITED_S)) };
        if self.quota.is_idle(now_ms) {
            return Some(Action::Abandon(Abandon {}));
        }
        if defined.definition.dry_run {
            self.count(server, usage.allowed).await;
            return Some(blanket(Blanket::AllowAll, UNLIMITED_S));
        }
        let message = self.quota.message(now_ms);
        let call = LendCall {
            key: self.key.clone(),
            identity: self.identity,
            owner: owner.to_owned(),
            lease_id: self.lease_id.clone(),
            sequence: message.sequence,
            spent: message.spent,
            kept: (message.kept > 0).then_some(message.kept),
            want: message.want,
            version: None,
            ttl_ms: message.ttl_ms,
        };
        let lent = server.engine.lend(&self.limit, &call).await.ok()?;
        self.lease_id = lent.lease_id;
        if lent.ttl_ms == 0 {
            return None;
        }
        Some(match self.quota.heard(lent.amount, lent.ttl_ms, now_ms) {
            Assignment::Nothing { ttl_s } => blanket(Blanket::DenyAll, ttl_s),
            Assignment::Rate { per_second, ttl_s } => {
                let tokens = u32::try_from(per_second).unwrap_or(u32::MAX);
                let bucket = TokenBucket {
                    max_tokens: tokens,
                    tokens_per_fill: Some(tokens),
                    fill_interval: Some(seconds(1)),
                };
                assigned(Rule::TokenBucket(bucket), ttl_s)
            }
        })
    }

    /// Of a limit that refuses nobody, what passed is counted as it comes.
    async fn count(&self, server: &Shared, allowed: u64) {
        if allowed == 0 {
            return;
        }
        let cost = allowed.min(*limits::COST.end());
        let call =
            CheckCall { limit: self.limit.clone(), key: self.key.clone(), cost, identity: self.identity };
        let wanted = Wanted { principal: anybody().to_string(), request_id: None, receipt: false };
        // It passed already; what can't be counted is missing in a count that decides nothing.
        drop::<Result<_, LimitError>>(server.engine.check_limits(&[call], &wanted).await);
    }
}

fn blanket(rule: Blanket, ttl_s: u64) -> Action {
    assigned(Rule::Blanket(rule as i32), ttl_s)
}

fn assigned(rule: Rule, ttl_s: u64) -> Action {
    let strategy = Some(Strategy { rule: Some(rule) });
    Action::Assign(QuotaAssignment { time_to_live: Some(seconds(ttl_s)), strategy })
}

fn seconds(seconds: u64) -> Duration {
    Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}
