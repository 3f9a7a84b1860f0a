//! Any sequence of calls for one request, whose commits arrive late, twice or never: the record moves as it may, and no
//! call is told more than is true.

use super::world::{Step, Way, World, call};
use crate::bundle::{Begun, Bundle, Nonce, Phase};
use crate::commit::Commit;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Debug)]
enum Happens {
    Begin {
        repeated: bool,
    },
    Step {
        of: Index,
        step: u8,
        repeated: bool,
    },
    /// A step's commit is sent and nothing heard of it.
    Lose {
        of: Index,
        step: u8,
    },
    /// One of these arrives.
    Arrive(Index),
}

fn happens() -> impl Strategy<Value = Happens> {
    let (of, step) = (any::<Index>, 0..8_u8);
    prop_oneof![
        3 => any::<bool>().prop_map(|repeated| Happens::Begin { repeated }),
        5 => (of(), step.clone(), any::<bool>()).prop_map(|(of, step, repeated)| Happens::Step { of, step, repeated }),
        2 => (of(), step).prop_map(|(of, step)| Happens::Lose { of, step }),
        3 => of().prop_map(Happens::Arrive),
    ]
}

struct Walk {
    world: World,
    calls: Vec<Nonce>,
    /// What each call's grants are made of, as far as it knows.
    nonces: BTreeMap<Nonce, Nonce>,
    late: Vec<Commit>,
    next: u8,
}

impl Walk {
    fn fresh(&mut self) -> Nonce {
        self.next += 1;
        call(self.next)
    }

    fn step_of(&mut self, by: Nonce, step: u8) -> Step {
        match step {
            0..=2 => Step::Seal(self.nonces[&by]),
            3 => Step::Rest(1),
            4 | 5 => Step::Renew(self.fresh()),
            6 => Step::Close,
            _ => Step::Forsake,
        }
    }

    fn happen(&mut self, happens: &Happens) {
        let before = self.world.record();
        let way = |repeated: bool| if repeated { Way::Repeated } else { Way::Answered };
        match happens {
            Happens::Begin { repeated } => {
                let by = self.fresh();
                let begun = self.world.begin(by, way(*repeated));
                let now = self.world.record().expect("it has begun");
                assert_eq!(now.by, by);
                match begun {
                    Begun::Trying { nonce, stale, .. } => {
                        self.calls.push(by);
                        self.nonces.insert(by, nonce);
                        assert_eq!((nonce, now.phase), (now.nonce, Phase::Trying { stale: stale.clone() }));
                        // Whoever was trying under a nonce that isn't used any more is to be withdrawn.
                        if let Some(Bundle { nonce: old, phase: Phase::Trying { .. }, .. }) = before.clone() {
                            assert!(stale.contains(&old), "{old:?} is left behind");
                        }
                    }
                    Begun::Held { nonce } => assert_eq!((nonce, now.phase), (now.nonce, Phase::Held)),
                    Begun::RequestIdReused => panic!("it is the same request"),
                }
            }
            Happens::Step { of, step, repeated } if !self.calls.is_empty() => {
                let by = *of.get(&self.calls);
                let step = self.step_of(by, *step);
                let is_own = self.world.step(by, step, way(*repeated));
                let now = self.world.record();
                match step {
                    Step::Seal(nonce) => {
                        let is_held = |now: &Bundle| (now.nonce, &now.phase) == (nonce, &Phase::Held);
                        assert_eq!(
                            is_own,
                            now.as_ref().is_some_and(is_held),
                            "what counts, and nothing else"
                        );
                    }
                    Step::Renew(fresh) if is_own => drop(self.nonces.insert(by, fresh)),
                    _ => {}
                }
                if before.as_ref().is_none_or(|before| before.by != by) {
                    assert_eq!(now, before, "{step:?} of a call that isn't at it");
                }
            }
            Happens::Lose { of, step } if !self.calls.is_empty() => {
                let by = *of.get(&self.calls);
                let step = self.step_of(by, *step);
                self.late.extend(self.world.unsent(by, step));
            }
            Happens::Arrive(which) if !self.late.is_empty() => {
                let commit = which.get(&self.late).clone();
                self.world.store.commit(&commit);
            }
            _ => {}
        }
        self.check_move(before);
    }

    /// What is held is never tried again, except that the call that it was last given to takes it back.
    fn check_move(&self, before: Option<Bundle>) {
        let Some(before) = before.filter(|before| before.phase == Phase::Held) else { return };
        if let Some(now) = self.world.record() {
            assert_eq!(now.nonce, before.nonce);
            assert!(now.phase == Phase::Held || now.by == before.by, "{now:?} after {before:?}");
        }
    }
}

proptest! {
    #[test]
    fn whatever_arrives_late_or_twice_what_is_held_stays_and_who_was_taken_over_seals_nothing(
        happens in proptest::collection::vec(happens(), 1..60),
    ) {
        let mut walk = Walk { world: World::new(), calls: Vec::new(), nonces: BTreeMap::new(), late: Vec::new(), next: 0 };
        for one in &happens {
            walk.happen(one);
        }
    }
}
