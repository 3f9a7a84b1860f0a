//! What input may look like. Both sides run the same checks, so the SDK can say no without a round trip.

use crate::error::ErrorBody;
use std::ops::RangeInclusive;

/// Bytes of a lock key.
pub const KEY_BYTES: RangeInclusive<usize> = 1..=512;
/// Bytes of a namespace.
pub const NAMESPACE_BYTES: RangeInclusive<usize> = 1..=128;
/// Bytes of an owner.
pub const OWNER_BYTES: RangeInclusive<usize> = 1..=256;
/// Bytes of a requestId.
pub const REQUEST_ID_BYTES: RangeInclusive<usize> = 1..=128;
/// Bytes of a reason for a forced release.
pub const REASON_BYTES: RangeInclusive<usize> = 1..=1024;
/// Bytes of a lockToken as text; the real ones are shorter.
pub const LOCK_TOKEN_BYTES: RangeInclusive<usize> = 1..=256;
/// Bytes of a claimToken as text; the real ones are shorter.
pub const CLAIM_TOKEN_BYTES: RangeInclusive<usize> = 1..=256;
/// A fencing token: what every JSON reader keeps exact. Nothing was ever granted with 0.
pub const TOKEN: RangeInclusive<u64> = 1..=(1 << 53) - 1;
/// Milliseconds of a lease.
pub const TTL_MILLIS: RangeInclusive<u64> = 100..=86_400_000;
/// Milliseconds of a wait.
pub const WAIT_TIMEOUT_MILLIS: RangeInclusive<u64> = 0..=600_000;
/// Permits of a semaphore; also how many may share a lock.
pub const PERMITS: RangeInclusive<u64> = 1..=256;
/// Milliseconds of a lock-delay.
pub const LOCK_DELAY_MILLIS: RangeInclusive<u64> = 0..=3_600_000;
/// Locks on one page of a list.
pub const LIST_LIMIT: RangeInclusive<u64> = 1..=1000;
/// A candidate's priority.
pub const PRIORITY: RangeInclusive<i16> = -1000..=1000;
/// Bytes of metadata as compact JSON.
pub const METADATA_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a result of `once`, as JSON.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Milliseconds for which a result of `once` is kept.
pub const RESULT_TTL_MILLIS: RangeInclusive<u64> = 1_000..=30 * 24 * 60 * 60 * 1000;
/// Bytes of a request's body that carries a result: that, and the other fields.
pub const RESULT_BODY_BYTES_MAX: usize = RESULT_BYTES_MAX + 16 * 1024;
/// Bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a batch's body.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Locks acquired at once.
pub const BUNDLE_KEYS: RangeInclusive<usize> = 1..=16;
/// Calls in a batch.
pub const BATCH_CALLS: RangeInclusive<usize> = 1..=256;

/// How much a key may use in a window.
pub const LIMIT: RangeInclusive<u64> = 1..=1_000_000_000_000;
/// Milliseconds of a limit's window: up to a leap year.
pub const WINDOW_MILLIS: RangeInclusive<u64> = 1..=366 * 24 * 60 * 60 * 1000;
/// What one check may cost.
pub const COST: RangeInclusive<u64> = 0..=1_000_000_000;
/// Checks in one call.
pub const CHECKS: RangeInclusive<usize> = 1..=16;
/// Keys with a limit of their own.
pub const OVERRIDES_MAX: usize = 1_000;
/// Bytes of a definition's body, with as many overrides as may be.
pub const DEFINITION_BYTES_MAX: usize = 640 * 1024;
/// The highest limit of an algorithm that keeps an entry for each use.
pub const ENTRIES_MAX: u64 = 1_000;
/// Milliseconds of a lease on a part of a limit.
pub const LEASE_TTL_MILLIS: RangeInclusive<u64> = 100..=3_600_000;
/// How often the store is told of slack.
pub const SYNC_MILLIS: RangeInclusive<u64> = 10..=60_000;
/// Bytes of a time zone's name.
pub const TIME_ZONE_BYTES: RangeInclusive<usize> = 1..=64;
/// Times in the preview of a schedule.
pub const PREVIEW_COUNT: RangeInclusive<u64> = 1..=100;
/// From when on a schedule is previewed, in milliseconds since the Unix epoch: up to the year 3000.
pub const PREVIEW_FROM: RangeInclusive<u64> = 0..=32_503_680_000_000;
/// Bytes of a receipt as text; the real ones are shorter.
pub const RECEIPT_BYTES: RangeInclusive<usize> = 1..=256;

/// Bytes of a schedule.
pub const SCHEDULE_BYTES: RangeInclusive<usize> = 1..=256;
/// Times of a job that may be asked for, in milliseconds since the Unix epoch: up to the year 3000.
pub const JOB_TIME: RangeInclusive<u64> = 0..=32_503_680_000_000;
/// Jobs that may follow one.
pub const JOB_THEN_MAX: usize = 8;
/// Entries of a calendar.
pub const CALENDAR_DAYS_MAX: usize = 1_000;
/// Bytes of a request's body that defines a calendar.
pub const CALENDAR_BYTES_MAX: usize = 512 * 1024;
/// Calendars that a job goes by.
pub const JOB_CALENDARS_MAX: usize = 4;
/// Bytes of what a job sends, or tells a worker.
pub const JOB_BODY_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a request's body that defines a job, with as many header fields as may be.
pub const JOB_BYTES_MAX: usize = 256 * 1024;

/// Bytes of what an attempt says of its end.
pub const RUN_MESSAGE_BYTES_MAX: usize = 512;
/// Bytes of output that an attempt may send; the end of it is kept.
pub const RUN_OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// A lease's id: up to 64 letters, digits and `-_.:`, with a letter or digit at its end.
pub fn check_lease_id(field: &str, id: &str) -> Result<(), ErrorBody> {
    check_text(field, id, 1..=64)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if id.bytes().all(plain) && id.bytes().last().is_some_and(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(ErrorBody::invalid(
        field,
        format!("{field} must be letters, digits and -_.:, and end with a letter or digit"),
    ))
}

/// A lock key: 1 to 512 bytes without control characters, not `.` or `..` (which paths swallow).
pub fn check_key(key: &str) -> Result<(), ErrorBody> {
    check_name("lockKey", key)
}

/// What stands in a path as one segment: as for a lock key, under another field's name.
pub fn check_name(field: &str, name: &str) -> Result<(), ErrorBody> {
    check_text(field, name, KEY_BYTES)?;
    if name == "." || name == ".." {
        return Err(ErrorBody::invalid(field, format!("{field} must not be \".\" or \"..\"")));
    }
    Ok(())
}

/// Text within a length in bytes, without control characters.
pub fn check_text(field: &str, text: &str, bytes: RangeInclusive<usize>) -> Result<(), ErrorBody> {
    if !bytes.contains(&text.len()) {
        let (min, max, len) = (bytes.start(), bytes.end(), text.len());
        return Err(ErrorBody::invalid(field, format!("{field} must have {min} to {max} bytes, not {len}")));
    }
    // Nearly all text is plain ASCII, and that is seen in a glance.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_plain && text.chars().any(char::is_control) {
        return Err(ErrorBody::invalid(field, format!("{field} must not contain control characters")));
    }
    Ok(())
}

/// A number within a range.
pub fn check_number(field: &str, number: u64, range: RangeInclusive<u64>) -> Result<(), ErrorBody> {
    if range.contains(&number) {
        return Ok(());
    }
    let (min, max) = (range.start(), range.end());
    Err(ErrorBody::invalid(field, format!("{field} must be {min} to {max}, not {number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_paths_or_logs_would_mangle_are_refused_with_their_field() {
        for bad in ["", ".", "..", "a\nb", "a\u{0}b", "\u{7f}", "\u{85}", &"x".repeat(513)] {
            assert_eq!(check_key(bad).unwrap_err().field.as_deref(), Some("lockKey"), "{bad:?}");
        }
        for good in ["a", "...", "inventory:sku/123", "ключ", &"x".repeat(512)] {
            assert!(check_key(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn numbers_are_bounded_on_both_sides() {
        for (number, fine) in [(99, false), (100, true), (86_400_000, true), (86_400_001, false)] {
            assert_eq!(check_number("ttlMillis", number, TTL_MILLIS).is_ok(), fine, "{number}");
        }
    }
}
