//! What a node remembers of keys, and counts for them by itself, within bounds.
//!
//! Each limit has room of its own, so that the keys of one don't drive out those of another. Where there is no more room, what is only
//! remembered makes way, the older half of it; what counts in an outage, or is owed, never does.

use super::debts::Debts;
use super::repeats::Repeats;
use baton_core::meter::Meter;
use baton_core::{Key, Name};
use std::collections::HashMap;

/// Keys of all limits at once.
const KEYS_MAX: usize = 100_000;
/// Keys of one limit at once. Those beyond share its overflow meter, which is not among them.
const KEYS_OF_LIMIT_MAX: usize = 20_000;
/// A meter of one's own is kept this much longer than two windows.
const KEPT_MS: u64 = 60_000;
/// If nothing could make way, that isn't tried again for so long.
const CROWDED_MS: u64 = 1_000;

/// How long what was counted in an outage stays counted, after it was last used.
pub(super) fn kept_ms(window_ms: u64) -> u64 {
    window_ms.saturating_mul(2).saturating_add(KEPT_MS)
}

/// What a node knows of a key.
#[derive(Default)]
pub(super) struct Own {
    /// Since the last outage began.
    pub meter: Option<Meter>,
    /// What remained when the store was last heard of, and when that was.
    pub remained: Option<(u64, u64)>,
    /// What is owed for it is added to, until it is offered.
    pub debt: Option<u64>,
    /// What a node that is gone owed for it.
    pub left: u64,
    /// When the meter was last counted on.
    pub counted_ms: u64,
    pub used_ms: u64,
    pub window_ms: u64,
}

impl Own {
    /// Whether what was counted in an outage still matters.
    pub fn counts(&self, now_ms: u64) -> bool {
        self.meter.is_some() && now_ms < self.counted_ms.saturating_add(kept_ms(self.window_ms))
    }

    fn may_go(&self, now_ms: u64) -> bool {
        self.debt.is_none() && self.left == 0 && !self.counts(now_ms)
    }
}

/// All keys.
#[derive(Default)]
pub(super) struct Table {
    limits: HashMap<Name, HashMap<Key, Own>>,
    count: usize,
    crowded_until_ms: u64,
    pub debts: Debts,
    pub repeats: Repeats,
}

impl Table {
    pub fn get(&self, limit: &Name, place: &Key) -> Option<&Own> {
        self.limits.get(limit)?.get(place)
    }

    pub fn get_mut(&mut self, limit: &Name, place: &Key) -> Option<&mut Own> {
        self.limits.get_mut(limit)?.get_mut(place)
    }

    /// A key that has room, or needs none: see [`Table::has_room`].
    pub fn entry(&mut self, limit: &Name, place: &Key) -> &mut Own {
        if !self.limits.contains_key(limit) {
            self.limits.insert(limit.clone(), HashMap::new());
        }
        let keys = self.limits.get_mut(limit).expect("it is there now");
        if !keys.contains_key(place) {
            self.count += 1;
        }
        keys.entry(place.clone()).or_default()
    }

    /// Whether a key is known, or may be; others may have to make way for it. `coming` are about to be known too.
    pub fn has_room(&mut self, limit: &Name, place: &Key, coming: usize, now_ms: u64) -> bool {
        if self.get(limit, place).is_some() || self.fits(limit, coming) {
            return true;
        }
        if now_ms < self.crowded_until_ms {
            return false;
        }
        let is_limit_full = self.of(limit) + coming >= KEYS_OF_LIMIT_MAX;
        self.make_way(is_limit_full.then_some(limit), now_ms);
        let fits = self.fits(limit, coming);
        if !fits {
            self.crowded_until_ms = now_ms + CROWDED_MS;
        }
        fits
    }

    fn of(&self, limit: &Name) -> usize {
        self.limits.get(limit).map_or(0, HashMap::len)
    }

    fn fits(&self, limit: &Name, coming: usize) -> bool {
        self.count + coming < KEYS_MAX && self.of(limit) + coming < KEYS_OF_LIMIT_MAX
    }

    /// Forgets the older half of what is only remembered, of one limit or of all.
    fn make_way(&mut self, of: Option<&Name>, now_ms: u64) {
        let concerned = |limit: &Name| of.is_none_or(|of| of == limit);
        let keys =
            self.limits.iter().filter(|(limit, _)| concerned(limit)).flat_map(|(_, keys)| keys.values());
        let mut ages: Vec<_> = keys.filter(|own| own.may_go(now_ms)).map(|own| own.used_ms).collect();
        if ages.is_empty() {
            return;
        }
        let half = ages.len() / 2;
        let (_, median, _) = ages.select_nth_unstable(half);
        let median = *median;
        self.retain(|limit, own| !concerned(limit) || !own.may_go(now_ms) || own.used_ms > median);
    }

    /// Forgets what doesn't matter any more.
    pub fn forget_old(&mut self, now_ms: u64) {
        self.retain(|_, own| {
            !own.may_go(now_ms) || now_ms < own.used_ms.saturating_add(kept_ms(own.window_ms))
        });
        self.repeats.forget_old(now_ms);
    }

    fn retain(&mut self, keep: impl Fn(&Name, &Own) -> bool) {
        for (limit, keys) in &mut self.limits {
            keys.retain(|_, own| keep(limit, own));
        }
        self.limits.retain(|_, keys| !keys.is_empty());
        self.count = self.limits.values().map(HashMap::len).sum();
    }

    /// The keys of a limit.
    pub fn keys_of(&self, limit: &Name) -> impl Iterator<Item = (&Key, &Own)> {
        self.limits.get(limit).into_iter().flatten()
    }

    /// Limits that something is known of.
    pub fn limits(&self) -> impl Iterator<Item = &Name> {
        self.limits.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::limit::meter_key;

    fn remember(table: &mut Table, limit: &Name, key: usize, now_ms: u64) -> bool {
        let place = meter_key(limit, &key.to_string());
        let has_room = table.has_room(limit, &place, 0, now_ms);
        if has_room {
            table.entry(limit, &place).used_ms = now_ms;
        }
        has_room
    }

    fn knows(table: &Table, limit: &Name, key: usize) -> bool {
        table.get(limit, &meter_key(limit, &key.to_string())).is_some()
    }

    #[test]
    fn the_keys_of_one_limit_do_not_drive_out_those_of_another() {
        let (mut table, quiet, busy) = (Table::default(), Name::new("n", "quiet"), Name::new("n", "busy"));
        assert!(remember(&mut table, &quiet, 0, 0));
        for key in 0..3 * KEYS_OF_LIMIT_MAX {
            assert!(remember(&mut table, &busy, key, 1 + key as u64));
            assert!(table.of(&busy) <= KEYS_OF_LIMIT_MAX);
        }
        assert!(knows(&table, &quiet, 0), "although it is the oldest");
        assert!(knows(&table, &busy, 3 * KEYS_OF_LIMIT_MAX - 1) && !knows(&table, &busy, 0));
    }

    #[test]
    fn all_limits_together_have_a_bound_too_and_the_oldest_make_way() {
        let mut table = Table::default();
        let limits: Vec<_> = (0..10).map(|number| Name::new("n", &number.to_string())).collect();
        for key in 0..2 * KEYS_MAX {
            assert!(remember(&mut table, &limits[key % limits.len()], key, key as u64));
            assert!(table.count <= KEYS_MAX);
        }
        assert!(!knows(&table, &limits[0], 0) && knows(&table, &limits[9], 2 * KEYS_MAX - 1));
    }

    #[test]
    fn what_is_owed_or_counts_never_makes_way() {
        let (mut table, limit) = (Table::default(), Name::new("n", "l"));
        for key in 0..KEYS_OF_LIMIT_MAX {
            assert!(remember(&mut table, &limit, key, 0));
            table.entry(&limit, &meter_key(&limit, &key.to_string())).debt = Some(key as u64);
        }
        assert!(!remember(&mut table, &limit, KEYS_OF_LIMIT_MAX, 1));
        table.entry(&limit, &meter_key(&limit, "0")).debt = None;
        assert!(!remember(&mut table, &limit, KEYS_OF_LIMIT_MAX, 2), "it isn't looked for all the time");
        assert!(remember(&mut table, &limit, KEYS_OF_LIMIT_MAX, CROWDED_MS + 1));
        table.forget_old(u64::MAX);
        assert_eq!(table.count, KEYS_OF_LIMIT_MAX - 1);
    }
}
