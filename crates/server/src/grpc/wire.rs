//! The fields that are used of Envoy's published rate limit service v3, written by hand so that nothing is generated.
//!
//! Text that comes from a client of Envoy's is bytes here: Envoy takes it from headers as it is, and what isn't UTF-8 must not make a
//! request unreadable, or whoever sends such a header would not be limited.

use prost::{Enumeration, Message};

/// May this request go on?
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    /// Whose configuration it is.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What it counts for: all of these, or none.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// How much it counts; 0 is not said.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// One thing that a request counts for.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    /// What makes it up.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// How much the request counts here.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether that is to be given back.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// A part of a descriptor.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// What kind of thing.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Which of its kind.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Whether it may.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    /// Over all descriptors.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// One for each descriptor, in their order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// For the client's answer.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
}

/// Yes or no.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Never sent.
    Unknown = 0,
    /// Yes.
    Ok = 1,
    /// No.
    OverLimit = 2,
}

/// How a descriptor stands.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    /// Whether it was the one that refused.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// Its limit, if it has one.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// What is left.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// When all of it is available again.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A limit.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimit {
    /// How much.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// In which time.
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// What it is called.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// A length of time that has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// Any other.
    Unknown = 0,
    /// 1 s
    Second = 1,
    /// 60 s
    Minute = 2,
    /// 60 min
    Hour = 3,
    /// 24 h, or a calendar's day
    Day = 4,
    /// A calendar's month
    Month = 5,
}

/// A length of time.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A header.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// What it says.
    #[prost(string, tag = "2")]
    pub value: String,
}
