//! Says what is waited for: a spinner on a terminal, one plain line elsewhere, both on standard error.

use baton_client::{Baton, HeldBy};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// How often the holder and the queue are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const TURN_EVERY: Duration = Duration::from_millis(120);

/// Shows whom we wait for. Never ends by itself; dropping it clears the terminal.
pub async fn show(baton: &Baton, key: &str, owner: &str, held: &HeldBy) {
    let place = held.queue_length + 1;
    let text = describe(key, held.owner.as_deref(), Some((place, place)));
    if !std::io::stderr().is_terminal() {
        // If nobody reads it, the wait goes on all the same.
        writeln!(std::io::stderr(), "baton: {text}").ok();
        return std::future::pending().await;
    }
    let spinner = Spinner::start(text);
    let locks = baton.locks();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // What can't be looked at keeps its last text: the acquire itself reports what is wrong.
        let (Ok(status), Ok(queue)) = (locks.status(key).await, locks.queue(key).await) else { continue };
        let place = queue.waiting.iter().position(|waiting| waiting.owner_id == owner).map(|index| index + 1);
        let holder = status.as_ref().map(|lock| lock.owner_id.as_str());
        spinner.0.set_message(describe(
            key,
            holder,
            place.map(|place| (place as u64, queue.waiting.len() as u64)),
        ));
    }
}

struct Spinner(ProgressBar);

impl Spinner {
    fn start(text: String) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
            bar.set_style(style);
        }
        bar.set_message(text);
        bar.enable_steady_tick(TURN_EVERY);
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn describe(key: &str, holder: Option<&str>, place: Option<(u64, u64)>) -> String {
    let holder = match holder {
        Some(owner) => format!("held by {}", owner.escape_debug()),
        None => "closed for a while or about to change hands".to_owned(),
    };
    let place = match place {
        Some((place, length)) => format!(", place {place} of {length} in its queue"),
        None => String::new(),
    };
    format!("waiting for lock {key:?}, {holder}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_lock_holder_and_place() {
        let text = describe("k", Some("pod-1"), Some((2, 3)));
        assert_eq!(text, "waiting for lock \"k\", held by pod-1, place 2 of 3 in its queue");
        assert_eq!(describe("k", Some("a\u{1b}b"), None), "waiting for lock \"k\", held by a\\u{1b}b");
    }
}
