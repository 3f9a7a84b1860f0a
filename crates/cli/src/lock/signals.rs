//! Signals meant for us, and for what we run.

use rustix::process::Signal;
use std::io;
use tokio::signal::unix::{self, SignalKind};

/// Those that are passed on to the command.
const FORWARDED: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// The signals that reach this process from here on.
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    asked_to_stop: bool,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let mut streams = Vec::new();
        // What our starter had us ignore (nohup, a shell's `&`) stays ignored, here and in the command.
        for signal in FORWARDED.into_iter().filter(|signal| ignored & bit(*signal) == 0) {
            streams.push((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        }
        Ok(Self { streams, asked_to_stop: false })
    }

    /// Whether any of those that came asks to stop.
    pub fn asked_to_stop(&self) -> bool {
        self.asked_to_stop
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        let signal = std::future::poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*signal);
                }
            }
            std::task::Poll::Pending
        })
        .await;
        self.asked_to_stop |= asks_to_stop(signal);
        signal
    }

    /// The next one that asks to stop: while nothing runs yet, the others have no addressee.
    pub async fn stop(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if asks_to_stop(signal) {
                return signal;
            }
        }
    }
}

fn asks_to_stop(signal: Signal) -> bool {
    signal != Signal::USR1 && signal != Signal::USR2
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The signals that this process ignores, one bit each; none where the system doesn't say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// What a shell reports for a process that a signal ended.
pub fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
