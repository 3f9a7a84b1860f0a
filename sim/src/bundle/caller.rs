//! What a caller does: asks for several locks, goes away, asks again or twice at a time; and what it was told.

use super::World;
use baton_core::lock::LockName;
use baton_engine::bundle::{BundleCall, BundleError};
use baton_engine::lock::{Failure, Granted, LockError, Refusal, ReleaseCall, Wait};
use baton_testkit::Dice;
use std::sync::Arc;
use std::time::Duration;

/// Something that somebody was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// When, by the store's clock.
    pub at: Duration,
    /// The request's, which is also its owner.
    pub request: String,
    pub what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// All are its own, with these tokens.
    Granted { tokens: Vec<(LockName, u64)> },
    /// It begins to give them back.
    Releases,
    /// None is, for certain, and nobody asks again.
    Refused,
}

pub(super) async fn run(world: Arc<World>, number: usize, mut dice: Dice) {
    let mut round = 0;
    while !world.is_calm() {
        round += 1;
        tokio::time::sleep(dice.millis((0, 200))).await;
        let mut locks = world.locks.clone();
        while locks.len() > 3 || locks.len() > 2 && dice.chance(500) {
            locks.remove(dice.below(locks.len() as u64) as usize);
        }
        if dice.chance(500) {
            locks.reverse();
        }
        let call = BundleCall {
            locks,
            owner: format!("{number}-{round}").into(),
            principal: "".into(),
            ttl: dice.millis((800, 3000)),
            wait: match dice.below(3) {
                0 => Wait::No,
                1 => Wait::AtMost(dice.millis((1, 1500))),
                _ => Wait::Forever,
            },
            request_id: Some(format!("{number}-{round}")),
            metadata: None,
            delay: Duration::ZERO,
        };
        let caller = Caller { world: world.clone(), call };
        if dice.chance(150) {
            // The same request, twice at a time: whoever is granted it holds it, and both may be.
            let twin = Caller { world: world.clone(), call: caller.call.clone() };
            let mut other = dice.fork();
            let twin = tokio::spawn(async move { twin.round(&mut other, true).await });
            caller.round(&mut dice, true).await;
            twin.await.expect("no panic");
        } else {
            caller.round(&mut dice, false).await;
        }
    }
}

struct Caller {
    world: Arc<World>,
    call: BundleCall,
}

impl Caller {
    fn hear(&self, what: What) {
        let (at, request) = (self.world.store.now(), self.call.owner.to_string());
        self.world.told().push(Told { at, request, what });
    }

    fn engine(&self, dice: &mut Dice) -> baton_engine::Engine {
        self.world.engines[dice.below(self.world.engines.len() as u64) as usize].clone()
    }

    async fn round(&self, dice: &mut Dice, has_twin: bool) {
        // What a call left behind that was never answered for certain may still be there, whatever a later one couldn't do.
        let mut was_unknown = false;
        let granted = loop {
            let asked = self.ask(dice).await;
            match asked {
                Some(Ok(granted)) => break granted,
                None if dice.chance(300) => return,
                None => was_unknown = true,
                Some(Err(error)) => match error.error {
                    LockError::Failed(Failure::Unavailable { unknown: true })
                    | LockError::Refused(Refusal::StillWaiting { .. }) => {
                        was_unknown = true;
                        tokio::time::sleep(dice.millis((1, 50))).await;
                    }
                    LockError::Refused(Refusal::AlreadyReleased | Refusal::Expired) => return,
                    LockError::Failed(_) if was_unknown => return,
                    _ if has_twin => return,
                    _ => return self.hear(What::Refused),
                },
            }
        };
        let tokens = self.call.locks.iter().cloned().zip(granted.iter().map(|granted| granted.fencing.0));
        self.hear(What::Granted { tokens: tokens.collect() });
        tokio::time::sleep(dice.millis((0, 300))).await;
        if dice.chance(100) {
            // It dies: the leases run out.
            return;
        }
        self.hear(What::Releases);
        for (lock, granted) in self.call.locks.iter().zip(&granted) {
            self.release(lock, granted, dice).await;
        }
    }

    /// One call; nothing if its caller went away before it was answered.
    async fn ask(&self, dice: &mut Dice) -> Option<Result<Vec<Granted>, BundleError>> {
        let engine = self.engine(dice);
        let asked = engine.acquire_all(self.call.clone());
        if dice.chance(150) {
            return tokio::time::timeout(dice.millis((0, 300)), asked).await.ok();
        }
        Some(asked.await)
    }

    async fn release(&self, lock: &LockName, granted: &Granted, dice: &mut Dice) {
        loop {
            let call = ReleaseCall {
                token: granted.token.reveal(),
                owner: self.call.owner.clone(),
                principal: "".into(),
                request_id: None,
            };
            match self.engine(dice).release(lock, call).await {
                Ok(()) | Err(LockError::Refused(_)) => return,
                Err(LockError::Failed(_)) => tokio::time::sleep(dice.millis((1, 50))).await,
            }
        }
    }
}
