//! The bodies of `/v1/locks:acquireAll`: several locks at once, all or none (L16).

use crate::error::ErrorBody;
use crate::limits;
use crate::lock::{AcquireRequest, AcquireResponse, Metadata};
use crate::mode::LockMode;
use serde::{Deserialize, Serialize};

/// `POST /v1/locks:acquireAll`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcquireAllRequest {
    /// The locks: each at most once, in any order.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 16))]
    pub lock_keys: Vec<String>,
    /// Who asks: shown to others, checked on release.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub owner_id: String,
    /// How long each lease lasts if not renewed.
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_millis: u64,
    /// Whether to wait if someone else holds one of the locks. Nothing is held meanwhile.
    #[serde(default)]
    pub wait: bool,
    /// How long to wait at most, for all of them; without it, until granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 600_000))]
    pub wait_timeout_millis: Option<u64>,
    /// Makes a repeated call give the same answer. The server makes one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
    /// Shown in the status of each lock. At most 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Option<Metadata>,
    /// How long each lock stays closed to everybody if its lease runs out; not after a release.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 3_600_000))]
    pub lock_delay_millis: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(millis: &u64) -> bool {
    *millis == 0
}

impl AcquireAllRequest {
    /// Whether every field is within its limits, and no lock is named twice.
    pub fn check(&self) -> Result<(), ErrorBody> {
        let count = self.lock_keys.len();
        if !limits::BUNDLE_KEYS.contains(&count) {
            let (min, max) = (limits::BUNDLE_KEYS.start(), limits::BUNDLE_KEYS.end());
            return Err(ErrorBody::invalid(
                "lockKeys",
                format!("lockKeys must be {min} to {max}, not {count}"),
            ));
        }
        for (index, key) in self.lock_keys.iter().enumerate() {
            let field = format!("lockKeys[{index}]");
            limits::check_name(&field, key)?;
            if self.lock_keys[..index].contains(key) {
                return Err(ErrorBody::invalid(
                    &field,
                    format!("{field} is named twice; each lock once is enough"),
                ));
            }
        }
        self.of_each().check()
    }

    /// What is asked of each lock, and checked like it.
    fn of_each(&self) -> AcquireRequest {
        AcquireRequest {
            owner_id: self.owner_id.clone(),
            ttl_millis: self.ttl_millis,
            wait: self.wait,
            wait_timeout_millis: self.wait_timeout_millis,
            request_id: self.request_id.clone(),
            reentrant: false,
            metadata: self.metadata.clone(),
            mode: LockMode::Exclusive,
            permits: None,
            lock_delay_millis: self.lock_delay_millis,
        }
    }
}

/// Every lock is the caller's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AcquireAllResponse {
    /// One for each lock, in the order of `lockKeys`. Each is renewed and released by itself.
    pub grants: Vec<AcquireResponse>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(keys: &[&str]) -> AcquireAllRequest {
        AcquireAllRequest {
            lock_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            owner_id: "o".into(),
            ttl_millis: 1000,
            wait: false,
            wait_timeout_millis: None,
            request_id: None,
            metadata: None,
            lock_delay_millis: 0,
        }
    }

    #[test]
    fn one_to_sixteen_locks_each_of_them_once() {
        let many: Vec<_> = (0..17).map(|number| number.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(request(&["a"]).check().is_ok() && request(&many[..16]).check().is_ok());
        for (keys, field) in [
            (&[][..], "lockKeys"),
            (&many, "lockKeys"),
            (&["a", "b", "a"], "lockKeys[2]"),
            (&["a", ".."], "lockKeys[1]"),
            (&[""], "lockKeys[0]"),
        ] {
            assert_eq!(request(keys).check().unwrap_err().field.as_deref(), Some(field), "{keys:?}");
        }
    }

    #[test]
    fn everything_else_is_checked_as_for_one_lock() {
        let good = request(&["a"]);
        for (bad, field) in [
            (AcquireAllRequest { ttl_millis: 99, ..good.clone() }, "ttlMillis"),
            (AcquireAllRequest { owner_id: String::new(), ..good.clone() }, "ownerId"),
            (AcquireAllRequest { wait_timeout_millis: Some(600_001), ..good.clone() }, "waitTimeoutMillis"),
            (AcquireAllRequest { lock_delay_millis: 3_600_001, ..good.clone() }, "lockDelayMillis"),
            (AcquireAllRequest { request_id: Some(String::new()), ..good }, "requestId"),
        ] {
            assert_eq!(bad.check().unwrap_err().field.as_deref(), Some(field));
        }
    }

    #[test]
    fn how_a_lock_is_held_is_not_for_several_to_say() {
        for field in [r#""mode":"shared""#, r#""permits":2"#, r#""reentrant":true"#] {
            let body = format!(r#"{{"lockKeys":["a"],"ownerId":"a","ttlMillis":1000,{field}}}"#);
            assert!(serde_json::from_str::<AcquireAllRequest>(&body).is_err(), "{field}");
        }
    }
}
