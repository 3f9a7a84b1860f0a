//! From a definition and a key to the rule of its meter.

use super::definition::{Definition, Mechanism};
use super::slack::{EPSILON, Identity, widened};
use crate::meter::{Edges, Rule};
use crate::record::Revision;
use xxhash_rust::xxh3::xxh3_64;

/// The key that all those share who come when there are as many as may have a meter of their own. No key that people give has a
/// control character.
pub fn overflow_key() -> &'static str {
    "\u{1}overflow"
}

/// A definition as it stands in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Defined {
    /// What it says.
    pub definition: Definition,
    /// The revision that put it: newer definitions have higher ones.
    pub version: Revision,
}

impl Defined {
    /// The definition that those follow who are of another class than the others; nothing if it is the same for all. What they count on
    /// is the same meter: only how much may be issued of it besides, and by whom, is their own.
    pub fn own_of(&self, identity: Identity) -> Option<Self> {
        let definition = self.definition.own_of(identity)?;
        Some(Self { definition, version: self.version })
    }

    /// The rule of a key's meter: of an approximate limit with what may be issued besides. `calendar` has the present window's begin and the next two, if windows are of a calendar; they
    /// may be off by a whole window, since the store's own clock chooses among them.
    pub fn rule(&self, key: &str, calendar: Option<[u64; 3]>) -> Rule {
        let rule = self.exact_rule(key, calendar);
        match self.definition.mechanism {
            Mechanism::Approximate => widened(rule, self.definition.epsilon.unwrap_or(EPSILON)),
            Mechanism::Central | Mechanism::Leased | Mechanism::Owned | Mechanism::Gossip => rule,
        }
    }

    /// The same without anything besides: what nodes divide among themselves while the store can't be asked.
    pub fn exact_rule(&self, key: &str, calendar: Option<[u64; 3]>) -> Rule {
        let definition = &self.definition;
        let window_ms = definition.window_ms;
        let edges = match calendar {
            Some(edges) => Edges::At(edges),
            None if definition.staggered => Edges::Every { offset_ms: xxh3_64(key.as_bytes()) % window_ms },
            None => Edges::Every { offset_ms: 0 },
        };
        Rule {
            version: self.version.0,
            algorithm: definition.algorithm,
            limit: definition.limit_of(key),
            window_ms,
            capacity: definition.capacity_of(key),
            edges,
            reclaim: definition.reclaim,
        }
    }
}
