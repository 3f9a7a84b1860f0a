//! What is done to all of a bundle's grants at once. They are in different groups, so each is a commit of its own, and all
//! are under way together.

use crate::engine::Engine;
use crate::failure::Failure;
use crate::lock::service::told;
use crate::lock::{Granted, LockError, Refusal};
use baton_core::bundle::Nonce;
use baton_core::lock::command::Withdraw;
use baton_core::lock::grant::{Grant, Terms};
use baton_core::lock::memo::{Fate, Memo};
use baton_core::lock::{Command, FencingToken, GrantId, Hold, LockName, LockToken};
use tokio::task::JoinSet;

/// The locks of a bundle, and what is asked of each.
pub(super) struct Grants {
    pub engine: Engine,
    /// By their keys: the order in which everybody takes them.
    pub locks: Vec<LockName>,
    pub terms: Terms,
}

impl Grants {
    /// What a lock's grant is called.
    pub fn id(&self, lock: &LockName, nonce: &Nonce) -> GrantId {
        GrantId::of_bundle(lock, &self.terms.principal, nonce)
    }

    /// Takes back what these locks have given under a nonce, or may still; `again`: until they are asked again.
    pub async fn withdraw(&self, which: &[usize], nonce: &Nonce, again: bool) -> Result<(), LockError> {
        let digest = self.terms.digest();
        let withdrawn = self.each(which, |engine, lock| {
            let (id, owner) = (self.id(&lock, nonce), self.terms.owner.clone());
            async move {
                let command = Command::Withdraw(Withdraw { id, digest, owner, again });
                told(engine.node.ask(&lock, command).await).map(drop)
            }
        });
        withdrawn.await.map_err(|(_, error)| error).map(drop)
    }

    /// Makes these leases last as long as if they had just been granted. The error is the first lock's whose isn't there.
    pub async fn renew(
        &self,
        held: &mut [Option<Granted>],
        which: &[usize],
    ) -> Result<(), (usize, LockError)> {
        let ttl = self.terms.ttl;
        let tokens: Vec<_> =
            held.iter().map(|granted| granted.as_ref().map(|granted| granted.token)).collect();
        let renewed = self
            .each(which, |engine, lock| {
                let index = self.locks.iter().position(|other| *other == lock);
                let token = index.and_then(|index| tokens[index]);
                async move {
                    let token = token.ok_or(LockError::Failed(Failure::Internal))?;
                    engine.renew_grant(&lock, &token, ttl).await
                }
            })
            .await?;
        for (index, renewed) in which.iter().zip(renewed) {
            if let Some(granted) = &mut held[*index] {
                granted.expires_at = renewed.expires_at;
            }
        }
        Ok(())
    }

    /// The grants of a bundle that is held, renewed. Nothing is taken that isn't there any more.
    pub async fn find_again(&self, nonce: &Nonce) -> Result<Vec<Granted>, (usize, LockError)> {
        let which: Vec<_> = (0..self.locks.len()).collect();
        self.each(&which, |engine, lock| {
            let (id, terms) = (self.id(&lock, nonce), self.terms.clone());
            async move { find_again(&engine, &lock, id, &terms).await }
        })
        .await
    }

    /// Does something with each of these locks, all at once. What came of it, in their order, or the first error.
    async fn each<T: Send + 'static, Doing>(
        &self,
        which: &[usize],
        mut what: impl FnMut(Engine, LockName) -> Doing,
    ) -> Result<Vec<T>, (usize, LockError)>
    where
        Doing: Future<Output = Result<T, LockError>> + Send + 'static,
    {
        let mut under_way = JoinSet::new();
        for (place, index) in which.iter().enumerate() {
            let doing = what(self.engine.clone(), self.locks[*index].clone());
            under_way.spawn(async move { (place, doing.await) });
        }
        let mut done: Vec<_> = which.iter().map(|_| None).collect();
        while let Some(joined) = under_way.join_next().await {
            // One that panicked is a bug, and its outcome isn't known.
            if let Ok((place, result)) = joined {
                done[place] = Some(result);
            }
        }
        let results = which.iter().zip(done).map(|(index, result)| {
            let unknown = LockError::Failed(Failure::Unavailable { unknown: true });
            result.unwrap_or(Err(unknown)).map_err(|error| (*index, error))
        });
        results.collect()
    }
}

async fn find_again(
    engine: &Engine,
    lock: &LockName,
    id: GrantId,
    terms: &Terms,
) -> Result<Granted, LockError> {
    let reading = engine.read(vec![lock.grant(id), lock.memo(id)]).await?;
    let [grant, memo] = [0, 1].map(|place| reading.records.get(place).cloned().flatten());
    let unreadable = |_| LockError::Failed(Failure::Internal);
    let Some(record) = grant else {
        let memo = memo.map(|record| Memo::decode(&record.value)).transpose().map_err(unreadable)?;
        let is_released = memo.is_some_and(|memo| memo.fate == Fate::Released);
        return Err(LockError::Refused(if is_released {
            Refusal::AlreadyReleased
        } else {
            Refusal::Expired
        }));
    };
    let grant = Grant::decode(&record.value).map_err(unreadable)?;
    let fencing = FencingToken::from(record.created);
    let parts = (id, grant.flags, fencing, terms.digest());
    let token = LockToken::new(engine.node.key()?, lock, &terms.owner, &terms.principal, parts);
    let renewed = engine.renew_grant(lock, &token, terms.ttl).await?;
    let (ttl, hold) = (terms.ttl, Hold::Exclusive);
    Ok(Granted { token, fencing, expires_at: renewed.expires_at, ttl, count: 1, hold })
}
