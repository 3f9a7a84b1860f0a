//! How a command ends when it doesn't succeed: what happened, what to do next, and an exit code for scripts.

use crate::limits::NO_LIMIT;
use baton_client::{Error, ErrorCode};

/// The lock was not acquired; later it may be (sysexits' TEMPFAIL).
pub const NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran: what it did is suspect.
pub const LOST: u8 = 76;
/// The command was found but couldn't be started.
pub const CANNOT_RUN: u8 = 126;
/// There is no such command.
pub const NO_COMMAND: u8 = 127;
/// Anything without a code of its own.
const FAILED: u8 = 1;
/// It was asked for in a way that can't be answered.
pub const USAGE: u8 = 64;
/// A file can't be written.
pub const CANNOT_WRITE: u8 = 73;

/// What went wrong, and what to do next.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub help: Option<String>,
    pub exit: u8,
}

impl Failure {
    pub fn new(exit: u8, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()), exit }
    }
}

impl Failure {
    /// Whether the same may work later: nobody was reached, or what was asked for is taken.
    pub fn is_passing(&self) -> bool {
        self.exit == NOT_ACQUIRED
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.code() {
            Some(code) => code.exit_code(),
            None if error.is_lease_lost() || error.stale_token().is_some() => LOST,
            None if error.is_invalid() => USAGE,
            // Unreachable or unknown: it may work later.
            None => NOT_ACQUIRED,
        };
        Self { message: error.to_string(), help: help(&error).map(Into::into), exit }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            // Whoever read our output has had enough (`| head`): nothing to complain about.
            return Self { message: String::new(), help: None, exit: 0 };
        }
        Self { message: error.to_string(), help: None, exit: FAILED }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        std::io::Error::from(error).into()
    }
}

fn help(error: &Error) -> Option<&'static str> {
    Some(match error.code() {
        Some(ErrorCode::LockAlreadyHeld) => {
            "`baton locks show KEY` says who holds it; without --try it is waited for"
        }
        Some(ErrorCode::LockDelayed) => "it opens by itself; without --try it is waited for",
        Some(ErrorCode::ModeMismatch) => {
            "`baton locks show KEY` says how it is used; say --shared or --permits alike"
        }
        Some(ErrorCode::WaitTimeout) => {
            "wait longer with --wait, or see who is before you with `baton locks queue KEY`"
        }
        Some(ErrorCode::QueueFull) => "try again later; `baton locks queue KEY` shows who waits",
        Some(ErrorCode::LockNotFound) => {
            "`baton locks ls` shows what is held, in the namespace that --namespace says"
        }
        Some(ErrorCode::StoreUnavailable | ErrorCode::StoreFull | ErrorCode::Overloaded) => {
            "try again later; `baton status` shows how the store is"
        }
        Some(ErrorCode::ClaimLost) => {
            "another caller may be at it; check what the command left half done, a longer --ttl rides out longer outages"
        }
        Some(ErrorCode::FenceNotFound) => {
            "`baton fence ls` shows what there is, in the namespace that --namespace says"
        }
        Some(ErrorCode::LimitNotFound) => NO_LIMIT,
        Some(ErrorCode::LimitMismatch) => "`baton limits show NAME` says what it counts",
        Some(ErrorCode::ReceiptInvalid) => {
            "a receipt is good for the limit, key and namespace of its check, unchanged"
        }
        Some(ErrorCode::InvalidArgument | ErrorCode::RequestIdReused) => "see --help for what is allowed",
        Some(ErrorCode::Internal) => "the server's log says more",
        Some(_) => return None,
        None if error.is_unreachable() => {
            "start a server with `baton serve`, or say where it is with --server or BATON_SERVER"
        }
        None if error.is_invalid() => "give --server as http://HOST:PORT, several separated by commas",
        None => return None,
    })
}
