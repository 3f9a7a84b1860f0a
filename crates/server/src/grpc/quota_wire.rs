//! The fields that are used of Envoy's published rate limit quota service v3, written by hand so that nothing is generated.
//!
//! A bucket's values may come from headers, as they are: bytes here, and sent back as they came.

use super::wire::Duration;
use prost::{Enumeration, Message, Oneof};
use std::collections::BTreeMap;

/// What a proxy has let pass since it said so last.
#[derive(Clone, PartialEq, Message)]
pub struct UsageReports {
    /// Whose configuration it is; need not be said again.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Of each bucket that has changed, or of all.
    #[prost(message, repeated, tag = "2")]
    pub usages: Vec<BucketUsage>,
}

/// Of one bucket.
#[derive(Clone, PartialEq, Message)]
pub struct BucketUsage {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    /// Requests that passed.
    #[prost(uint64, tag = "3")]
    pub allowed: u64,
    /// Requests that didn't.
    #[prost(uint64, tag = "4")]
    pub denied: u64,
}

/// Names a bucket.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct BucketId {
    /// In no order.
    #[prost(btree_map = "string, bytes", tag = "1")]
    pub bucket: BTreeMap<String, Vec<u8>>,
}

/// What a proxy is to do.
#[derive(Clone, PartialEq, Message)]
pub struct QuotaResponse {
    /// At least one.
    #[prost(message, repeated, tag = "1")]
    pub actions: Vec<BucketAction>,
}

/// About one bucket.
#[derive(Clone, PartialEq, Message)]
pub struct BucketAction {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    /// What to do.
    #[prost(oneof = "Action", tags = "2, 3")]
    pub action: Option<Action>,
}

/// What to do about a bucket.
#[derive(Clone, PartialEq, Oneof)]
pub enum Action {
    /// Let pass what this says.
    #[prost(message, tag = "2")]
    Assign(QuotaAssignment),
    /// Forget it until somebody asks of it again.
    #[prost(message, tag = "3")]
    Abandon(Abandon),
}

/// What may pass, and for how long.
#[derive(Clone, PartialEq, Message)]
pub struct QuotaAssignment {
    /// Whole seconds.
    #[prost(message, optional, tag = "2")]
    pub time_to_live: Option<Duration>,
    /// What.
    #[prost(message, optional, tag = "3")]
    pub strategy: Option<Strategy>,
}

/// Has nothing to say.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Abandon {}

/// What may pass.
#[derive(Clone, PartialEq, Message)]
pub struct Strategy {
    /// One of them.
    #[prost(oneof = "Rule", tags = "1, 3")]
    pub rule: Option<Rule>,
}

/// What may pass.
#[derive(Clone, PartialEq, Oneof)]
pub enum Rule {
    /// Everything or nothing.
    #[prost(enumeration = "Blanket", tag = "1")]
    Blanket(i32),
    /// What a bucket has.
    #[prost(message, tag = "3")]
    TokenBucket(TokenBucket),
}

/// Everything or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum Blanket {
    /// Everything.
    AllowAll = 0,
    /// Nothing.
    DenyAll = 1,
}

/// A bucket that is full when it begins.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TokenBucket {
    /// What it holds.
    #[prost(uint32, tag = "1")]
    pub max_tokens: u32,
    /// What comes in each interval.
    #[prost(message, optional, tag = "2")]
    pub tokens_per_fill: Option<u32>,
    /// Always a second here: Envoy takes two buckets for the same that differ in whole seconds only.
    #[prost(message, optional, tag = "3")]
    pub fill_interval: Option<Duration>,
}
