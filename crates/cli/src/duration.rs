//! Durations as people write them: `500ms`, `30s`, `5m`, `2h`, `1h30m`, `1d`.

use std::time::Duration;

/// Reads a duration. A bare number is refused: nobody agrees on its unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write it like 500ms, 30s, 5m, 2h or 1h30m");
    let mut rest = text.trim();
    let mut total_ms = 0u64;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ms = match &rest[..unit] {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let part_ms = number.checked_mul(unit_ms).ok_or_else(wrong)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(wrong)?;
        rest = &rest[unit..];
    }
    Ok(Duration::from_millis(total_ms))
}

/// Writes a duration with as much as matters: `3d 4h`, `2h 5m`, `1m 10s`, `12s`, `80ms`.
pub fn show(duration: Duration) -> String {
    let ms = duration.as_millis();
    let seconds = duration.as_secs();
    let two = |big, big_unit, small, small_unit| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit} {small}{small_unit}"),
    };
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("0s", 0),
            (" 1s ", 1_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_examples() {
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1s2",
            "5 m",
            "1y",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(parse(text).is_err_and(|error| error.contains("30s")), "{text}");
        }
    }

    #[test]
    fn durations_are_written_short() {
        for (ms, text) in [
            (80, "80ms"),
            (12_345, "12s"),
            (70_000, "1m 10s"),
            (120_000, "2m"),
            (7_500_000, "2h 5m"),
            (273_600_000, "3d 4h"),
        ] {
            assert_eq!(show(Duration::from_millis(ms)), text);
        }
    }
}
