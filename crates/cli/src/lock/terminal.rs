//! The terminal's foreground: who may read from it, and whom Ctrl-C and Ctrl-Z reach.
//!
//! The command runs in a process group of its own, so the terminal has to be handed to that group, and taken back.

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::process::{Pid, getpgrp};
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal on standard input.
pub struct Terminal {
    ours: Pid,
}

impl Terminal {
    /// The terminal, if there is one.
    pub fn open() -> Option<Self> {
        isatty(stdin()).then(|| Self { ours: getpgrp() })
    }

    /// Lets the command's group have it, if it is ours to give.
    pub fn give(&self, group: Pid) {
        if tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == self.ours) {
            move_to(group);
        }
    }

    /// Whether the command's group has it.
    pub fn is_with(&self, group: Pid) -> bool {
        tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == group)
    }

    /// Takes it back from the command's group.
    pub fn take_back(&self, group: Pid) {
        if self.is_with(group) {
            move_to(self.ours);
        }
    }
}

/// From the background, the move would stop us, unless SIGTTOU is blocked in this thread.
fn move_to(group: Pid) {
    let mut blocked = SigSet::empty();
    blocked.add(NixSignal::SIGTTOU);
    if let Ok(before) = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK) {
        // If the terminal is gone, so is what could be wrong with it.
        tcsetpgrp(stdin(), group).ok();
        before.thread_set_mask().ok();
    }
}
