//! What a node holds and knows. It has a clock of its own, which starts anywhere.

use baton_core::limit::Definition;
use baton_core::limit::holder::{Holder, Known};
use baton_core::limit::purse::{Purse, Terms};
use baton_core::limit::share::Member;
use baton_core::limit::till::Till;
use baton_core::meter::{Claim, Meter, Rule, Take, charge};
use baton_core::{Group, Key};
use std::collections::BTreeMap;

/// What a node counted by itself matters for so much longer than two windows.
const KEPT_MS: u64 = 60_000;

/// A node, or a place where one may come to be.
#[derive(Default)]
pub struct Node {
    pub is_live: bool,
    /// How many there were at this place: what one of them sent isn't answered to another.
    pub life: u64,
    /// By which definition it counts.
    pub version: usize,
    /// Until when the store can't be reached.
    pub cut_until_us: u64,
    /// Whether it has noticed.
    pub knows_cut: bool,
    /// What its clock showed at the start.
    pub ahead_ms: u64,
    /// One for each key at most.
    pub held: BTreeMap<usize, Held>,
    pub held_before: u64,
    pub own: BTreeMap<usize, Own>,
    pub offered: u64,
    pub admitted: u64,
}

/// A key's purse, and who waits for it.
#[derive(Default)]
pub struct Held {
    pub till: Till,
    pub purse: Purse,
    pub known: Known,
    /// The row's name.
    pub row: String,
    /// By which definition it was given.
    pub version: usize,
    pub used_ms: u64,
    /// Those who wait.
    pub waiting: Vec<Waiting>,
}

/// A check that waits.
#[derive(Clone, Copy)]
pub struct Waiting {
    pub arrived_us: u64,
    /// How often it has.
    pub waits: usize,
}

impl Held {
    pub fn holder<'a>(&'a mut self, terms: &'a Terms) -> Holder<'a> {
        Holder { till: &self.till, purse: &mut self.purse, known: &mut self.known, terms }
    }
}

/// What a node counts by itself for a key.
#[derive(Default)]
pub struct Own {
    meter: Option<Meter>,
    counted_ms: u64,
    /// What remained when the store was last heard of.
    pub remained: Option<u64>,
    /// What the store doesn't know of.
    pub owed: u64,
    /// Of it, what was offered to the store, and as what: the same until it has answered.
    pub offered: Option<(u64, u64)>,
}

impl Node {
    pub fn now_ms(&self, at_us: u64) -> u64 {
        self.ahead_ms + at_us / 1_000
    }

    pub fn is_cut(&self, at_us: u64) -> bool {
        at_us < self.cut_until_us
    }

    /// All it held and knew is gone.
    pub fn crash(&mut self) {
        self.is_live = false;
        self.knows_cut = false;
        self.held.clear();
        self.own.clear();
    }

    /// Another one, in its place, which reads the definition as it is.
    pub fn come(&mut self, version: usize) {
        if !self.is_live {
            self.version = version;
            self.is_live = true;
            self.life += 1;
        }
    }

    /// Decides a check without the store, as the definition says.
    pub fn decide_alone(
        &mut self,
        key: usize,
        definition: &Definition,
        rule: &Rule,
        member: Member,
        now_ms: u64,
    ) -> bool {
        let Some(share) = member.share(definition, rule.clone()) else { return false };
        let own = self.own.entry(key).or_default();
        // That outage is long over: this one begins with what remained.
        if now_ms >= own.counted_ms + 2 * definition.window_ms + KEPT_MS {
            own.meter = None;
        }
        let before = own.meter.take().or_else(|| member.begin(definition, &share, own.remained, now_ms));
        let claim = Claim { key: Key::new(Group(0), []), rule: share, take: Take::Try(1), row: None };
        let Ok(effect) = charge(before, &claim, now_ms) else { return false };
        (own.meter, own.counted_ms) = (Some(effect.meter), now_ms);
        own.owed += effect.granted;
        effect.granted == 1
    }
}
