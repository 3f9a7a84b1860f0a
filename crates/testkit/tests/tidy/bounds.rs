//! What must not grow without end: queues in memory, files in lines.

use crate::assert_tidy;
use crate::source::code;
use crate::tree::files;

fn unbounded_queues(path: &str, text: &str) -> Vec<String> {
    const UNBOUNDED: &[&str] = &[
        "unbounded_channel",
        "UnboundedSender",
        "UnboundedReceiver",
        "mpsc::unbounded",
        "channel::unbounded",
        "mpsc::channel()",
        "mpsc::channel::<",
        "use std::sync::mpsc::channel",
    ];
    let code = code(text);
    let lines = code.lines().enumerate();
    lines
        .filter(|(_, line)| UNBOUNDED.iter().any(|name| line.contains(name)) && !is_bounded(line))
        .map(|(number, _)| {
            format!("{path}:{}: a queue without a bound; say how much fits, and what then", number + 1)
        })
        .collect()
}

/// `mpsc::channel::<T>(capacity)` has a bound, `mpsc::channel::<T>()` has none.
fn is_bounded(line: &str) -> bool {
    line.split_once("mpsc::channel::<").is_some_and(|(_, rest)| !rest.contains(">()"))
}

#[test]
fn every_queue_has_a_bound() {
    for fine in ["mpsc::channel(16)", "mpsc::channel::<u8>(16)", "oneshot::channel()", "// unbounded_channel"]
    {
        assert!(unbounded_queues("x", fine).is_empty(), "{fine}");
    }
    for bad in ["let (a, b) = mpsc::channel();", "mpsc::channel::<u8>()", "mpsc::unbounded_channel()"] {
        assert_eq!(unbounded_queues("x", bad).len(), 1, "{bad}");
    }

    let sources = files().into_iter().filter(crate::tree::File::is_rust);
    assert_tidy(sources.flat_map(|file| unbounded_queues(&file.path, &file.text)).collect());
}

/// A file this long is read in one sitting by nobody.
const LINES_MAX: usize = 600;

/// Files that are longer for now, each with the length it had when it came here. The number may only go down.
const LONG_FILES: &[(&str, usize)] = &[];

#[allow(clippy::print_stdout, reason = "a hint for whoever runs it, not a failure")]
fn too_long(path: &str, text: &str, long: &[(&str, usize)]) -> Option<String> {
    let lines = text.lines().count();
    let known = long.iter().find(|(name, _)| *name == path).map(|(_, lines)| *lines);
    let most = known.unwrap_or(LINES_MAX);
    if known.is_some_and(|known| lines < known) {
        println!("{path} is down to {lines} lines: lower its number in LONG_FILES");
    }
    (lines > most).then(|| format!("{path}: {lines} lines, {most} at most: find the seam and split it"))
}

#[test]
fn a_file_fits_in_one_sitting() {
    let text = "x\n".repeat(LINES_MAX + 1);
    assert!(too_long("x", &text, &[]).is_some());
    assert!(too_long("x", &text, &[("x", LINES_MAX + 1)]).is_none());
    assert!(too_long("x", &text[2..], &[]).is_none());

    let written = files().into_iter().filter(|file| {
        let kinds = [".rs", ".py", ".md", ".toml", ".sh"];
        kinds.iter().any(|kind| file.path.ends_with(kind)) || file.is_under(&["scripts/", ".ci/", "Makefile"])
    });
    assert_tidy(written.filter_map(|file| too_long(&file.path, &file.text, LONG_FILES)).collect());
}
