//! Whether other nodes listen: what nobody hears isn't told.
//!
//! Every node says that it is there when it begins to listen, and again every [`HERE_EVERY`]. One that has heard of nobody else
//! for [`ALONE_AFTER`] tells nothing, until it does. If something was left out meanwhile it says so then: whoever came, or
//! was taken to be gone, hears of a gap, as of any other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How often a node says that it is there.
pub(super) const HERE_EVERY: Duration = Duration::from_secs(1);
/// Nodes of an older version are heard of whenever they look for what has expired: every second and a half at the latest.
const ALONE_AFTER: Duration = Duration::from_secs(6);

/// What a node knows of those who may listen.
pub(super) struct Others {
    /// When the last of them was heard of.
    heard_at: Mutex<Instant>,
    are_away: AtomicBool,
    left_out: AtomicBool,
}

impl Others {
    /// Nobody is taken to be away who had no time to speak.
    pub fn new(now: Instant) -> Self {
        let (are_away, left_out) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { heard_at: Mutex::new(now), are_away, left_out }
    }

    /// One of them is there, or may be. Says whether something was left out that would have been told.
    pub fn heard(&self, now: Instant) -> bool {
        let mut heard_at = self.heard_at.lock().expect("no panic while held");
        *heard_at = now;
        self.are_away.store(false, Ordering::SeqCst);
        self.left_out.swap(false, Ordering::SeqCst)
    }

    /// Looks whether it is long ago that one of them was heard of.
    pub fn look(&self, now: Instant) {
        let heard_at = self.heard_at.lock().expect("no panic while held");
        if now.saturating_duration_since(*heard_at) >= ALONE_AFTER {
            self.are_away.store(true, Ordering::SeqCst);
        }
    }

    /// Whether nobody would hear what is to be told now. Then it counts as left out.
    pub fn are_away(&self) -> bool {
        if !self.are_away.load(Ordering::SeqCst) {
            return false;
        }
        self.left_out.store(true, Ordering::SeqCst);
        // Somebody who came between these two didn't see that it was left out.
        self.are_away.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_told_once_nobody_was_heard_for_long_and_who_comes_then_hears_of_a_gap() {
        let begun = Instant::now();
        let others = Others::new(begun);
        assert!(!others.are_away(), "they had no time to speak");
        others.look(begun + ALONE_AFTER / 2);
        assert!(!others.are_away());
        assert!(!others.heard(begun + ALONE_AFTER / 2), "nothing was left out");
        others.look(begun + ALONE_AFTER);
        assert!(!others.are_away(), "somebody was heard since");
        others.look(begun + ALONE_AFTER * 3 / 2);
        assert!(others.are_away() && others.are_away());
        assert!(others.heard(begun + ALONE_AFTER * 2));
        assert!(!others.are_away());
        assert!(!others.heard(begun + ALONE_AFTER * 2), "it was said once");
    }

    #[test]
    fn who_comes_when_nothing_was_left_out_hears_of_no_gap() {
        let begun = Instant::now();
        let others = Others::new(begun);
        others.look(begun + ALONE_AFTER);
        assert!(!others.heard(begun + ALONE_AFTER));
        assert!(!others.are_away());
    }
}
