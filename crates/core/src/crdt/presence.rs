//! Who is there: a member is alive for its time to live after the newest refresh that this observer *received*.
//!
//! A refresh is a write of the member's own register. Observers compare no clocks: a refresh counts from when it came, on the
//! observer's own monotonic clock, and one that isn't newer than what is known counts for nothing, however often it comes.

use super::clock::Hlc;
use crate::record::Bytes;
use alloc::collections::BTreeMap;
use core::time::Duration;

/// The most members an observer follows. At the bound, further ones are not taken in until others are gone.
pub const MEMBERS_MAX: usize = 64 * 1024;

/// What one observer knows of members. Times are its own, monotonic.
#[derive(Clone, Debug, Default)]
pub struct Presence(BTreeMap<Bytes, Heard>);

#[derive(Clone, Debug)]
struct Heard {
    refreshed: Hlc,
    alive_until: Duration,
    /// How long it is remembered that older refreshes are stale.
    forget_at: Duration,
}

impl Presence {
    /// A refresh came, `now`. Whether it was news: a stale one is ignored.
    pub fn refresh(&mut self, member: &[u8], refreshed: Hlc, ttl: Duration, now: Duration) -> bool {
        let alive_until = now.saturating_add(ttl);
        // A member that has been away twice as long as it may is forgotten; a stale refresh of it could then come as news once.
        let forget_at = alive_until.saturating_add(ttl.saturating_mul(2));
        let is_full = self.0.len() >= MEMBERS_MAX;
        match self.0.get_mut(member) {
            Some(known) if refreshed <= known.refreshed => return false,
            Some(known) => *known = Heard { refreshed, alive_until, forget_at },
            None if is_full => return false,
            None => drop(self.0.insert(member.into(), Heard { refreshed, alive_until, forget_at })),
        }
        true
    }

    /// Whether the member is alive, `now`.
    pub fn is_alive(&self, member: &[u8], now: Duration) -> bool {
        self.0.get(member).is_some_and(|known| now < known.alive_until)
    }

    /// Who is alive, `now`.
    pub fn alive(&self, now: Duration) -> impl Iterator<Item = &Bytes> {
        self.0.iter().filter(move |(_, known)| now < known.alive_until).map(|(member, _)| member)
    }

    /// For how long the member is alive still, if nothing more is heard of it; nothing if it isn't.
    pub fn alive_for(&self, member: &[u8], now: Duration) -> Option<Duration> {
        let left = self.0.get(member)?.alive_until.saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }

    /// Who has been gone for long, and the newest refresh of each.
    pub fn forgettable(&self, now: Duration) -> impl Iterator<Item = (&Bytes, Hlc)> {
        let gone = self.0.iter().filter(move |(_, known)| now >= known.forget_at);
        gone.map(|(member, known)| (member, known.refreshed))
    }

    /// Whether nobody is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets go of what has been gone for long.
    pub fn forget(&mut self, now: Duration) {
        self.0.retain(|_, known| now < known.forget_at);
    }
}
