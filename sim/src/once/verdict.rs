//! What must hold of a key, whatever went wrong:
//! - no claim is made while another one, or a result, lives in the store's time;
//! - a result never changes while it is kept;
//! - who was told that it is first had that claim, and nobody else did;
//! - who was told that its result is stored has it stored, and who was told no has it not, from then on;
//! - who was told no, or gave up, isn't given the claim later by a commit that was still on its way.

use super::caller::{Told, What as Heard};
use baton_core::once::{ClaimId, State, state_key};
use baton_core::{Name, Write};
use baton_testkit::simulated::{Happening, What};
use std::collections::BTreeMap;
use std::time::Duration;

/// A claim, from the commit that made it.
struct Life {
    id: ClaimId,
    /// Where it is in the history.
    made: usize,
    result: Option<(usize, Vec<u8>)>,
}

pub(super) fn of(key: &Name, history: &[Happening], told: &[Told]) -> Vec<String> {
    let mut violations = Vec::new();
    let lives = lives(key, history, &mut violations);
    let mut firsts: BTreeMap<u64, ClaimId> = BTreeMap::new();
    for (place, one) in told.iter().enumerate().filter(|(_, one)| one.key == *key) {
        let mut complain = |text: String| violations.push(format!("{key:?}: {text} ({one:?})"));
        match &one.what {
            Heard::Asking => {}
            Heard::First { fencing } => {
                let life = lives.get(fencing);
                if life.is_none_or(|life| life.id != one.id || life.made >= one.after) {
                    complain("somebody was told to be first, and has no such claim".into());
                }
                if firsts.insert(*fencing, one.id).is_some_and(|other| other != one.id) {
                    complain("two were told to be first with one token".into());
                }
            }
            Heard::Completed { fencing, result } => {
                let stored = lives.get(fencing).and_then(|life| life.result.as_ref());
                if stored.is_none_or(|(at, stored)| stored != result.as_bytes() || *at >= one.after) {
                    complain("a result was said to be stored, and isn't".into());
                }
            }
            Heard::Refused { fencing, result } => {
                let stored = lives.get(fencing).and_then(|life| life.result.as_ref());
                if stored.is_some_and(|(at, stored)| stored == result.as_bytes() && *at >= one.after) {
                    complain("a result was refused, and stored later".into());
                }
            }
            Heard::Later | Heard::Failed => {
                let asked_again =
                    told[place + 1..].iter().find(|next| next.id == one.id && next.what == Heard::Asking);
                let until = asked_again.map_or(usize::MAX, |next| next.after);
                let made = |life: &Life| life.id == one.id && life.made >= one.after && life.made < until;
                if lives.values().any(made) {
                    complain("who was told no, or gave up, has the claim all the same".into());
                }
            }
        }
    }
    violations
}

/// Every claim of a key, by its fencing token.
fn lives(key: &Name, history: &[Happening], violations: &mut Vec<String>) -> BTreeMap<u64, Life> {
    let place = state_key(key);
    let mut lives: BTreeMap<u64, Life> = BTreeMap::new();
    // The claim whose record is there, and until when.
    let mut present: Option<(u64, Duration)> = None;
    for (index, happening) in history.iter().enumerate() {
        let What::Committed { revision, commit } = &happening.what else { continue };
        for write in commit.writes.iter().filter(|write| *write.key() == place) {
            let alive = present.filter(|(_, until)| *until > happening.at);
            let mut complain = |text: &str| violations.push(format!("{key:?} at {:?}: {text}", happening.at));
            match write {
                Write::Put { value, ttl, .. } => {
                    let until = happening.at + ttl.length().unwrap_or_default();
                    match State::decode(value) {
                        Ok(State::Running(running)) => {
                            if alive.is_some() {
                                complain("a second claim while one lives");
                            }
                            lives.insert(revision.0, Life { id: running.id, made: index, result: None });
                            present = Some((revision.0, until));
                        }
                        Ok(State::Done(done)) => match alive.and_then(|(token, _)| lives.get_mut(&token)) {
                            None => complain("a result without a claim"),
                            Some(life) if life.result.is_some() => complain("a result changed"),
                            Some(life) => {
                                life.result = Some((index, done.result.to_vec()));
                                present = alive.map(|(token, _)| (token, until));
                            }
                        },
                        Err(_) => complain("a state that can't be read"),
                    }
                }
                Write::Touch { ttl, .. } => {
                    let is_done = |token| lives.get(&token).is_some_and(|life: &Life| life.result.is_some());
                    if alive.is_none_or(|(token, _)| is_done(token)) {
                        complain("something else than a running claim was renewed");
                    }
                    present = alive.map(|(token, until)| (token, until.max(happening.at + *ttl)));
                }
                Write::Delete { .. } => {
                    if alive
                        .is_some_and(|(token, _)| lives.get(&token).is_some_and(|life| life.result.is_some()))
                    {
                        complain("a result was deleted");
                    }
                    present = None;
                }
            }
        }
    }
    lives
}
