//! What a job runs (J7): a request, a command on the server, or whatever a worker makes of it.

use crate::codec::{Decoder, Encoder, Unreadable};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Header fields of a request.
pub const HEADERS_MAX: usize = 32;
/// Arguments of a command.
pub const ARGUMENTS_MAX: usize = 64;

/// What a job runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A request that the node sends.
    Http(Http),
    /// A worker of a queue takes it.
    Worker {
        /// Which workers.
        queue: String,
        /// What they are told.
        payload: String,
    },
    /// A command that the node starts.
    Command {
        /// What is started.
        program: String,
        /// With which arguments.
        arguments: Vec<String>,
    },
}

/// A request that a node sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// In capitals.
    pub method: String,
    /// Where to.
    pub url: String,
    /// As given.
    pub headers: Vec<(String, String)>,
    /// As given.
    pub body: String,
    /// What it is signed with.
    pub secret: Option<Secret>,
}

/// What requests are signed with: stored, sent nowhere, printed nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Target {
    /// In a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Worker { .. } => "worker",
            Self::Command { .. } => "command",
        }
    }

    /// The queue whose workers take it; nothing for what a node runs itself.
    pub fn queue(&self) -> Option<&str> {
        match self {
            Self::Worker { queue, .. } => Some(queue),
            Self::Http(_) | Self::Command { .. } => None,
        }
    }

    pub(super) fn write(&self, to: Encoder) -> Encoder {
        match self {
            Self::Http(http) => {
                let secret = http.secret.as_ref().map_or("", |secret| &secret.0);
                let mut to = to
                    .byte(1)
                    .bytes(http.method.as_bytes())
                    .bytes(http.url.as_bytes())
                    .bytes(http.body.as_bytes())
                    .bytes(secret.as_bytes())
                    .number(http.headers.len() as u64);
                for (name, value) in &http.headers {
                    to = to.bytes(name.as_bytes()).bytes(value.as_bytes());
                }
                to
            }
            Self::Worker { queue, payload } => to.byte(2).bytes(queue.as_bytes()).bytes(payload.as_bytes()),
            Self::Command { program, arguments } => {
                let mut to = to.byte(3).bytes(program.as_bytes()).number(arguments.len() as u64);
                for argument in arguments {
                    to = to.bytes(argument.as_bytes());
                }
                to
            }
        }
    }

    pub(super) fn read(from: &mut Decoder<'_>) -> Result<Self, Unreadable> {
        Ok(match from.byte()? {
            1 => {
                let (method, url, body, secret) =
                    (from.string()?, from.string()?, from.string()?, from.string()?);
                let mut headers = Vec::new();
                for _ in 0..bounded(from.number()?, HEADERS_MAX)? {
                    headers.push((from.string()?, from.string()?));
                }
                let secret = (!secret.is_empty()).then_some(Secret(secret));
                Self::Http(Http { method, url, headers, body, secret })
            }
            2 => Self::Worker { queue: from.string()?, payload: from.string()? },
            3 => {
                let program = from.string()?;
                let mut arguments = Vec::new();
                for _ in 0..bounded(from.number()?, ARGUMENTS_MAX)? {
                    arguments.push(from.string()?);
                }
                Self::Command { program, arguments }
            }
            _ => return Err(Unreadable),
        })
    }
}

fn bounded(number: u64, max: usize) -> Result<usize, Unreadable> {
    usize::try_from(number).ok().filter(|number| *number <= max).ok_or(Unreadable)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    pub fn any_target() -> impl Strategy<Value = Target> {
        let text = || "\\PC{0,9}".prop_map(String::from);
        let http = (text(), text(), text(), proptest::option::of("\\PC{1,9}"));
        let headers = proptest::collection::vec((text(), text()), 0..4);
        prop_oneof![
            (http, headers).prop_map(|((method, url, body, secret), headers)| {
                Target::Http(Http { method, url, headers, body, secret: secret.map(Secret) })
            }),
            (text(), text()).prop_map(|(queue, payload)| Target::Worker { queue, payload }),
            (text(), proptest::collection::vec(text(), 0..4))
                .prop_map(|(program, arguments)| Target::Command { program, arguments }),
        ]
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Some(Secret("hush".into()));
        let http =
            Http { method: "POST".into(), url: "u".into(), headers: Vec::new(), body: "".into(), secret };
        assert!(!format!("{:?}", Target::Http(http)).contains("hush"));
    }
}
