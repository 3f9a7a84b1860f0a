//! Charging meters: what is asked, what every store refuses, and how a store without a language of its own does it.

use crate::contract::{Reading, Reason, StoreError, StoreFuture};
use baton_core::meter::{CLAIMS_MAX, Charged, Claim, Memo, Settled, Verdict, encode_answer, settle};
use baton_core::{Bytes, Check, Commit, Key, Outcome, Record, Ttl, Write};
use std::time::Duration;

/// How much longer than it is worth a meter is kept, so that its expiry need not move with every charge.
pub(crate) const KEPT_LONGER_MS: u64 = 60_000;
/// How often a charge is tried again because others charge the same meters.
const CONFLICTS_MAX: usize = 256;

/// Several claims that are charged together, or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Charge {
    /// At most [`CLAIMS_MAX`], each of another meter.
    pub claims: Vec<Claim>,
    /// Makes it happen once, however often it is sent.
    pub memo: Option<Memo>,
}

impl Charge {
    /// All keys, the memo's last.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.iter().map(|claim| &claim.key).chain(self.memo.as_ref().map(|memo| &memo.key))
    }

    /// Whether all of it is in one group.
    pub fn is_in_one_group(&self) -> bool {
        let mut keys = self.keys();
        let first = keys.next().map(|key| key.group);
        keys.all(|key| Some(key.group) == first)
    }

    /// Refuses what breaks the contract.
    pub(crate) fn validate(&self, spans_groups: bool) -> Result<(), StoreError> {
        let invalid =
            |detail: &str| Err(StoreError::NotApplied { reason: Reason::Invalid, detail: detail.into() });
        if !(1..=CLAIMS_MAX).contains(&self.claims.len()) {
            return invalid("a charge has 1 to 16 claims");
        }
        if !self.claims.iter().all(Claim::is_valid) {
            return invalid("a claim is out of bounds");
        }
        let keys: Vec<_> = self.keys().collect();
        if keys.iter().enumerate().any(|(index, key)| keys[..index].contains(key)) {
            return invalid("two claims of one meter");
        }
        if !spans_groups && !self.is_in_one_group() {
            return invalid("meters of several groups");
        }
        Ok(())
    }
}

/// What was remembered of it, if it was done before.
pub(crate) fn remembered(memo: Option<&Bytes>) -> Result<Option<Charged>, StoreError> {
    memo.map(|value| Charged::decode_memo(value)).transpose().map_err(|_| unreadable())
}

/// What a charge puts: the meters, and its memo with the answer.
pub(crate) fn writes(charge: &Charge, settled: &Settled, now_ms: u64) -> Vec<Write> {
    if settled.verdict != Verdict::Charged {
        return Vec::new();
    }
    let meters = charge.claims.iter().zip(&settled.effects).zip(&settled.worth_ms);
    let meters =
        meters.filter(|((claim, _), _)| !claim.is_look()).map(|((claim, (_, _, value)), worth_ms)| {
            let ttl = Ttl::AtLeast(Duration::from_millis(worth_ms + KEPT_LONGER_MS));
            Write::Put { key: claim.key.clone(), value: value.clone(), ttl }
        });
    let memo = charge.memo.as_ref().map(|memo| {
        let value = memo.value(&encode_answer(settled.verdict, now_ms, &settled.effects));
        let ttl = Ttl::AtLeast(Duration::from_millis(memo.ttl_ms));
        Write::Put { key: memo.key.clone(), value, ttl }
    });
    meters.chain(memo).collect()
}

/// The answer to who asked.
pub(crate) fn charged(settled: Settled, now_ms: u64) -> Result<Charged, StoreError> {
    let answer = encode_answer(settled.verdict, now_ms, &settled.effects);
    Charged::decode(&answer).map_err(|_| unreadable())
}

/// Charges by reading and committing what was decided, again if others were faster.
pub(crate) async fn by_commit<'a>(
    charge: Charge,
    read: impl Fn(Vec<Key>) -> StoreFuture<'a, Reading>,
    commit: impl Fn(Commit) -> StoreFuture<'a, Outcome>,
) -> Result<Charged, StoreError> {
    let keys: Vec<_> = charge.keys().cloned().collect();
    let reading = read(keys.clone()).await?;
    let (mut found, mut now) = (reading.records, reading.now);
    for _ in 0..CONFLICTS_MAX {
        let values: Vec<_> =
            found.iter().map(|record| record.as_ref().map(|record| record.value.clone())).collect();
        if charge.memo.is_some()
            && let Some(charged) = remembered(values.last().and_then(Option::as_ref))?
        {
            return Ok(charged);
        }
        let settled = settle(&charge.claims, &values, now.0).map_err(|_| unreadable())?;
        let writes = writes(&charge, &settled, now.0);
        if writes.is_empty() {
            return charged(settled, now.0);
        }
        let check = |(key, record): (&Key, &Option<Record>)| match record {
            Some(record) => Check::At(key.clone(), record.revision),
            None => Check::Absent(key.clone()),
        };
        let checks = keys.iter().zip(&found).map(check).collect();
        match commit(Commit { checks, writes }).await? {
            Outcome::Committed { .. } => return charged(settled, now.0),
            Outcome::Conflict { found: there, now: then } => {
                found = there.into_iter().map(|(_, record)| record).collect();
                now = then;
            }
        }
    }
    let detail = "others charge the same meters all the time".into();
    Err(StoreError::NotApplied { reason: Reason::Unavailable, detail })
}

pub(crate) fn unreadable() -> StoreError {
    let detail = "a meter, or an answer about one, can't be read by this version".into();
    StoreError::NotApplied { reason: Reason::Unavailable, detail }
}
