//! The bodies of `/v1/sets`.

use super::{check_edits, check_elements, check_write, is_false};
use crate::error::ErrorBody;
use serde::{Deserialize, Serialize};

/// `POST /v1/sets/{name}`: 1 to 40 elements in all.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SetWrite {
    /// Elements to put in: each 1 to 1024 bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Elements to take out, none of which is in `add`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// From a read: only what that had seen is removed. Without it, all that this replica has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub context: Option<String>,
    /// Who writes: requests of different writers are different.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub writer: Option<String>,
    /// Makes a repeated call count once at this replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

impl SetWrite {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_write(self.writer.as_ref(), self.request_id.as_ref(), self.context.as_ref())?;
        check_edits("add", self.add.len() + self.remove.len())?;
        check_elements("", &self.add, &self.remove)
    }
}

/// A set was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SetWritten {
    /// What it is called.
    pub set: String,
    /// For `after`: what has to be seen to have seen this write.
    pub context: String,
    /// It had been done before, and was only answered again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replayed: bool,
}

/// Some elements of a set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SetPage {
    /// What it is called.
    pub set: String,
    /// In the order of their bytes.
    pub elements: Vec<String>,
    /// What was seen: for a removal of just that, and for `after`.
    pub context: String,
    /// For the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What a watch tells of a set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SetChange {
    /// What it is called.
    pub set: String,
    /// Elements that are in it now.
    pub added: Vec<String>,
    /// Elements that aren't any more.
    pub removed: Vec<String>,
    /// What was seen then.
    pub context: String,
}
