//! What a caller does: claims, works, completes, renews, gives up or is gone; and what it was told.

use super::World;
use baton_core::Name;
use baton_core::once::ClaimId;
use baton_engine::Failure;
use baton_engine::once::{ClaimCall, Claimed, OnceError, Refusal};
use baton_testkit::Dice;
use std::sync::Arc;
use std::time::Duration;

/// Something that somebody was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// How much had happened in the store before.
    pub after: usize,
    pub key: Name,
    /// Of the claim's request.
    pub id: ClaimId,
    pub what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// A call is about to be made: whatever it was told before may be over.
    Asking,
    First {
        fencing: u64,
    },
    /// Somebody else is at it, or it was done.
    Later,
    Completed {
        fencing: u64,
        result: String,
    },
    /// The claim is no more, or was completed otherwise.
    Refused {
        fencing: u64,
        result: String,
    },
    Failed,
}

pub(super) async fn run(world: Arc<World>, number: usize, mut dice: Dice) {
    let mut round = 0;
    while !world.is_calm() {
        round += 1;
        tokio::time::sleep(dice.millis((0, 300))).await;
        let key = world.keys[dice.below(world.keys.len() as u64) as usize].clone();
        let request_id = format!("{number}-{round}");
        let caller = Caller { id: ClaimId::of(&key, "", &request_id), world: world.clone(), key, number };
        caller.round(request_id, &mut dice).await;
    }
}

struct Caller {
    world: Arc<World>,
    key: Name,
    id: ClaimId,
    number: usize,
}

impl Caller {
    fn hear(&self, what: What) {
        let (key, id, after) = (self.key.clone(), self.id, self.world.store.happened());
        self.world.told().push(Told { after, key, id, what });
    }

    fn engine(&self, dice: &mut Dice) -> baton_engine::Engine {
        self.world.engines[dice.below(self.world.engines.len() as u64) as usize].clone()
    }

    async fn round(&self, request_id: String, dice: &mut Dice) {
        let ttl = dice.millis((300, 2000));
        let wait = if dice.chance(500) { dice.millis((1, 1500)) } else { Duration::ZERO };
        // What a call left behind that was never answered for certain may still arrive, whatever later ones are told.
        let mut was_unknown = false;
        let (token, fencing) = loop {
            let call = ClaimCall {
                owner: format!("caller {}", self.number).into(),
                principal: "".into(),
                ttl,
                request_id: Some(request_id.clone()),
                wait,
            };
            self.hear(What::Asking);
            let claimed = self.engine(dice).claim_once(&self.key, call).await;
            if dice.chance(50) {
                // The answer is lost on the way to the caller: it asks again, or is gone.
                if dice.chance(300) {
                    return;
                }
                continue;
            }
            match claimed {
                Ok(Claimed::First(first)) => break (first.token.reveal(), first.fencing.0),
                Ok(Claimed::Later(_)) if was_unknown => return,
                Ok(Claimed::Later(_)) => return self.hear(What::Later),
                Err(OnceError::Refused(_)) => return,
                // Asked again only if nobody knows: else nothing of it may come any more.
                Err(OnceError::Failed(Failure::Unavailable { unknown: true })) => {
                    was_unknown = true;
                    tokio::time::sleep(dice.millis((1, 50))).await;
                }
                Err(OnceError::Failed(_)) if was_unknown => return,
                Err(OnceError::Failed(_)) => return self.hear(What::Later),
            }
        };
        self.hear(What::First { fencing });
        tokio::time::sleep(dice.millis((0, 400))).await;
        if dice.chance(200) {
            // If that doesn't work, the completion shows it.
            self.engine(dice).renew_once(&self.key, &token, "", ttl).await.ok();
            tokio::time::sleep(dice.millis((0, 400))).await;
        }
        if dice.chance(150) {
            return;
        }
        if dice.chance(150) {
            // Stopped for longer than the claim lasts.
            tokio::time::sleep(ttl * 2).await;
        }
        if dice.chance(400) {
            return self.fail(&token, dice).await;
        }
        self.complete(&token, fencing, dice).await;
    }

    async fn complete(&self, token: &str, fencing: u64, dice: &mut Dice) {
        let result = format!("{} under {fencing}", self.number);
        loop {
            let (bytes, kept) = (result.as_bytes().into(), dice.millis((500, 3000)));
            match self.engine(dice).complete_once(&self.key, token, "", bytes, kept).await {
                Ok(_) => return self.hear(What::Completed { fencing, result }),
                Err(OnceError::Refused(Refusal::Lost | Refusal::AlreadyCompleted)) => {
                    return self.hear(What::Refused { fencing, result });
                }
                Err(_) => tokio::time::sleep(dice.millis((1, 50))).await,
            }
        }
    }

    async fn fail(&self, token: &str, dice: &mut Dice) {
        loop {
            match self.engine(dice).fail_once(&self.key, token, "").await {
                Ok(()) => return self.hear(What::Failed),
                Err(OnceError::Refused(_)) => return,
                Err(OnceError::Failed(_)) => tokio::time::sleep(dice.millis((1, 50))).await,
            }
        }
    }
}
