//! The records of a replica, all in one group, so that a write is one commit.
//!
//! | name | says |
//! |---|---|
//! | `r`, a row's name | the row, as in `baton_core::crdt::row` |
//! | `o` | this run: layout version 1, actor (16), highest time in ms and its count, then the context of this actor's own dots |
//! | `x`, a number below 16 | the context of the actors whose first byte's low bits are that number, but for this run's own |
//! | `l` | which directory this is and which runs it had before; see `lineage` |
//! | `m`, lane, slot (2) | a request that was answered; see `memo` |
//!
//! This run's own dots have a record of their own because nearly every commit writes it: it stays small however many runs
//! there have been.

use super::memo::{LANES, Memo, SLOTS};
use baton_core::codec::{Decoder, Encoder, Unreadable};
use baton_core::crdt::{Actor, Context, Hlc, RowKey};
use baton_core::{Bytes, Group, Key};

const GROUP: Group = Group(0);
/// Records that a whole context is spread over: a merge may have dots of many actors, and a commit has room for few records.
pub(super) const SHARDS: u8 = 16;

const ROW: u8 = b'r';
const OWN: u8 = b'o';
const SHARD: u8 = b'x';
const LINEAGE: u8 = b'l';
const MEMO: u8 = b'm';

/// What a record is, by its name.
pub(super) enum Found {
    Row(RowKey),
    Own,
    Shard,
    Lineage,
    Memo { lane: usize, slot: usize },
}

pub(super) fn found(name: &[u8]) -> Result<Found, Unreadable> {
    match name.split_first() {
        Some((&ROW, name)) => RowKey::decode(name).map(Found::Row),
        Some((&OWN, [])) => Ok(Found::Own),
        Some((&SHARD, [_])) => Ok(Found::Shard),
        Some((&LINEAGE, [])) => Ok(Found::Lineage),
        Some((&MEMO, [lane, high, low])) => {
            let (lane, slot) = (usize::from(*lane), usize::from(u16::from_be_bytes([*high, *low])));
            if lane < LANES && slot < SLOTS { Ok(Found::Memo { lane, slot }) } else { Err(Unreadable) }
        }
        _ => Err(Unreadable),
    }
}

pub(super) fn row(key: &RowKey) -> Key {
    let name: Bytes = std::iter::once(ROW).chain(key.bytes().iter().copied()).collect();
    Key::new(GROUP, name)
}

pub(super) fn own() -> Key {
    Key::new(GROUP, [OWN])
}

pub(super) fn shard(number: u8) -> Key {
    Key::new(GROUP, [SHARD, number])
}

pub(super) fn lineage() -> Key {
    Key::new(GROUP, [LINEAGE])
}

pub(super) fn memo(memo: &Memo) -> Key {
    let [high, low] = (memo.slot as u16).to_be_bytes();
    Key::new(GROUP, [MEMO, memo.lane as u8, high, low])
}

/// Everything there is.
pub(super) fn range(after: Option<Bytes>) -> baton_store::Range {
    baton_store::Range { group: GROUP, prefix: Bytes::default(), after }
}

pub(super) fn shard_of(actor: Actor) -> u8 {
    actor.0[0] % SHARDS
}

/// The record about a run.
pub(super) struct Own {
    pub actor: Actor,
    pub highest: Hlc,
    pub context: Context,
}

const OWN_VERSION: u8 = 1;

impl Own {
    pub fn encode(&self) -> Bytes {
        Encoder::new(OWN_VERSION)
            .fixed(&self.actor.0)
            .number(self.highest.ms)
            .number(self.highest.count.into())
            .bytes(&self.context.encode())
            .finish()
    }

    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, OWN_VERSION)?;
        let actor = Actor(from.fixed()?);
        let ms = from.number()?;
        let count = u32::try_from(from.number()?).map_err(|_| Unreadable)?;
        let context = Context::decode_own(from.bytes()?)?;
        from.finish()?;
        Ok(Self { actor, highest: Hlc { ms, count }, context })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::crdt::{Dot, Kind, Object};

    #[test]
    fn a_run_s_record_is_read_as_it_was_written_and_a_newer_one_refused() {
        let actor = Actor([7; 16]);
        let context: Context = [1, 2, 5].map(|number| Dot { actor, number }).into_iter().collect();
        let own = Own { actor, highest: Hlc { ms: 12_345, count: 6 }, context };
        let mut value = own.encode().to_vec();
        let read = Own::decode(&value).unwrap();
        assert_eq!((read.actor, read.highest, read.context), (own.actor, own.highest, own.context));
        value[0] = OWN_VERSION + 1;
        assert!(Own::decode(&value).is_err());
    }

    #[test]
    fn a_record_s_name_says_what_it_is() {
        let key = Object::plain("n", "o").row(Kind::Set);
        assert!(matches!(found(&row(&key).name), Ok(Found::Row(of)) if of == key));
        assert!(matches!(found(&own().name), Ok(Found::Own)));
        assert!(matches!(found(&lineage().name), Ok(Found::Lineage)));
        assert!(matches!(found(&shard(3).name), Ok(Found::Shard)));
        let id = baton_core::crdt::RequestId([0; 16]);
        let of =
            Memo { id, digest: [0; 8], actor: Actor([0; 16]), dots: (0, 0), sequence: 1, lane: 9, slot: 700 };
        assert!(matches!(found(&memo(&of).name), Ok(Found::Memo { lane: 9, slot: 700 })));
        assert!(found(b"z").is_err() && found(b"").is_err() && found(b"m\x09\xff\xff").is_err());
    }
}
