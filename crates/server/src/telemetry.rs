//! Logs (O6): one JSON object a line, or lines for people on a terminal. Never a lockToken.

use hyper::header::HeaderValue;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_subscriber::EnvFilter;

/// The header by which a caller names its request.
pub const CORRELATION_ID: &str = "x-correlation-id";
/// Bytes of such a name.
const ID_BYTES_MAX: usize = 128;

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people if standard error is a terminal, else JSON.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Sends log lines to standard error. `RUST_LOG` chooses the level; without it, `info`. Does nothing if logs go
/// somewhere already.
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Text => lines.with_ansi(terminal).with_target(false).try_init(),
        LogFormat::Auto if terminal => lines.with_target(false).try_init(),
        LogFormat::Auto | LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).try_init(),
    };
    // Someone installed a subscriber before: theirs stays.
    drop(installed);
}

/// Whether a header can stand in a log line and go back to its sender: short, visible ASCII.
pub(crate) fn is_id(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

/// What to call a request in the log: as its sender does, by its trace, or by a name made up now.
pub(crate) fn correlation(sent: Option<&HeaderValue>, traceparent: Option<&HeaderValue>) -> String {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    // version-traceId-parentId-flags
    let trace = |value: &HeaderValue| value.to_str().ok()?.split('-').nth(1).map(str::to_owned);
    sent.and_then(text).or_else(|| traceparent.and_then(trace)).unwrap_or_else(|| {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
        format!("{:016x}", hasher.finish())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_visible_names_are_taken_over() {
        let long = "x".repeat(129);
        for (text, fine) in [("req-1", true), ("", false), ("a b", false), (long.as_str(), false)] {
            assert_eq!(is_id(&HeaderValue::from_str(text).unwrap()), fine, "{text}");
        }
        assert!(!is_id(&HeaderValue::from_bytes(b"\xff").unwrap()));
    }

    #[test]
    fn a_request_without_a_name_gets_one_of_its_own() {
        let trace = HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        assert_eq!(correlation(None, Some(&trace)), "4bf92f3577b34da6a3ce929d0e0e4736");
        let sent = HeaderValue::from_static("mine");
        assert_eq!(correlation(Some(&sent), Some(&trace)), "mine");
        assert_ne!(correlation(None, None), correlation(None, None));
    }
}
