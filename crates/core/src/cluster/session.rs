//! A node's session: a record with a time to live, renewed as long as the node lives.
//!
//! Version 1: started (milliseconds since the epoch), flags (leaving 1, dedicated 2), address (empty: none), version of the program. A session of a
//! node from before there was anything to say is empty.

use crate::codec::{Decoder, Encoder, Unreadable};
use crate::lock::NodeId;
use crate::record::{Bytes, Group, Key, WallTime};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What sessions' names begin with.
pub const SESSION: &[u8] = b"Ns";

const VERSION: u8 = 1;

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    /// Where other nodes reach it; nothing if they can't.
    pub address: Option<Arc<str>>,
    /// The version of the program.
    pub version: Arc<str>,
    /// When it was started, by the store's clock.
    pub started: WallTime,
    /// Whether it is about to stop, and should own nothing any more.
    pub is_leaving: bool,
    /// Whether it is kept for hot keys that are pinned, and owns nothing else.
    pub is_dedicated: bool,
}

impl Session {
    /// As it is stored.
    pub fn encode(&self) -> Bytes {
        Encoder::new(VERSION)
            .number(self.started.0)
            .byte(u8::from(self.is_leaving) | u8::from(self.is_dedicated) << 1)
            .bytes(self.address.as_deref().unwrap_or_default().as_bytes())
            .bytes(self.version.as_bytes())
            .finish()
    }

    /// What was stored. A newer version's may have more to say, which doesn't concern this one.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        let mut decoder = Decoder::new(value, VERSION)?;
        let started = decoder.time()?;
        let flags = decoder.byte()?;
        let (is_leaving, is_dedicated) = (flags & 1 != 0, flags & 2 != 0);
        let address = Some(decoder.text()?).filter(|address| !address.is_empty());
        Ok(Self { address, version: decoder.text()?, started, is_leaving, is_dedicated })
    }
}

/// Where a node's session is.
pub fn session_key(node: NodeId) -> Key {
    let name: Vec<u8> = [SESSION, &node.0.to_be_bytes()].concat();
    Key::new(Group(0), name)
}

/// Whose session this is.
pub fn node_of(name: &[u8]) -> Option<NodeId> {
    let id = name.strip_prefix(SESSION)?.try_into().ok()?;
    Some(NodeId(u64::from_be_bytes(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_as_it_was_written_and_one_from_before_says_nothing() {
        let session = Session {
            address: Some("10.0.0.7:7117".into()),
            version: "0.1.0".into(),
            started: WallTime(1_763_000_000_000),
            is_leaving: true,
            is_dedicated: false,
        };
        assert_eq!(Session::decode(&session.encode()), Ok(session.clone()));
        let silent = Session { address: None, is_leaving: false, is_dedicated: true, ..session };
        assert_eq!(Session::decode(&silent.encode()), Ok(silent));
        assert_eq!(Session::decode(b""), Ok(Session::default()));
        assert_eq!(Session::decode(&[9, 1]), Err(Unreadable));
        assert_eq!(node_of(&session_key(NodeId(77)).name), Some(NodeId(77)));
        assert_eq!(node_of(b"Nkey"), None);
    }
}
