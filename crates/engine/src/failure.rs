//! What can go wrong with any call, whatever it is about.

use baton_store::Reason;

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The store didn't answer, or said that it can't. If `unknown`, the call may have taken effect.
    Unavailable {
        /// Whether it may have taken effect.
        unknown: bool,
    },
    /// The store has no room.
    Full,
    /// Too many calls for one key at once, or too much change under it.
    Overloaded,
    /// A record can't be read, or a bug.
    Internal,
}

impl Failure {
    /// What it means that the store didn't apply a commit; whether an earlier try may have taken effect.
    pub(crate) fn of(reason: Reason, unknown: bool) -> Self {
        match reason {
            Reason::Full if !unknown => Self::Full,
            Reason::Invalid => Self::Internal,
            Reason::Full | Reason::Unavailable | Reason::Busy => Self::Unavailable { unknown },
        }
    }

    /// In a word, for a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unavailable { unknown: true } => "unknown",
            Self::Unavailable { unknown: false } => "unavailable",
            Self::Full => "full",
            Self::Overloaded => "overloaded",
            Self::Internal => "internal",
        }
    }
}
