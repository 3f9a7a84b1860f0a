//! Clocks that are behind, ahead, and not shared.

use crate::crdt::clock::{Clock, DRIFT_MAX, Hlc, Skewed, early_by};
use crate::crdt::presence::Presence;
use core::time::Duration;
use proptest::prelude::*;

const DRIFT_MS: u64 = DRIFT_MAX.as_millis() as u64;

proptest! {
    #[test]
    fn a_clock_only_goes_forward_and_is_after_all_it_saw(walls in proptest::collection::vec((0..1000_u64, 0..1000_u64), 1..50)) {
        let (mut clock, mut last) = (Clock::default(), Hlc::default());
        for (wall, seen) in walls {
            let seen = Hlc { ms: seen, count: 3 };
            clock.observe(seen);
            let now = clock.tick(wall).unwrap();
            prop_assert!(now > last && now > seen && now.ms >= wall);
            last = now;
        }
    }
}

#[test]
fn a_wall_clock_far_behind_what_was_seen_is_not_used() {
    let mut clock = Clock::default();
    clock.observe(Hlc { ms: 1_000_000, count: 7 });
    let behind = Duration::from_millis(DRIFT_MS + 1);
    assert_eq!(clock.tick(1_000_000 - DRIFT_MS - 1), Err(Skewed { behind }));
    assert_eq!(clock.tick(1_000_000 - DRIFT_MS), Ok(Hlc { ms: 1_000_000, count: 8 }));
    assert_eq!(clock.tick(1_000_001), Ok(Hlc { ms: 1_000_001, count: 0 }));
}

#[test]
fn a_count_that_is_full_goes_on_in_the_next_millisecond() {
    let mut clock = Clock::default();
    clock.observe(Hlc { ms: 5, count: u32::MAX });
    assert_eq!(clock.tick(5), Ok(Hlc { ms: 6, count: 0 }));
}

#[test]
fn what_is_far_ahead_waits_until_its_time_is_near() {
    let ahead = Hlc { ms: 100_000 + DRIFT_MS, count: 0 };
    assert_eq!(early_by(ahead, 100_000), None);
    assert_eq!(early_by(ahead, 99_990), Some(Duration::from_millis(10)));
    assert_eq!(early_by(Hlc::default(), 0), None);
}

#[test]
fn a_member_is_alive_for_its_time_after_the_newest_refresh_that_came() {
    let (ttl, at) = (Duration::from_secs(10), Duration::from_secs);
    let time = |ms| Hlc { ms, count: 0 };
    let mut seen = Presence::default();
    assert!(seen.refresh(b"a", time(500), ttl, at(0)));
    assert!(seen.is_alive(b"a", at(9)) && !seen.is_alive(b"a", at(10)));
    // The same refresh, or an older one, by a detour: nothing new.
    assert!(!seen.refresh(b"a", time(500), ttl, at(5)) && !seen.refresh(b"a", time(400), ttl, at(5)));
    assert!(!seen.is_alive(b"a", at(10)));
    // A newer one counts from when it came, whatever its own clock says.
    assert!(seen.refresh(b"a", time(501), ttl, at(20)));
    assert!(seen.is_alive(b"a", at(29)));
    assert_eq!(seen.alive(at(29)).count(), 1);
    assert_eq!(seen.alive(at(30)).count(), 0);
    assert_eq!((seen.alive_for(b"a", at(29)), seen.alive_for(b"a", at(30))), (Some(at(1)), None));
    assert_eq!(seen.forgettable(at(49)).count(), 0);
    assert!(seen.forgettable(at(50)).eq([(&b"a"[..].into(), time(501))]));
    seen.forget(at(49));
    assert!(!seen.refresh(b"a", time(501), ttl, at(49)), "remembered for twice its time");
    seen.forget(at(50));
    assert!(seen.refresh(b"a", time(501), ttl, at(50)));
}
