//! A limit's definition.
//!
//! Layout: algorithm, limit, window, burst (0 for none), calendar (0 none, 1 day, 2 month) with its time zone, flags
//! (staggered 1, audit 2, dry run 4, optimistic 8, strict 16), mechanism, policy, purpose (0 for none), lease size (0 adapts), lease time
//! to live (0 default), local cap (0 for none), expected nodes (0 unknown), most keys, changed at, then how many overrides, each key
//! and limit. Version 2, which only limits have that are approximate for somebody or spread their counts, goes on with epsilon, low watermark (millionths) and time between
//! syncs, each one higher than it is, and 0 for none: nodes that don't know of those can still read all others. Then, if hot keys are not
//! delegated, what is done about them (split 1, pin 2, cap 3), and its number (0 and 0 if they are, and something follows). Last of all, if
//! those who aren't known have a mechanism of their own, that. A definition without either is read by versions that don't know it.

use super::calendar::{Calendar, CalendarUnit};
use super::mitigation::Mitigation;
use super::names::names;
use super::slack::Identity;
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::meter::{Algorithm, Reclaim};
use crate::record::{Bytes, WallTime};
use alloc::string::String;
use alloc::vec::Vec;

/// Overrides of one definition.
pub const OVERRIDES_MAX: usize = 1_000;
/// Keys with a meter of their own at a node, if nothing is said.
pub const KEYS_MAX: u64 = 1_000_000;

/// What a limit is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// What is counted.
    pub algorithm: Algorithm,
    /// How much in a window.
    pub limit: u64,
    /// Milliseconds. Of a calendar's unit, its longest.
    pub window_ms: u64,
    /// How much at once, for a bucket; the limit if none.
    pub burst: Option<u64>,
    /// Whether windows are days or months somewhere.
    pub calendar: Option<Calendar>,
    /// Whether every key's windows begin at a moment of their own.
    pub staggered: bool,
    /// Who decides.
    pub mechanism: Mechanism,
    /// Who decides checks of those who aren't known; if none, whoever decides the others.
    pub anonymous: Option<Mechanism>,
    /// What happens when it can't be decided.
    pub on_failure: Policy,
    /// What it is for; has chosen what wasn't said.
    pub purpose: Option<Purpose>,
    /// How much a lease has; adapts to what is used if none.
    pub lease_size: Option<u64>,
    /// How long a lease lives.
    pub lease_ttl_ms: Option<u64>,
    /// What becomes of a lease whose holder has gone.
    pub reclaim: Reclaim,
    /// Of an approximate limit: how much more than the limit may be issued, in millionths of it.
    pub epsilon: Option<u64>,
    /// Of an approximate limit: below how much of what isn't counted yet the store decides, in millionths of the limit.
    pub low_watermark: Option<u64>,
    /// Of an approximate limit: how often the store is told what was spent; follows what is used if none. Where counts spread: how often
    /// the other nodes are told.
    pub sync_ms: Option<u64>,
    /// What a node admits by itself in an outage, for each key and window.
    pub local_cap: Option<u64>,
    /// How many nodes share it, as far as its author knows.
    pub expected_nodes: Option<u64>,
    /// How many keys have a meter of their own; the others share one.
    pub keys_max: u64,
    /// Whether it only counts, and refuses nobody.
    pub dry_run: bool,
    /// Whether every decision is in a log before it is answered.
    pub audit: bool,
    /// Whether its author said that counts are as durable as the store makes them, which they always are: shown as it was said.
    pub is_strict: bool,
    /// What is done about keys that are hot.
    pub hot_key: Mitigation,
    /// When it was put; for display.
    pub changed_at: WallTime,
    /// Keys with a limit of their own, sorted.
    pub overrides: Vec<Override>,
}

/// A key's own limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// The key.
    pub key: String,
    /// How much in a window, and at once.
    pub limit: u64,
}

names! {
    /// Who decides.
    Mechanism {
        /// The store, every time.
        Central = 1 "central",
        /// Whoever holds a lease, without asking.
        Leased = 2 "leased",
        /// The node that owns the key decides, out of what was debited at the store.
        Owned = 3 "owned",
        /// A node decides out of slack, and tells the store every so often.
        Approximate = 4 "approximate",
        /// A node decides by what it knows of all nodes' counts, which spread between them; no store is asked.
        Gossip = 5 "gossip",
    }
}

names! {
    /// What happens when it can't be decided.
    Policy {
        /// Nothing is admitted.
        Closed = 1 "closed",
        /// Each node counts for itself, up to its share of the limit.
        ClosedLocal = 2 "closed_local",
        /// Each node admits up to its cap, and tells the store afterwards.
        Open = 3 "open",
        /// Each node has its share of what remained when the store was last heard of.
        Local = 4 "local",
        /// Each node has its share of what remained by the last snapshot, if that isn't too old.
        Snapshot = 5 "snapshot",
    }
}

names! {
    /// What a limit is for.
    Purpose {
        /// One-time codes, passwords.
        Security = 1 "security",
        /// Keeping strangers from doing harm.
        Abuse = 2 "abuse",
        /// Fairness among those who are known.
        Authenticated = 3 "authenticated",
        /// What is paid for.
        Billing = 4 "billing",
    }
}

impl Purpose {
    /// Whether every decision is in a log, where nothing is said and the store decides them: what is paid for can be accounted for.
    pub fn is_audited(self) -> bool {
        self == Self::Billing
    }

    /// What it chooses where nothing is said.
    pub fn preset(self) -> (Algorithm, Mechanism, Policy) {
        match self {
            Self::Security => (Algorithm::SlidingWindow, Mechanism::Central, Policy::ClosedLocal),
            Self::Abuse => (Algorithm::TokenBucket, Mechanism::Leased, Policy::Open),
            Self::Authenticated => (Algorithm::TokenBucket, Mechanism::Leased, Policy::Open),
            Self::Billing => (Algorithm::FixedWindow, Mechanism::Central, Policy::Snapshot),
        }
    }
}

const VERSION: u8 = 1;
const VERSION_RHYTHM: u8 = 2;
const STAGGERED: u8 = 1;
const AUDIT: u8 = 2;
const DRY_RUN: u8 = 4;
const OPTIMISTIC: u8 = 8;
/// Versions that don't know it take no notice of it.
const STRICT: u8 = 16;

impl Definition {
    /// One with nothing special about it: the store decides, and nobody else.
    pub fn plain(algorithm: Algorithm, limit: u64, window_ms: u64) -> Self {
        Self {
            algorithm,
            limit,
            window_ms,
            burst: None,
            calendar: None,
            staggered: true,
            mechanism: Mechanism::Central,
            anonymous: None,
            on_failure: Policy::Closed,
            purpose: None,
            lease_size: None,
            lease_ttl_ms: None,
            reclaim: Reclaim::Burn,
            epsilon: None,
            low_watermark: None,
            sync_ms: None,
            local_cap: None,
            expected_nodes: None,
            keys_max: KEYS_MAX,
            dry_run: false,
            audit: false,
            is_strict: false,
            hot_key: Mitigation::Delegate,
            changed_at: WallTime::default(),
            overrides: Vec::new(),
        }
    }

    /// The limit of a key.
    pub fn limit_of(&self, key: &str) -> u64 {
        let own = self.overrides.binary_search_by(|known| known.key.as_str().cmp(key));
        own.map_or(self.limit, |place| self.overrides[place].limit)
    }

    /// How much a key may use at once.
    pub fn capacity_of(&self, key: &str) -> u64 {
        let limit = self.limit_of(key);
        match self.burst {
            // A key with a limit of its own has bursts in the same proportion.
            Some(burst) if self.algorithm == Algorithm::TokenBucket => match limit == self.limit {
                true => burst,
                false => u64::try_from(u128::from(burst) * u128::from(limit) / u128::from(self.limit.max(1)))
                    .unwrap_or(u64::MAX)
                    .max(1),
            },
            _ => limit,
        }
    }

    /// Who decides, for each class that has a mechanism of its own.
    pub fn mechanisms(&self) -> impl Iterator<Item = Mechanism> {
        [Some(self.mechanism), self.anonymous].into_iter().flatten()
    }

    /// Whether it is this for anybody.
    pub fn is_ever(&self, mechanism: Mechanism) -> bool {
        self.mechanisms().any(|one| one == mechanism)
    }

    /// The definition that those follow who are of another class than the others; nothing if it is the same for all.
    pub fn own_of(&self, identity: Identity) -> Option<Self> {
        let mechanism = self.anonymous.filter(|_| identity == Identity::Anonymous)?;
        Some(Self { mechanism, ..self.clone() })
    }

    /// Whether two say the same; when they were put doesn't matter.
    pub fn says_the_same(&self, other: &Self) -> bool {
        Self { changed_at: other.changed_at, ..self.clone() } == *other
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
        let flags = flag(STAGGERED, self.staggered)
            | flag(AUDIT, self.audit)
            | flag(DRY_RUN, self.dry_run)
            | flag(OPTIMISTIC, self.reclaim == Reclaim::Drop)
            | flag(STRICT, self.is_strict);
        let (unit, zone) = match &self.calendar {
            None => (0, ""),
            Some(calendar) => (calendar.unit.number(), &*calendar.time_zone),
        };
        let has_rhythm = self.is_ever(Mechanism::Approximate) || self.is_ever(Mechanism::Gossip);
        let mut to = Encoder::new(if has_rhythm { VERSION_RHYTHM } else { VERSION })
            .byte(self.algorithm.letter() as u8)
            .number(self.limit)
            .number(self.window_ms)
            .number(self.burst.unwrap_or_default())
            .byte(unit)
            .bytes(zone.as_bytes())
            .byte(flags)
            .byte(self.mechanism.number())
            .byte(self.on_failure.number())
            .byte(self.purpose.map_or(0, Purpose::number))
            .number(self.lease_size.unwrap_or_default())
            .number(self.lease_ttl_ms.unwrap_or_default())
            .number(self.local_cap.unwrap_or_default())
            .number(self.expected_nodes.unwrap_or_default())
            .number(self.keys_max)
            .number(self.changed_at.0)
            .number(self.overrides.len() as u64);
        for Override { key, limit } in &self.overrides {
            to = to.bytes(key.as_bytes()).number(*limit);
        }
        if has_rhythm {
            for number in [self.epsilon, self.low_watermark, self.sync_ms] {
                to = to.number(number.map_or(0, |number| number.saturating_add(1)));
            }
        }
        let (which, number) = self.hot_key.numbers();
        if which != 0 || self.anonymous.is_some() {
            to = to.byte(which).number(number);
        }
        if let Some(mechanism) = self.anonymous {
            to = to.byte(mechanism.number());
        }
        to.finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let (version, mut from) = Decoder::versioned(value, VERSION_RHYTHM)?;
        let some = |number: u64| (number != 0).then_some(number);
        let letter = [from.byte()?];
        let letter = core::str::from_utf8(&letter).map_err(|_| Unreadable)?;
        let algorithm = Algorithm::of_letter(letter).ok_or(Unreadable)?;
        let (limit, window_ms, burst) = (from.number()?, from.number()?, some(from.number()?));
        let (unit, time_zone) = (from.byte()?, from.string()?);
        let calendar = match CalendarUnit::of_number(unit) {
            Some(unit) => Some(Calendar { unit, time_zone }),
            None if unit == 0 => None,
            None => return Err(Unreadable),
        };
        let flags = from.byte()?;
        let mechanism = Mechanism::of_number(from.byte()?)?;
        let on_failure = Policy::of_number(from.byte()?)?;
        let purpose = match from.byte()? {
            0 => None,
            number => Some(Purpose::of_number(number)?),
        };
        let mut definition = Self {
            algorithm,
            limit,
            window_ms,
            burst,
            calendar,
            staggered: flags & STAGGERED != 0,
            mechanism,
            anonymous: None,
            on_failure,
            purpose,
            lease_size: some(from.number()?),
            lease_ttl_ms: some(from.number()?),
            reclaim: if flags & OPTIMISTIC != 0 { Reclaim::Drop } else { Reclaim::Burn },
            epsilon: None,
            low_watermark: None,
            sync_ms: None,
            local_cap: some(from.number()?),
            expected_nodes: some(from.number()?),
            keys_max: from.number()?,
            dry_run: flags & DRY_RUN != 0,
            audit: flags & AUDIT != 0,
            is_strict: flags & STRICT != 0,
            hot_key: Mitigation::Delegate,
            changed_at: from.time()?,
            overrides: Vec::new(),
        };
        let overrides = from.number()?;
        if limit == 0 || window_ms == 0 || overrides > OVERRIDES_MAX as u64 {
            return Err(Unreadable);
        }
        for _ in 0..overrides {
            definition.overrides.push(Override { key: from.string()?, limit: from.number()? });
        }
        if version == VERSION_RHYTHM {
            definition.epsilon = from.number()?.checked_sub(1);
            definition.low_watermark = from.number()?.checked_sub(1);
            definition.sync_ms = from.number()?.checked_sub(1);
        }
        if !from.is_done() {
            definition.hot_key = Mitigation::of_numbers(from.byte()?, from.number()?)?;
        }
        if !from.is_done() {
            definition.anonymous = Some(Mechanism::of_number(from.byte()?)?);
        }
        from.finish()?;
        Ok(definition)
    }
}
