//! The rules of a fence.

use super::check::{Check, Checked, check, forget};
use super::record::{Fence, Tally};
use super::{FENCE, fence_key};
use crate::commit::{Commit, Outcome};
use crate::lock::tests::store::{Asked, Store};
use crate::name::Name;
use crate::record::WallTime;
use crate::trial::{decide, decide_with};
use alloc::vec::Vec;
use proptest::prelude::*;

const ACCEPTED: Checked = Checked::Accepted { raised: false };
const RAISED: Checked = Checked::Accepted { raised: true };

fn name() -> Name {
    Name::new("n", "table/stock")
}

fn asked(token: u64, strict: bool, id: u8) -> Check {
    Check { token, strict, id: [id; 16], unwritten: Tally::default() }
}

fn ask(store: &mut Store, asked: &Check) -> Checked {
    let (name, now) = (name(), WallTime(store.now));
    decide(store, name.group(), |view| check(&name, asked, view, now)).0
}

fn fence(store: &Store) -> Fence {
    Fence::decode(&store.look(&fence_key(&name())).unwrap().value).unwrap()
}

#[test]
fn lower_is_stale_equal_is_fine_higher_is_remembered() {
    let mut store = Store::default();
    let stale = |highest| Checked::Stale { highest };
    let checks = [
        (34, false, RAISED),
        (34, false, ACCEPTED),
        (33, false, stale(34)),
        (34, true, stale(34)),
        (35, true, RAISED),
        (34, false, stale(35)),
        (35, false, ACCEPTED),
        (40, false, RAISED),
        (39, true, stale(40)),
    ];
    for (id, (token, strict, answer)) in checks.into_iter().enumerate() {
        assert_eq!(ask(&mut store, &asked(token, strict, id as u8)), answer, "{token}, strict: {strict}");
    }
}

#[test]
fn a_strict_check_that_is_sent_again_is_accepted_again_and_another_s_is_not() {
    let mut store = Store::default();
    assert_eq!(ask(&mut store, &asked(34, true, 1)), RAISED);
    assert_eq!(ask(&mut store, &asked(34, true, 1)), ACCEPTED);
    assert_eq!(ask(&mut store, &asked(34, true, 2)), Checked::Stale { highest: 34 });
}

#[test]
fn only_a_higher_token_writes() {
    let mut store = Store::default();
    ask(&mut store, &asked(34, false, 1));
    let before = store.revision;
    for (token, strict) in [(34, false), (33, false), (34, true), (1, true)] {
        store.asked = Asked::default();
        ask(&mut store, &asked(token, strict, 2));
        assert_eq!(store.asked, Asked { commits: 0, reads: 1 }, "{token}, strict: {strict}");
    }
    assert_eq!(store.revision, before);
}

#[test]
fn counts_that_were_not_written_are_when_something_is() {
    let mut store = Store::default();
    ask(&mut store, &asked(34, false, 1));
    let unwritten = Tally { accepted: 5, refused: 2 };
    ask(&mut store, &Check { unwritten, ..asked(34, false, 1) });
    assert_eq!(fence(&store).tally, Tally { accepted: 1, refused: 0 });
    ask(&mut store, &Check { unwritten, ..asked(35, false, 1) });
    assert_eq!(fence(&store).tally, Tally { accepted: 7, refused: 2 });
}

#[test]
fn a_fence_never_expires_and_is_forgotten_only_when_told() {
    let mut store = Store::default();
    ask(&mut store, &asked(34, false, 1));
    store.now = u64::MAX / 2;
    assert_eq!(ask(&mut store, &asked(33, false, 1)), Checked::Stale { highest: 34 });
    let name = name();
    let (forgotten, _) = decide(&mut store, name.group(), |view| forget(&name, view));
    assert_eq!(forgotten.map(|fence| fence.highest), Some(34));
    assert_eq!(decide(&mut store, name.group(), |view| forget(&name, view)).0, None);
    assert!(store.all(&FENCE).is_empty());
}

proptest! {
    /// Commits of unknown outcome are sent again, and copies of them arrive at any time.
    #[test]
    fn what_was_accepted_is_never_undercut(
        steps in proptest::collection::vec((1..20_u64, any::<bool>(), any::<bool>(), any::<u8>()), 1..60),
    ) {
        let (mut store, name) = (Store::default(), name());
        let mut late: Vec<Commit> = Vec::new();
        let mut highest = 0;
        for (token, strict, lost, which) in steps {
            let check_asked = asked(token, strict, which);
            let mut lost = lost;
            let before = store.look(&fence_key(&name)).map(|_| fence(&store).highest).unwrap_or(0);
            let send = |store: &mut Store, commit: &Commit| -> Outcome {
                if core::mem::take(&mut lost) {
                    store.commit(commit);
                    late.push(commit.clone());
                }
                store.commit(commit)
            };
            let (checked, _) =
                decide_with(&mut store, name.group(), |view| check(&name, &check_asked, view, WallTime(0)), send);
            match checked {
                Checked::Accepted { .. } => {
                    prop_assert!(token >= before && token >= highest);
                    highest = token;
                }
                Checked::Stale { highest: told } => prop_assert!(told == before && token <= told),
            }
            if !late.is_empty() && which % 2 == 0 {
                let copy = late.remove(usize::from(which) % late.len());
                store.commit(&copy);
            }
            let now = fence(&store).highest;
            prop_assert!(now >= before, "it went down from {before} to {now}");
        }
    }
}
