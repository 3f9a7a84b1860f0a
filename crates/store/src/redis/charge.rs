//! Charges as a script's arguments, and the script's answers.

use super::codec::{self, Answer, Names, Terms};
use crate::charge::{Charge, KEPT_LONGER_MS, unreadable};
use crate::contract::StoreError;
use ::redis::Cmd;
use baton_core::Group;
use baton_core::meter::Charged;
use std::time::Duration;

/// Adds what comes after the script's hash.
pub(super) fn encode(command: &mut Cmd, charge: &Charge, terms: &Terms<'_>) {
    let mut groups: Vec<Group> = Vec::with_capacity(1);
    for key in charge.keys() {
        if !groups.contains(&key.group) {
            groups.push(key.group);
        }
    }
    // The script counts from one.
    let place = |group: Group| groups.iter().position(|known| *known == group).unwrap_or_default() + 1;
    command.arg(3 * groups.len() + charge.keys().count());
    for group in &groups {
        command.arg(Names::new(terms.prefix, *group).counter());
    }
    for key in charge.keys() {
        command.arg(Names::new(terms.prefix, key.group).record(&key.name));
    }
    for group in &groups {
        let names = Names::new(terms.prefix, *group);
        command.arg(names.index()).arg(names.expiry());
    }
    // All groups' names are of one length.
    let length = Names::new(terms.prefix, Group(0)).length();
    command.arg(terms.floor).arg(u8::from(terms.mark)).arg(length + 1).arg(groups.len()).arg(KEPT_LONGER_MS);
    match &charge.memo {
        Some(memo) => {
            let ttl_us = codec::micros(Duration::from_millis(memo.ttl_ms));
            command.arg(&memo.digest).arg(ttl_us).arg(place(memo.key.group));
        }
        None => drop(command.arg("").arg("").arg("")),
    }
    for claim in &charge.claims {
        command.arg(claim.encode()).arg(place(claim.key.group));
    }
}

/// What became of a charge, now or when it was first sent.
pub(super) fn charged(answer: Answer) -> Result<Charged, StoreError> {
    let Some(Some(text)) = answer.records.into_iter().next() else { return Err(codec::strange()) };
    match answer.kind {
        b'A' => Charged::decode(&text).map_err(|_| codec::strange()),
        b'M' => Charged::decode_memo(&text).map_err(|_| unreadable()),
        _ => Err(codec::strange()),
    }
}
