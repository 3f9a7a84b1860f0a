//! The bodies of `/v1/counters`.

use super::{Amount, CrdtKind, check_write, is_false};
use crate::error::ErrorBody;
use serde::{Deserialize, Serialize};

/// The largest total of one writer.
const TOTAL_MAX: u64 = (1 << 53) - 1;

/// `POST /v1/counters/{name}`: either `add` or `total`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CounterWrite {
    /// How much to add; below zero to take, unless the counter only grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<Amount>,
    /// All that this `writer` ever added and took, instead of `add`: counts once, whichever replicas hear of it and how often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<CounterTotal>,
    /// Who writes: requests of different writers are different, and a `total` is its writer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub writer: Option<String>,
    /// Makes a repeated call count once at this replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

/// All that one writer ever did to a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CounterTotal {
    /// All it added.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub added: u64,
    /// All it took; nothing if absent.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub taken: u64,
}

impl CounterWrite {
    /// Whether every field is within its limits, and they go together.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_write(self.writer.as_ref(), self.request_id.as_ref(), None)?;
        match (self.add, self.total) {
            (Some(add), None) => add.check("add"),
            (None, Some(total)) => {
                let most = total.added.max(total.taken);
                crate::limits::check_number("total", most, 0..=TOTAL_MAX)?;
                match self.writer {
                    Some(_) => Ok(()),
                    None => Err(ErrorBody::invalid("writer", "a total needs the writer whose it is")),
                }
            }
            (None, None) => Err(ErrorBody::invalid("add", "either add or total is needed")),
            (Some(_), Some(_)) => Err(ErrorBody::invalid("total", "total can't be said together with add")),
        }
    }
}

/// A counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CounterState {
    /// What it is called.
    pub counter: String,
    /// `counter` or `grow-counter`.
    pub kind: CrdtKind,
    /// What it counts, as far as this replica has seen; 0 if it was never written.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub value: i128,
    /// What was seen, for `after`; after a write, what has to be seen to have seen that.
    pub context: String,
    /// The write had been done before, and was only answered again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replayed: bool,
}
