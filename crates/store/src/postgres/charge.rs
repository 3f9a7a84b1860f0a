//! Charges as parameters, and what is answered to each.

use super::hints::Hints;
use super::queue::{Answers, Waiting, Work};
use super::rows::{latches, micros, unmentioned};
use super::session::{Failure, Session};
use super::target::Target;
use crate::charge::{Charge, unreadable};
use crate::contract::StoreError;
use baton_core::Key;
use baton_core::meter::Charged;
use std::collections::HashMap;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// What a claim is as text, at most.
const CLAIM_BYTES: usize = 512;

impl Work for Charge {
    type Answer = Charged;
    const SHARES_NAMES: bool = true;
    /// Those about other names have nothing to wait for.
    const BESIDE_MIN: usize = 0;

    fn latches(&self, target: &Target) -> Vec<i64> {
        latches(target, self.keys())
    }

    fn bytes(&self) -> usize {
        self.keys().map(|key| key.name.len() + CLAIM_BYTES).sum()
    }

    async fn ask(batch: &[Waiting<Self>], session: &Session) -> Answers<Self> {
        let parameters = Parameters::of(batch.iter().map(|waiting| (&waiting.work, &waiting.latches[..])));
        let rows = session.query(&session.charge, &parameters.list()).await?;
        let mut answers: Vec<_> = batch.iter().map(|_| Err(unmentioned())).collect();
        for row in &rows {
            let answered = answered(row).map_err(|error| Failure::Silent(super::describe(&error)))?;
            let turn = usize::try_from(answered.0).unwrap_or_default();
            if let Some(answer) = turn.checked_sub(1).and_then(|place| answers.get_mut(place)) {
                *answer = answered.1;
            }
        }
        Ok(answers)
    }

    /// Of meters nobody is told.
    fn tell(self, _: &Charged, _: &Hints) {}

    fn tell_lost(_: &Hints) {}
}

/// Whose row it is, and what it says.
fn answered(row: &Row) -> Result<(i32, Result<Charged, StoreError>), tokio_postgres::Error> {
    let answer = match (row.try_get(1)?, row.try_get::<_, Option<&[u8]>>(2)?) {
        (_, None) => Err(unreadable()),
        (true, Some(memo)) => Charged::decode_memo(memo).map_err(|_| unreadable()),
        // It may have been charged.
        (false, Some(answer)) => Charged::decode(answer)
            .map_err(|_| StoreError::Unknown { detail: "the server's answer can't be read".into() }),
    };
    Ok((row.try_get(0)?, answer))
}

/// What `charge_meters` takes.
#[derive(Default)]
struct Parameters<'a> {
    latches: Vec<i64>,
    groups: Vec<i16>,
    names: Vec<&'a [u8]>,
    counts: Vec<i32>,
    places: Vec<i32>,
    claims: Vec<String>,
    memo_places: Vec<Option<i32>>,
    memo_heads: Vec<Option<Vec<u8>>>,
    memo_ttls: Vec<Option<i64>>,
}

impl<'a> Parameters<'a> {
    /// Of charges, with their locks.
    fn of(charges: impl Iterator<Item = (&'a Charge, &'a [i64])>) -> Self {
        let mut all = Self::default();
        let mut known = HashMap::new();
        for (charge, latches) in charges {
            all.latches.extend(latches);
            let mut place = |key: &'a Key| {
                let next = known.len() + 1;
                *known.entry(key).or_insert_with(|| {
                    all.groups.push(key.group.0.into());
                    all.names.push(&key.name);
                    i32::try_from(next).expect("a batch has few names")
                })
            };
            all.places.extend(charge.claims.iter().map(|claim| place(&claim.key)));
            all.memo_places.push(charge.memo.as_ref().map(|memo| place(&memo.key)));
            all.counts.push(i32::try_from(charge.claims.len()).expect("a charge has few claims"));
            all.claims.extend(charge.claims.iter().map(|claim| claim.encode()));
            let memo = charge.memo.as_ref();
            all.memo_heads.push(memo.map(|memo| memo.value(b"").to_vec()));
            all.memo_ttls.push(memo.map(|memo| micros(Duration::from_millis(memo.ttl_ms))));
        }
        all.latches.sort_unstable();
        all.latches.dedup();
        all
    }

    fn list(&self) -> [&(dyn ToSql + Sync); 9] {
        [
            &self.latches,
            &self.groups,
            &self.names,
            &self.counts,
            &self.places,
            &self.claims,
            &self.memo_places,
            &self.memo_heads,
            &self.memo_ttls,
        ]
    }
}
