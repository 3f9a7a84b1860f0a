//! Signals meant for us, and for what we run.

use rustix::process::Signal;
use std::io;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Those that are passed on to the command.
const FORWARDED: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// The signals that reach this process from here on.
pub struct Signals {
    from: Source,
    asked_to_stop: bool,
}

enum Source {
    System(Vec<(Signal, unix::Signal)>),
    /// What somebody else who listens passes on.
    Passed(broadcast::Receiver<Signal>),
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let mut streams = Vec::new();
        // What our starter had us ignore (nohup, a shell's `&`) stays ignored, here and in the command.
        for signal in FORWARDED.into_iter().filter(|signal| ignored & bit(*signal) == 0) {
            streams.push((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        }
        Ok(Self { from: Source::System(streams), asked_to_stop: false })
    }

    /// Those that another passes on.
    pub fn passed_on(from: broadcast::Receiver<Signal>) -> Self {
        Self { from: Source::Passed(from), asked_to_stop: false }
    }

    /// Whether any of those that came asks to stop.
    pub fn asked_to_stop(&self) -> bool {
        self.asked_to_stop
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        let signal = match &mut self.from {
            Source::System(streams) => first(streams).await,
            Source::Passed(from) => loop {
                match from.recv().await {
                    Ok(signal) => break signal,
                    // More came at once than are kept for one who is busy: the later ones count.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            },
        };
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

async fn first(streams: &mut [(Signal, unix::Signal)]) -> Signal {
    std::future::poll_fn(|cx| {
        for (signal, stream) in &mut *streams {
            if stream.poll_recv(cx).is_ready() {
                return std::task::Poll::Ready(*signal);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

pub fn asks_to_stop(signal: Signal) -> bool {
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
