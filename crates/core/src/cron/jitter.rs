//! How far a run is moved from its time, so that not all jobs of a minute start in its first second.

use crate::record::WallTime;
use core::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// How long after its nominal time a run starts: up to `max`, and always before the next nominal time. It is a hash of the
/// job and the time, so whoever asks, and however often, gets the same answer; whole milliseconds (J15).
pub fn jitter(uid: u128, nominal: WallTime, max: Duration, next: Option<WallTime>) -> Duration {
    let max_ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
    let room_ms = next.map_or(u64::MAX, |next| next.0.saturating_sub(nominal.0).saturating_sub(1));
    let mut text = [0; 24];
    text[..16].copy_from_slice(&uid.to_le_bytes());
    text[16..].copy_from_slice(&nominal.0.to_le_bytes());
    let hash = xxh3_64(&text);
    let ms = match max_ms.min(room_ms).checked_add(1) {
        Some(choices) => hash % choices,
        None => hash,
    };
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_always_the_same_within_its_bound_and_before_the_next_time(
            uid in any::<u128>(),
            nominal in 0..1_u64 << 42,
            max_ms in prop_oneof![0..200_000_u64, Just(u64::MAX)],
            gap_ms in prop_oneof![Just(None), (1..4_u64).prop_map(Some), (1..100_000_u64).prop_map(Some)],
        ) {
            let (nominal, max) = (WallTime(nominal), Duration::from_millis(max_ms));
            let next = gap_ms.map(|gap| WallTime(nominal.0 + gap));
            let found = jitter(uid, nominal, max, next);
            prop_assert!(found <= max);
            prop_assert!(next.is_none_or(|next| nominal.after(found) < next));
            prop_assert_eq!(found, jitter(uid, nominal, max, next));
        }
    }

    #[test]
    fn it_spreads_jobs_and_a_job_s_runs_over_the_whole_of_it() {
        let max = Duration::from_millis(9);
        let (mut by_job, mut by_run) = ([0; 10], [0; 10]);
        for number in 0..1_000_u64 {
            by_job[jitter(u128::from(number), WallTime(60_000), max, None).as_millis() as usize] += 1;
            by_run[jitter(7, WallTime(number * 60_000), max, None).as_millis() as usize] += 1;
        }
        assert!(
            by_job.iter().chain(&by_run).all(|count| (60..=140).contains(count)),
            "{by_job:?} {by_run:?}"
        );
        // Written down: were it to change with a release, runs would move.
        assert_eq!(jitter(1, WallTime(60_000), Duration::from_secs(60), None), Duration::from_millis(6_470));
    }
}
