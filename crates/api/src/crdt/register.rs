//! The bodies of `/v1/registers`.

use super::{CrdtKind, check_value, check_write, is_false};
use crate::error::ErrorBody;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// `PUT /v1/registers/{name}`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegisterWrite {
    /// Any JSON of at most 16 KiB, given back byte for byte.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub value: Box<RawValue>,
    /// From a read of a `multi-value` register: only the values that had been seen are replaced. Without it, all that this replica has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub context: Option<String>,
    /// Who writes: requests of different writers are different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub writer: Option<String>,
    /// Makes a repeated call count once at this replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

impl RegisterWrite {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_write(self.writer.as_ref(), self.request_id.as_ref(), self.context.as_ref())?;
        check_value("value", self.value.get())
    }
}

/// A register.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RegisterState {
    /// What it is called.
    pub register: String,
    /// `register` or `multi-value`.
    pub kind: CrdtKind,
    /// Whether it has a value; `null` is one.
    pub exists: bool,
    /// The last write's, as it was given; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value, required = false))]
    pub value: Option<Box<RawValue>>,
    /// Of a `multi-value` register: all that were written concurrently, the last one first. More than one is a conflict for its readers
    /// to settle, by a write with this `context`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<serde_json::Value>, required = false))]
    pub values: Vec<Box<RawValue>>,
    /// What was seen, for `after`; after a write, what has to be seen to have seen that.
    pub context: String,
    /// The write had been done before, and was only answered again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replayed: bool,
}
