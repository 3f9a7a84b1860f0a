//! From a definition and a key to the rule of its meter.

use super::definition::Definition;
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
    /// The rule of a key's meter. `calendar` has the present window's begin and the next two, if windows are of a calendar; they
    /// may be off by a whole window, since the store's own clock chooses among them.
    pub fn rule(&self, key: &str, calendar: Option<[u64; 3]>) -> Rule {
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
