//! What is going on: one line that changes on a terminal, one a step elsewhere.

use std::io::{IsTerminal, Write};

/// Says what is being measured now.
pub fn say(what: &str) {
    let mut out = std::io::stderr().lock();
    // Nobody minds if it can't be said.
    if out.is_terminal() {
        write!(out, "\r\x1b[2K{what}").and_then(|()| out.flush()).ok();
    } else {
        writeln!(out, "{what}").ok();
    }
}

/// Leaves the line for whatever is printed next.
pub fn clear() {
    let mut out = std::io::stderr().lock();
    if out.is_terminal() {
        write!(out, "\r\x1b[2K").and_then(|()| out.flush()).ok();
    }
}
