//! The bodies of `/v1/once` (L18).

use crate::error::ErrorBody;
use crate::limits;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// How long a result is kept, unless said otherwise: a day.
pub const RESULT_TTL_MILLIS_DEFAULT: u64 = 24 * 60 * 60 * 1000;

/// `POST /v1/once/{onceKey}`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimRequest {
    /// Who asks: shown to others while it works.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub owner_id: String,
    /// How long the claim lasts if it isn't renewed; then it passes on to the next caller.
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_millis: u64,
    /// Makes a repeated call give the same answer. The server makes one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
    /// How long to wait, while another caller is at it, for it to be done or to pass on; not at all if absent. When the
    /// time is over, or the server's cap on one call, the answer is that it still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 600_000))]
    pub wait_timeout_millis: Option<u64>,
}

impl ClaimRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("ownerId", &self.owner_id, limits::OWNER_BYTES)?;
        limits::check_number("ttlMillis", self.ttl_millis, limits::TTL_MILLIS)?;
        if let Some(wait) = self.wait_timeout_millis {
            limits::check_number("waitTimeoutMillis", wait, limits::WAIT_TIMEOUT_MILLIS)?;
        }
        match &self.request_id {
            Some(id) => limits::check_text("requestId", id, limits::REQUEST_ID_BYTES),
            None => Ok(()),
        }
    }
}

/// How far a key is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnceState {
    /// Somebody is at it.
    Running,
    /// It was done.
    Done,
}

/// What came of a claim.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClaimResponse {
    /// The key.
    pub once_key: String,
    /// Whether it is the caller's to do. If not, somebody else is at it, or it was done.
    pub first: bool,
    /// How far it is.
    pub state: OnceState,
    /// The claim's: grows with every claim of this key. Give it to the resource, and let the resource refuse lower ones.
    pub fencing_token: u64,
    /// Proves the claim, if it is the caller's. A secret: whoever has it can complete the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_token: Option<String>,
    /// Who is at it; absent when it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// When the claim passes on if it isn't renewed, or the result is forgotten: in milliseconds since the Unix epoch by
    /// the store's clock; for display.
    pub expires_at: u64,
    /// How long the claim lasts, if it is the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_millis: Option<u64>,
    /// When it is worth trying again, if somebody else is at it: when the claim would end if it isn't renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_millis: Option<u64>,
    /// When it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
    /// What came of it, as it was given; `null` if that was `null`, absent if it isn't done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value, required = false))]
    pub result: Option<Box<RawValue>>,
}

impl fmt::Debug for ClaimResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimResponse")
            .field("once_key", &self.once_key)
            .field("first", &self.first)
            .field("state", &self.state)
            .field("fencing_token", &self.fencing_token)
            .finish_non_exhaustive()
    }
}

/// `POST /v1/once/{onceKey}/complete`
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteRequest {
    /// From the claim.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub claim_token: String,
    /// What came of it: any JSON, at most 64 KiB, given back to everyone byte for byte.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub result: Box<RawValue>,
    /// How long the result is kept: a second to 30 days; a day if absent. Then the key is as new.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1000, maximum = 2_592_000_000_u64))]
    pub result_ttl_millis: Option<u64>,
}

/// A whole number, also if it is written as `1000.0`. Everywhere else the server puts such numbers right in the body's text,
/// but here that would change the result, which nobody may.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    let exact = number.as_f64().filter(|value| (0.0..EXACT_MAX).contains(value) && value.fract() == 0.0);
    let found = number.as_u64().or(exact.map(|value| value as u64));
    found.map(Some).ok_or_else(|| Error::custom("must be a whole number"))
}

/// Whole numbers below this are exact in every JSON reader.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

impl CompleteRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("claimToken", &self.claim_token, limits::CLAIM_TOKEN_BYTES)?;
        let (bytes, max) = (self.result.get().len(), limits::RESULT_BYTES_MAX);
        if bytes > max {
            let message = format!("result must have at most {max} bytes as JSON, not {bytes}");
            return Err(ErrorBody::invalid("result", message));
        }
        match self.result_ttl_millis {
            Some(kept) => limits::check_number("resultTtlMillis", kept, limits::RESULT_TTL_MILLIS),
            None => Ok(()),
        }
    }
}

/// The result is stored, now or by an earlier try.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CompleteResponse {
    /// Always `COMPLETED`.
    pub status: String,
    /// The key.
    pub once_key: String,
    /// The claim's.
    pub fencing_token: u64,
}

/// `POST /v1/once/{onceKey}/renew`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewClaimRequest {
    /// From the claim.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub claim_token: String,
    /// The claim then ends this long from now, or when it would have anyway: renewing never shortens.
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_millis: u64,
}

impl RenewClaimRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("claimToken", &self.claim_token, limits::CLAIM_TOKEN_BYTES)?;
        limits::check_number("ttlMillis", self.ttl_millis, limits::TTL_MILLIS)
    }
}

/// The claim was renewed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewClaimResponse {
    /// The key.
    pub once_key: String,
    /// When the claim now ends.
    pub expires_at: u64,
    /// The same as in the claim.
    pub fencing_token: u64,
}

/// `POST /v1/once/{onceKey}/fail`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailRequest {
    /// From the claim.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub claim_token: String,
}

impl FailRequest {
    /// Whether the token is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("claimToken", &self.claim_token, limits::CLAIM_TOKEN_BYTES)
    }
}

/// The claim was given up, now or by an earlier try: the next caller is first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FailResponse {
    /// Always `FAILED`.
    pub status: String,
    /// The key.
    pub once_key: String,
}

/// `GET /v1/once/{onceKey}` of a key that is claimed or done.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OnceStatus {
    /// The key.
    pub once_key: String,
    /// How far it is.
    pub state: OnceState,
    /// The claim's.
    pub fencing_token: u64,
    /// Who is at it; absent when it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// Since when somebody is at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<u64>,
    /// When it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
    /// When the claim passes on if it isn't renewed, or the result is forgotten.
    pub expires_at: u64,
    /// What came of it, if it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value, required = false))]
    pub result: Option<Box<RawValue>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(result: &str) -> CompleteRequest {
        serde_json::from_str(&format!(r#"{{"claimToken":"t","result":{result}}}"#)).unwrap()
    }

    #[test]
    fn a_result_is_kept_as_it_was_written() {
        for text in ["null", "1.0", "12345678901234567890123", r#"{"b":1, "a":[ ]}"#, r#""\u00e9""#] {
            assert_eq!(complete(text).result.get(), text);
        }
        assert!(
            serde_json::from_str::<CompleteRequest>(r#"{"claimToken":"t"}"#).is_err(),
            "there must be one"
        );
    }

    #[test]
    fn how_long_it_is_kept_may_be_written_with_a_point_and_the_result_stays_as_it_is() {
        let read = |ttl: &str| {
            let text = format!(r#"{{"claimToken":"t","result":{{"amount":10.0}},"resultTtlMillis":{ttl}}}"#);
            serde_json::from_str::<CompleteRequest>(&text)
        };
        for (ttl, expected) in
            [("5000", Some(5000)), ("5000.0", Some(5000)), ("5e3", Some(5000)), ("null", None)]
        {
            let request = read(ttl).unwrap();
            assert_eq!((request.result.get(), request.result_ttl_millis), (r#"{"amount":10.0}"#, expected));
        }
        for ttl in ["-1", "0.5", "1e300", "true", "\"5\""] {
            assert!(read(ttl).is_err(), "{ttl}");
        }
    }

    #[test]
    fn a_result_may_have_as_much_as_is_said() {
        let fits = format!("\"{}\"", "x".repeat(limits::RESULT_BYTES_MAX - 2));
        assert!(complete(&fits).check().is_ok());
        let over = format!("\"{}\"", "x".repeat(limits::RESULT_BYTES_MAX - 1));
        assert_eq!(complete(&over).check().unwrap_err().field.as_deref(), Some("result"));
    }

    #[test]
    fn a_claim_is_printed_without_its_token_and_a_null_result_is_a_result() {
        let text = r#"{"onceKey":"k","first":true,"state":"running","fencingToken":1,"expiresAt":2,"claimToken":"secret"}"#;
        let claim: ClaimResponse = serde_json::from_str(text).unwrap();
        assert!(!format!("{claim:?}").contains("secret") && claim.result.is_none());
    }
}
