//! What a limit is defined as.

use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[doc = $doc:literal])+ $type:ident { $($(#[doc = $what:literal])+ $variant:ident,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $type {
            $($(#[doc = $what])+ $variant,)+
        }
    };
}

words! {
    /// What is counted.
    Algorithm {
        /// A level that leaks at the rate; `burst` at once.
        TokenBucket,
        /// What came in this window, and of the last one as much as still overlaps.
        SlidingWindow,
        /// What came in this window.
        FixedWindow,
        /// What came within the last window, exactly; `limit` at most 1,000.
        SlidingLog,
        /// What is in use now: every check takes a place, with a lease; `limit` at most 1,000.
        InFlight,
    }
}

words! {
    /// Who decides.
    Mechanism {
        /// The store, every check.
        Central,
        /// Whoever holds a lease, out of what was debited before.
        Leased,
        /// The node that owns the key, out of what was debited before; the others forward to it.
        Owned,
        /// A node, out of slack, of which the store is told every so often; `epsilon` of the limit may pass besides.
        Approximate,
        /// A node, by counts that spread between nodes; no store is asked. For `fixed_window` and `sliding_window`.
        Gossip,
    }
}

words! {
    /// Whether somebody is known.
    Identity {
        /// Not known: gets little slack of an approximate limit, and is decided by `anonymousMechanism` if there is one.
        Anonymous,
        /// Known: gets more, and is decided by `mechanism`.
        Authenticated,
    }
}

/// A part of something, as a number from 0 to 1, exact to a millionth. What is read may be anything: [`check`](Self::check) says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fraction(i64);

impl Fraction {
    const ONE: i64 = 1_000_000;

    /// So many millionths.
    pub fn of_millionths(millionths: u64) -> Self {
        Self(i64::try_from(millionths).unwrap_or(i64::MAX))
    }

    /// In millionths.
    pub fn millionths(self) -> u64 {
        u64::try_from(self.0).unwrap_or_default()
    }

    /// Whether it is from 0 to 1.
    pub fn check(self, field: &str) -> Result<(), ErrorBody> {
        match (0..=Self::ONE).contains(&self.0) {
            true => Ok(()),
            false => {
                Err(ErrorBody::invalid(field, format!("{field} must be a part from 0 to 1, such as 0.01")))
            }
        }
    }
}

impl Serialize for Fraction {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.0 as f64 / Self::ONE as f64)
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let part = f64::deserialize(from)?;
        // What is no number is out of range too.
        Ok(Self(if part.is_nan() { -1 } else { (part * Self::ONE as f64).round() as i64 }))
    }
}

words! {
    /// What happens when the store can't be asked.
    FailurePolicy {
        /// Nothing is admitted.
        Closed,
        /// Each node counts for itself, up to its share of the limit.
        ClosedLocal,
        /// Each node admits up to `localCap` in a window.
        Open,
        /// Each node has its share of what remained when the store was last heard of.
        Local,
        /// As `local`, of what remained by the key's last snapshot, one a minute; without one, or with one that is older than 5 minutes,
        /// nothing is admitted.
        Snapshot,
    }
}

words! {
    /// What a limit is for: chooses what isn't said.
    Purpose {
        /// One-time codes, passwords.
        Security,
        /// Keeping strangers from doing harm.
        Abuse,
        /// Fairness among those who are known.
        Authenticated,
        /// What is paid for.
        Billing,
    }
}

words! {
    /// Windows of the calendar.
    CalendarUnit {
        /// From midnight to midnight.
        Day,
        /// From the first to the first.
        Month,
    }
}

words! {
    /// What becomes of a lease whose holder has gone.
    Reclaim {
        /// It counts as spent when it ends.
        Safe,
        /// It is available again when it ends, although it may have been spent.
        Optimistic,
    }
}

words! {
    /// How durable counts are.
    Durability {
        /// As durable as the store makes a commit, before anybody hears yes.
        Strict,
    }
}

words! {
    /// What is done about keys that are checked far more than others.
    HotKey {
        /// Every node decides them, out of its own lease; of `owned` limits.
        Delegate,
        /// `hotKeyParts` nodes decide them, and the others forward to these; of `owned` limits.
        Split,
        /// A node that is kept for hot keys decides them; of `owned` limits.
        Pin,
        /// No node lets through more than `hotKeyCap` checks a second.
        Cap,
    }
}

/// `PUT /v1/limits/{name}`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitDefinition {
    /// How much a key may use in a window.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000_000_u64))]
    pub limit: u64,
    /// The window's length; not with `calendar`, which has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 31_622_400_000_u64))]
    pub window_millis: Option<u64>,
    /// What is counted; `token_bucket` if neither this nor a `purpose` says otherwise, `sliding_window` with `gossip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// How much a token bucket holds; the limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000_000_u64))]
    pub burst: Option<u64>,
    /// Who decides; `central` if neither this nor a `purpose` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// Who decides checks of those who aren't known (`identity` is `anonymous`); `mechanism` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_mechanism: Option<Mechanism>,
    /// What happens when the store can't be asked; `closed` if neither this nor a `purpose` says otherwise. Not with `gossip`, which asks none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<FailurePolicy>,
    /// What it is for: chooses what isn't said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// Windows of the calendar, for a fixed window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<CalendarUnit>,
    /// Whose calendar, as in the time zone database; `UTC` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 64))]
    pub time_zone: Option<String>,
    /// Whether every key's windows begin at a moment of their own, so that not all begin at once; `true` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staggered: Option<bool>,
    /// How much a lease has; adapts to what is used if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000))]
    pub lease_size: Option<u64>,
    /// How long a lease, or a place in flight, lives if nobody renews it; 10 s if absent, never longer than the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 3_600_000))]
    pub lease_ttl_millis: Option<u64>,
    /// What becomes of a lease whose holder has gone; `safe` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    /// How much more than the limit may pass of an approximate one, as a part of it; 0.01 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0, maximum = 1))]
    pub epsilon: Option<Fraction>,
    /// When less than this part of an approximate limit isn't counted yet, the store decides every check; 0.2 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0, maximum = 1))]
    pub low_watermark: Option<Fraction>,
    /// How often the store is told what was spent of an approximate limit; if absent every 500 ms, 100 ms for a busy key and 2 s for a
    /// quiet one. Of a `gossip` limit, how often the other nodes are told what was counted; 100 ms if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 10, maximum = 60_000))]
    pub sync_millis: Option<u64>,
    /// What a node admits by itself for a key and a window in an outage, with `open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000_000_u64))]
    pub local_cap: Option<u64>,
    /// How many nodes share it, for when that can't be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000))]
    pub expected_nodes: Option<u64>,
    /// How many keys have a count of their own at a node; those beyond share one. 1,000,000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000_000))]
    pub max_keys: Option<u64>,
    /// What is done about keys that are checked far more than others; `delegate` if absent and `owned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_key: Option<HotKey>,
    /// How many nodes decide a hot key, with `split`; 4 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 2, maximum = 64))]
    pub hot_key_parts: Option<u64>,
    /// How many checks of a hot key a node lets through in a second, with `cap`; 1,000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000))]
    pub hot_key_cap: Option<u64>,
    /// Counts and reports, and refuses nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Whether every decision is in a log before it is answered. `true` if absent with the purpose `billing`, where the store decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<bool>,
    /// How durable counts are: `strict`, which they always are, whether or not it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Keys with a limit of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub overrides: Vec<LimitOverride>,
}

/// A key with a limit of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitOverride {
    /// The key.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// How much it may use in a window.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000_000_u64))]
    pub limit: u64,
}

impl LimitDefinition {
    /// One that says how much in which time, and leaves the rest to what is usual.
    pub fn new(limit: u64, window_millis: u64) -> Self {
        Self {
            limit,
            window_millis: Some(window_millis),
            algorithm: None,
            burst: None,
            mechanism: None,
            anonymous_mechanism: None,
            on_failure: None,
            purpose: None,
            calendar: None,
            time_zone: None,
            staggered: None,
            lease_size: None,
            lease_ttl_millis: None,
            reclaim: None,
            epsilon: None,
            low_watermark: None,
            sync_millis: None,
            local_cap: None,
            expected_nodes: None,
            max_keys: None,
            hot_key: None,
            hot_key_parts: None,
            hot_key_cap: None,
            dry_run: false,
            audit: None,
            durability: None,
            overrides: Vec::new(),
        }
    }

    /// Whether every field is within its limits. Whether they fit each other depends on the purpose: the server says that.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_number("limit", self.limit, limits::LIMIT)?;
        for (field, number, range) in [
            ("windowMillis", self.window_millis, limits::WINDOW_MILLIS),
            ("burst", self.burst, limits::LIMIT),
            ("leaseSize", self.lease_size, 1..=1_000_000),
            ("leaseTtlMillis", self.lease_ttl_millis, limits::LEASE_TTL_MILLIS),
            ("syncMillis", self.sync_millis, limits::SYNC_MILLIS),
            ("localCap", self.local_cap, limits::LIMIT),
            ("expectedNodes", self.expected_nodes, 1..=10_000),
            ("maxKeys", self.max_keys, 1..=10_000_000),
            ("hotKeyParts", self.hot_key_parts, 2..=64),
            ("hotKeyCap", self.hot_key_cap, 1..=1_000_000),
        ] {
            number.map_or(Ok(()), |number| limits::check_number(field, number, range))?;
        }
        for (field, part) in [("epsilon", self.epsilon), ("lowWatermark", self.low_watermark)] {
            part.map_or(Ok(()), |part| part.check(field))?;
        }
        if let Some(zone) = &self.time_zone {
            limits::check_text("timeZone", zone, limits::TIME_ZONE_BYTES)?;
        }
        if self.overrides.len() > limits::OVERRIDES_MAX {
            let message = format!("overrides must be at most {}", limits::OVERRIDES_MAX);
            return Err(ErrorBody::invalid("overrides", message));
        }
        for (index, own) in self.overrides.iter().enumerate() {
            let field = |name: &str| format!("overrides[{index}].{name}");
            limits::check_text(&field("key"), &own.key, limits::KEY_BYTES)?;
            limits::check_number(&field("limit"), own.limit, limits::LIMIT)?;
            if self.overrides[..index].iter().any(|other| other.key == own.key) {
                return Err(ErrorBody::invalid(field("key"), "a key can have one limit of its own"));
            }
        }
        Ok(())
    }
}
