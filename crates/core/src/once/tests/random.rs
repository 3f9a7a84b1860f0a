//! A random walk: claims of unknown outcome whose commits arrive late, crashes, results.

use super::world::{KEPT, MEMORY, World, millis};
use crate::commit::{Commit, Outcome};
use crate::lock::tests::store::Store;
use crate::once::claim::{Claimed, void};
use crate::once::holder::Ended;
use crate::once::state::State;
use crate::once::token::ClaimToken;
use crate::once::{claim, state_key};
use crate::record::WallTime;
use crate::trial::{decide, decide_with};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;

const CALLERS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// A caller claims; the answer to one of its commits gets lost, and a copy of that is still on its way.
    Claim {
        caller: usize,
        lost: Option<usize>,
        arrived: bool,
    },
    /// A copy arrives.
    Arrive(usize),
    Pass(u64),
    Complete(usize),
    Renew(usize),
    Fail(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let caller = 0..CALLERS;
    prop_oneof![
        4 => (caller.clone(), proptest::option::of(0..2_usize), any::<bool>())
            .prop_map(|(caller, lost, arrived)| Step::Claim { caller, lost, arrived }),
        3 => any::<usize>().prop_map(Step::Arrive),
        2 => (0..700_u64).prop_map(Step::Pass),
        1 => caller.clone().prop_map(Step::Complete),
        1 => caller.clone().prop_map(Step::Renew),
        2 => caller.prop_map(Step::Fail),
    ]
}

/// What the callers were told, and what is on its way.
struct Walk {
    world: World,
    /// Each caller's claim, if it was told that it is first and hasn't given it up.
    firsts: BTreeMap<usize, ClaimToken>,
    /// Whose each fencing token is.
    tokens: BTreeMap<u64, usize>,
    /// What each token's claim was completed with.
    results: BTreeMap<u64, String>,
    late: Vec<Commit>,
    rounds: usize,
}

impl Walk {
    fn request(&self, caller: usize) -> String {
        format!("caller {caller}")
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Claim { caller, lost, arrived } => self.claim(*caller, *lost, *arrived),
            Step::Arrive(which) if !self.late.is_empty() => {
                let late = self.late.remove(which % self.late.len());
                self.world.store.commit(&late);
            }
            Step::Arrive(_) => {}
            Step::Pass(millis) => self.world.store.now += millis,
            Step::Complete(caller) => {
                let Some(token) = self.firsts.get(caller).copied() else { return };
                self.rounds += 1;
                let result = format!("result {}", self.rounds);
                if self.world.complete(&token, &result) == Ended::Yes {
                    let before = self.results.insert(token.fencing.0, result);
                    assert_eq!(before, None, "completed twice");
                }
            }
            Step::Renew(caller) => {
                let Some(token) = self.firsts.get(caller).copied() else { return };
                self.world.renew(&token, millis(1000));
            }
            Step::Fail(caller) => {
                let Some(token) = self.firsts.get(caller).copied() else { return };
                if self.world.fail(&token) == Ended::Yes {
                    self.firsts.remove(caller);
                }
            }
        }
    }

    fn claim(&mut self, caller: usize, lost: Option<usize>, arrived: bool) {
        let request = self.world.request(&self.request(caller));
        let (name, now) = (self.world.name.clone(), WallTime(self.world.store.now));
        let group = name.group();
        let (mut sent, mut doubtful) = (0, false);
        let late = &mut self.late;
        let send = |store: &mut Store, commit: &Commit| -> Outcome {
            sent += 1;
            if lost == Some(sent - 1) {
                doubtful = true;
                if arrived {
                    store.commit(commit);
                }
                late.push(commit.clone());
            }
            store.commit(commit)
        };
        let store = &mut self.world.store;
        let (mut claimed, mut revision) =
            decide_with(store, group, |view| claim(&name, &request, view, now), send);
        if doubtful {
            decide(store, group, |view| void(&name, request.id, MEMORY, view));
            (claimed, revision) = decide(store, group, |view| claim(&name, &request, view, now));
        }
        match claimed {
            Claimed::First { fencing } => {
                let fencing = fencing.resolve(revision).0;
                let owner = *self.tokens.entry(fencing).or_insert(caller);
                assert_eq!(owner, caller, "two were first with token {fencing}");
                self.firsts.insert(caller, self.world.token(&self.request(caller), fencing));
            }
            Claimed::Done { done, fencing, .. } => {
                let expected = self.results.get(&fencing.resolve(revision).0).map(String::as_bytes);
                assert_eq!(Some(&*done.result), expected, "a result that nobody gave, or another one");
                self.firsts.remove(&caller);
            }
            _ => drop(self.firsts.remove(&caller)),
        }
    }

    /// A claim in the store belongs to somebody who was told so, or is still waiting to hear.
    fn assert_sane(&self) {
        let Some(record) = self.world.store.look(&state_key(&self.world.name)) else { return };
        match State::decode(&record.value).unwrap() {
            State::Running(running) => {
                let caller = (0..CALLERS).find(|caller| self.world.id(&self.request(*caller)) == running.id);
                let caller = caller.expect("made by one of them");
                assert!(self.firsts.contains_key(&caller), "{caller} was told no, or gave up, and has it");
            }
            State::Done(done) => {
                let expected = self.results.get(&record.created.0).map(String::as_bytes);
                assert_eq!(Some(&*done.result), expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nobody_has_what_it_was_told_it_does_not_and_results_never_change(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let (world, results) = (World::new(), BTreeMap::new());
        let (firsts, tokens, late) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut walk = Walk { world, firsts, tokens, results, late, rounds: 0 };
        assert!(KEPT > millis(60 * 700), "no result is forgotten in a walk");
        for step in &steps {
            walk.step(step);
            walk.assert_sane();
        }
    }
}
