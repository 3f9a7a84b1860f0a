//! `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`: one check for all of a request's descriptors, all or none (A5).
//!
//! A descriptor without a limit is not limited. Two that mean the same key of the same limit count for it together.

use super::descriptor;
use super::frame;
use super::wire::{
    Code, DescriptorStatus, Duration, HeaderValue, RateLimit, RateLimitRequest, RateLimitResponse, Unit,
};
use super::{NAMESPACE, namespace};
use crate::gate::Class;
use crate::http::answer::Problem;
use crate::http::calls::anybody;
use crate::http::exchange::Exchange;
use crate::http::{Shared, quota};
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use baton_api::limits;
use baton_core::limit::{CalendarUnit, Definition};
use baton_engine::Failure;
use baton_engine::limit::{CheckCall, Checked, Denial, LimitError, Wanted};
use hyper::header::{self, RETRY_AFTER};
use std::sync::Arc;

/// How often a check is begun again because a limit was removed under it.
const ROUNDS_MAX: usize = 4;

pub(super) async fn should_rate_limit(server: Arc<Shared>, mut request: Request) -> Response {
    let namespace = request.headers_mut().remove(NAMESPACE);
    let (exchange, body) = Exchange::begin(server, Route::ShouldRateLimit, request);
    let outcome = decided(&exchange, namespace.as_ref(), body).await;
    exchange.end_as(outcome.map(|response| frame::answer(&response)), frame::refusal)
}

async fn decided(
    exchange: &Exchange,
    said: Option<&header::HeaderValue>,
    body: Body,
) -> Result<RateLimitResponse, Problem> {
    exchange.same_site()?;
    let server = &exchange.server;
    let namespace = namespace(said)?;
    let request: RateLimitRequest = frame::read(body, server.body_within).await?;
    let asked = Asked::read(namespace, &request)?;
    if server.is_stopping() {
        return Err(Problem::not_ready("the server is stopping; use another one"));
    }
    let _place = exchange.enter(Class::Work)?;
    for _ in 0..ROUNDS_MAX {
        match asked.check(server).await {
            // It was there a moment ago. Nothing was counted, and without it there is less to ask.
            Err(LimitError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(found) => {
                asked.count(server, &found);
                return Ok(asked.answer(&found));
            }
        }
    }
    Err(LimitError::Failed(Failure::Overloaded).into())
}

/// What is asked for.
struct Asked {
    /// One for each key of a limit.
    calls: Vec<CheckCall>,
    /// For each descriptor, which of the calls it counts for.
    descriptors: Vec<usize>,
}

/// What was found of each call; nothing of those without a limit, and of those that weren't asked for because another refused.
struct Found {
    is_limited: Vec<bool>,
    checks: Vec<Option<Checked>>,
    refused: Option<(usize, Denial)>,
}

impl Asked {
    fn read(namespace: &str, request: &RateLimitRequest) -> Result<Self, Problem> {
        let (count, range) = (request.descriptors.len(), limits::CHECKS);
        if !range.contains(&count) {
            let message =
                format!("there must be {} to {} descriptors, not {count}", range.start(), range.end());
            return Err(Problem::invalid("descriptors", message));
        }
        let mut asked = Self { calls: Vec::with_capacity(count), descriptors: Vec::with_capacity(count) };
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            let limit = descriptor::limit(namespace, &request.domain, index, descriptor)?;
            let cost = descriptor::cost(request, index, descriptor)?;
            let key = descriptor::key(&descriptor.entries);
            let same = asked.calls.iter().position(|call| call.limit == limit && call.key == key);
            let place = match same {
                Some(place) => {
                    let cost = asked.calls[place].cost + cost;
                    limits::check_number(&format!("descriptors[{index}].hits_addend"), cost, limits::COST)?;
                    asked.calls[place].cost = cost;
                    place
                }
                None => {
                    let identity = descriptor::identity(&descriptor.entries);
                    asked.calls.push(CheckCall { limit, key, cost, identity });
                    asked.calls.len() - 1
                }
            };
            asked.descriptors.push(place);
        }
        Ok(asked)
    }

    /// What counts is one check. What only looks is looked at before: beside what counts, a look refuses nothing.
    async fn check(&self, server: &Shared) -> Result<Found, LimitError> {
        let mut is_limited = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            is_limited.push(server.engine.has_limit(&call.limit).await?);
        }
        let mut found = Found { checks: vec![None; self.calls.len()], is_limited, refused: None };
        for looks in [true, false] {
            let places: Vec<_> = (0..self.calls.len())
                .filter(|place| found.is_limited[*place] && (self.calls[*place].cost == 0) == looks)
                .collect();
            if places.is_empty() || found.refused.is_some() {
                continue;
            }
            let calls: Vec<_> = places.iter().map(|place| self.calls[*place].clone()).collect();
            let wanted = Wanted { principal: anybody().to_string(), request_id: None, receipt: false };
            let answered = server.engine.check_limits(&calls, &wanted).await?;
            let refused =
                answered.refused.and_then(|(index, denial)| Some((answered.indices.get(index)?, denial)));
            found.refused = refused.map(|(index, denial)| (places[*index], denial));
            for (index, checked) in answered.indices.iter().zip(answered.checks) {
                found.checks[places[*index]] = Some(checked);
            }
        }
        Ok(found)
    }

    fn count(&self, server: &Shared, found: &Found) {
        for place in &self.descriptors {
            server.metrics.described(found.is_limited[*place]);
        }
    }

    fn answer(&self, found: &Found) -> RateLimitResponse {
        let status = |place: &usize| {
            let is_refused = found.refused.is_some_and(|(refused, _)| refused == *place);
            let code = if is_refused { Code::OverLimit } else { Code::Ok } as i32;
            match &found.checks[*place] {
                Some(checked) => shown(code, self.calls[*place].limit.key(), checked),
                None => DescriptorStatus { code, ..DescriptorStatus::default() },
            }
        };
        let checks = self.calls.iter().zip(&found.checks);
        let named = checks.filter_map(|(call, checked)| Some((call.limit.key(), checked.as_ref()?)));
        let mut headers: Vec<_> = quota::fields(named)
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| header_value(name, text))
            .collect();
        if let Some((_, Denial { retry_after_ms: Some(millis), .. })) = found.refused {
            headers.push(header_value(RETRY_AFTER.as_str(), millis.div_ceil(1000).to_string()));
        }
        let overall = if found.refused.is_some() { Code::OverLimit } else { Code::Ok };
        RateLimitResponse {
            overall_code: overall as i32,
            statuses: self.descriptors.iter().map(status).collect(),
            response_headers_to_add: headers,
        }
    }
}

fn header_value(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.into(), value }
}

fn shown(code: i32, name: &str, checked: &Checked) -> DescriptorStatus {
    let most = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    DescriptorStatus {
        code,
        current_limit: Some(RateLimit {
            requests_per_unit: most(checked.capacity),
            unit: unit(&checked.defined.definition) as i32,
            name: name.into(),
        }),
        limit_remaining: most(checked.remaining),
        duration_until_reset: Some(Duration {
            seconds: (checked.reset_ms / 1000).try_into().unwrap_or(i64::MAX),
            nanos: (checked.reset_ms % 1000 * 1_000_000).try_into().unwrap_or_default(),
        }),
    }
}

fn unit(definition: &Definition) -> Unit {
    match (&definition.calendar, definition.window_ms) {
        (Some(calendar), _) => match calendar.unit {
            CalendarUnit::Day => Unit::Day,
            CalendarUnit::Month => Unit::Month,
        },
        (None, 1_000) => Unit::Second,
        (None, 60_000) => Unit::Minute,
        (None, 3_600_000) => Unit::Hour,
        (None, 86_400_000) => Unit::Day,
        (None, _) => Unit::Unknown,
    }
}
