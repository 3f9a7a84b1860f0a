//! A key's purse, as small as it can be (P12): a node may have a million of them.
//!
//! What all keys of a limit have in common is there once, a key that is short lies beside its purse, and what few keys need is
//! apart.

use baton_core::Name;
use baton_core::limit::holder::{Holder, Known, terms};
use baton_core::limit::narrow::U40;
use baton_core::limit::purse::{Purse, Terms};
use baton_core::limit::till::Till;
use baton_core::limit::{Defined, Definition, Identity};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// A key as long as this needs no memory of its own.
const SHORT_MAX: usize = 22;

/// What all keys of a limit have in common.
pub(super) struct Given {
    pub limit: Name,
    pub defined: Arc<Defined>,
    /// Who asked last.
    pub identity: Identity,
}

/// Whose a purse is.
pub(super) struct Whose {
    pub limit: Name,
    pub key: Box<str>,
    pub class: Identity,
}

/// For whom a check's purse is: all share that of most, unless those who aren't known have a mechanism of their own.
pub(super) fn class(definition: &Definition, identity: Identity) -> Identity {
    if definition.anonymous.is_some() { identity } else { Identity::default() }
}

/// One key's.
pub(super) struct Held {
    pub till: Till,
    pub purse: Purse,
    pub given: Arc<Given>,
    key: Text,
    /// What the store said last: what remained there, and when it is fresh again.
    remaining: U40,
    reset_at_ms: U40,
    rare: Option<Box<Rare>>,
    /// No other purse of this node has had it, but for one of four billion before.
    pub number: u32,
    /// When it was used last, in tenths of a second.
    used: u32,
    /// For whom it was made.
    pub class: Identity,
}

/// What few have.
#[derive(Default)]
struct Rare {
    known: Known,
    /// Told when an answer came, or none.
    answered: Option<Arc<Notify>>,
}

enum Text {
    Short { bytes: u8, text: [u8; SHORT_MAX] },
    Long(Box<str>),
}

impl Text {
    fn new(key: &str) -> Self {
        let mut text = [0; SHORT_MAX];
        match text.get_mut(..key.len()) {
            Some(part) => {
                part.copy_from_slice(key.as_bytes());
                Self::Short { bytes: key.len() as u8, text }
            }
            None => Self::Long(key.into()),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { bytes, text } => &text[..usize::from(*bytes)],
            Self::Long(text) => text.as_bytes(),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Short { .. } => std::str::from_utf8(self.as_bytes()).expect("it was made of a text"),
            Self::Long(text) => text,
        }
    }
}

impl Held {
    /// With nothing in it.
    pub fn new(key: &str, class: Identity, given: Arc<Given>, number: u32, now_ms: u64) -> Self {
        let (till, purse, key) = (Till::default(), Purse::default(), Text::new(key));
        let mut held = Self {
            till,
            purse,
            given,
            key,
            remaining: U40::default(),
            reset_at_ms: U40::default(),
            rare: None,
            number,
            used: 0,
            class,
        };
        held.use_at(now_ms);
        held
    }

    pub fn key_bytes(&self) -> &[u8] {
        self.key.as_bytes()
    }

    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    pub fn whose(&self) -> Whose {
        Whose { limit: self.given.limit.clone(), key: self.key().into(), class: self.class }
    }

    /// How it behaves, as far as it knows.
    pub fn terms(&self) -> Terms {
        let Given { defined, identity, .. } = &*self.given;
        terms(&defined.definition, self.key(), *identity).expect("nothing else is given a purse")
    }

    pub fn use_at(&mut self, now_ms: u64) {
        self.used = u32::try_from(now_ms / 100).unwrap_or(u32::MAX);
    }

    pub fn used_ms(&self) -> u64 {
        u64::from(self.used) * 100
    }

    /// The store said what remains there, and in how many milliseconds it is fresh again.
    pub fn hear(&mut self, remaining: u64, reset_ms: u64, now_ms: u64) {
        self.remaining = U40::of(remaining);
        self.reset_at_ms = U40::of(now_ms.saturating_add(reset_ms));
    }

    /// What is left, here and at the store.
    pub fn left(&self, now_ms: u64) -> u64 {
        self.remaining.get() + self.purse.balance(&self.till, now_ms)
    }

    /// In how many milliseconds all of it is available again.
    pub fn reset_ms(&self, now_ms: u64) -> u64 {
        self.reset_at_ms.get().saturating_sub(now_ms)
    }

    /// What the core says to do with it.
    pub fn with<T>(&mut self, terms: &Terms, act: impl FnOnce(&mut Holder<'_>) -> T) -> T {
        let mut known = self.rare.as_ref().map_or_else(Known::default, |rare| rare.known);
        let done = act(&mut Holder { till: &self.till, purse: &mut self.purse, known: &mut known, terms });
        if known.is_needed() || self.rare.is_some() {
            self.rare.get_or_insert_default().known = known;
            self.rare.take_if(|rare| rare.answered.is_none() && !rare.known.is_needed());
        }
        done
    }

    /// Another definition decides from now on.
    pub fn follow(&mut self, given: Arc<Given>) {
        self.given = given;
        self.rare.take_if(|rare| {
            rare.known = Known::default();
            rare.answered.is_none()
        });
    }

    /// Resolves when an answer came, or none.
    pub fn next_answer(&mut self) -> OwnedNotified {
        let answered = &mut self.rare.get_or_insert_default().answered;
        answered.get_or_insert_default().clone().notified_owned()
    }

    /// Whom to tell that an answer came, or none.
    pub fn who_waits(&mut self) -> Option<Arc<Notify>> {
        let answered = self.rare.as_mut()?.answered.take();
        self.rare.take_if(|rare| !rare.known.is_needed());
        answered
    }

    /// Whether there is nothing to look at: nothing is due, and nothing known that could be forgotten.
    pub fn is_quiet(&self, now_ms: u64) -> bool {
        self.till.is_quiet(now_ms) && self.rare.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purse_takes_little() {
        assert!(size_of::<Held>() <= 128, "{} bytes", size_of::<Held>());
    }

    #[test]
    fn a_key_is_what_it_was_however_long_it_is() {
        for key in ["", "k", "customer:123456", &"x".repeat(SHORT_MAX), &"ü".repeat(SHORT_MAX)] {
            assert_eq!(Text::new(key).as_str(), key);
        }
        assert!(matches!(Text::new(&"x".repeat(SHORT_MAX)), Text::Short { .. }));
        assert!(matches!(Text::new(&"x".repeat(SHORT_MAX + 1)), Text::Long(_)));
    }
}
