//! Taking the locks of a bundle: one by one, in the order of their keys, and **holding nothing while it waits**.
//!
//! A lock that can't be had sends everything back; then the attempt stands in that lock's queue, and when it has it, tries
//! the others again without waiting. So nobody ever waits for somebody who waits, and there is no deadlock. Two attempts
//! may still take from each other what both need; a pause of random length ends that.

use super::calls::BundleError;
use super::delivery::Delivery;
use super::grants::Grants;
use crate::failure::Failure;
use crate::lock::service::{Bid, Patience};
use crate::lock::{Granted, HeldBy, LockError, Refusal, Wait};
use baton_core::bundle::{self, Nonce};
use baton_core::{Name, Pause, View};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How often an attempt that doesn't wait begins anew because a lease ran out before all were there.
const FRESH_MAX: u32 = 3;
/// The longest pause after an attempt that met others, as a power of two in milliseconds.
const PAUSE_BITS_MAX: u32 = 6;

/// Where an answer goes; closed when nobody wants it any more.
pub(super) type Caller = oneshot::Sender<Result<Delivery, BundleError>>;

/// The call that tries now.
pub(super) struct Attempt {
    pub grants: Grants,
    /// What the bundle is called.
    pub name: Name,
    /// This call's own.
    pub by: Nonce,
    /// What its grants' ids are made of.
    pub nonce: Nonce,
    /// How long the bundle's record is kept.
    pub kept: Duration,
    pub wait: Wait,
    pub began: Instant,
    /// Locks at which something may be, in the order of `grants.locks`.
    pub touched: Vec<bool>,
}

/// Why an attempt ended without its locks.
pub(super) enum Stop {
    /// A lock can't be had.
    Refused(usize, Refusal),
    /// It has waited as long as one call may, and its place at a lock is kept.
    Rests(usize, HeldBy),
    /// Another call of the same request is at it now.
    Overtaken,
    /// Nobody wants the answer any more.
    Gone,
    /// It couldn't be done.
    Failed(Failure),
    /// Something may be held, and it isn't this call's to say what: the next one finds out.
    Unknown,
}

impl Attempt {
    /// Takes all locks, and makes that true. In the order of their keys. Begins at a lock where a place is kept for it.
    pub async fn run(&mut self, kept_at: Option<usize>, caller: &mut Caller) -> Result<Vec<Granted>, Stop> {
        let (mut waits_at, mut round, mut renewals) = (kept_at, 0, 0);
        loop {
            let mut held: Vec<_> = self.grants.locks.iter().map(|_| None).collect();
            let blocked = match self.round(waits_at.take(), &mut held, caller).await {
                Ok(()) => return self.seal(held, caller).await,
                Err(blocked) => blocked,
            };
            match blocked {
                Blocked::Held(index, refusal) => {
                    if self.wait == Wait::No {
                        return Err(Stop::Refused(index, refusal));
                    }
                    // Before it waits, and known to be so: nobody may wait for somebody who waits.
                    self.take_back(true).await?;
                    self.pause(round, caller).await?;
                    waits_at = Some(index);
                }
                Blocked::Expired(index) => {
                    renewals += 1;
                    if renewals > FRESH_MAX && self.patience().is_none_or(|patience| patience.limit.is_zero())
                    {
                        return Err(Stop::Refused(index, Refusal::Expired));
                    }
                    self.renew_nonce().await?;
                }
                Blocked::For(stop) => return Err(stop),
            }
            round += 1;
        }
    }

    /// One round: stands in line at one lock, if any, and takes all others that are free. Then every lease is as if it had
    /// just been granted, which also shows that all were held at one moment: the last grant's.
    async fn round(
        &mut self,
        waits_at: Option<usize>,
        held: &mut [Option<Granted>],
        caller: &mut Caller,
    ) -> Result<(), Blocked> {
        let first = waits_at.into_iter();
        let others = (0..held.len()).filter(|index| Some(*index) != waits_at);
        let order: Vec<_> = first.chain(others).collect();
        for index in &order {
            if caller.is_closed() {
                return Err(Blocked::For(Stop::Gone));
            }
            let granted = match Some(*index) == waits_at {
                true => self.wait_at(*index, caller).await?,
                false => self.take(*index, None).await?,
            };
            held[*index] = Some(granted);
        }
        let earlier = &order[..order.len() - 1];
        self.grants.renew(held, earlier).await.map_err(|(index, error)| match error {
            LockError::Refused(_) => Blocked::Expired(index),
            LockError::Failed(failure) => Blocked::For(Stop::Failed(failure)),
        })
    }

    /// Stands in a lock's queue, holding nothing.
    async fn wait_at(&mut self, index: usize, caller: &mut Caller) -> Result<Granted, Blocked> {
        let Some(patience) = self.patience() else {
            // The node is about to stop: the next one takes the call on.
            return Err(Blocked::For(Stop::Rests(index, HeldBy::default())));
        };
        tokio::select! {
            biased;
            taken = self.take(index, Some(patience)) => taken,
            () = caller.closed() => Err(Blocked::For(Stop::Gone)),
        }
    }

    async fn take(&mut self, index: usize, patience: Option<Patience>) -> Result<Granted, Blocked> {
        self.touched[index] = true;
        let lock = &self.grants.locks[index];
        let (id, terms) = (self.grants.id(lock, &self.nonce), self.grants.terms.clone());
        let bid = Bid { id, terms, rank: 0, patience, request_id: String::new() };
        let refusal = match self.grants.engine.take(lock, bid).await {
            Ok(granted) => return Ok(granted),
            Err(LockError::Failed(failure)) => return Err(Blocked::For(Stop::Failed(failure))),
            Err(LockError::Refused(refusal)) => refusal,
        };
        Err(match refusal {
            Refusal::StillWaiting { held, .. } => Blocked::For(Stop::Rests(index, held)),
            Refusal::AlreadyReleased => Blocked::For(Stop::Overtaken),
            Refusal::Expired => Blocked::Expired(index),
            refusal => {
                // Nothing of it is there, nor comes: that is what a refusal says. Except to whoever has waited: it may have
                // been handed the lock by a commit whose answer got lost, and have left without knowing.
                self.touched[index] = patience.is_some();
                match refusal {
                    Refusal::Held(_) | Refusal::Delayed(_) => Blocked::Held(index, refusal),
                    refusal => Blocked::For(Stop::Refused(index, refusal)),
                }
            }
        })
    }

    /// How much longer this call may wait.
    fn patience(&self) -> Option<Patience> {
        let patience = self.grants.engine.node.patience(self.wait)?;
        Some(Patience { limit: patience.limit.saturating_sub(self.began.elapsed()), ..patience })
    }

    /// All are held: the one commit that makes them the caller's.
    async fn seal(&mut self, held: Vec<Option<Granted>>, caller: &Caller) -> Result<Vec<Granted>, Stop> {
        if caller.is_closed() {
            return Err(Stop::Gone);
        }
        let (by, nonce, kept) = (self.by, self.nonce, self.kept);
        match self.decide(|name, view| bundle::seal(name, by, nonce, kept, view)).await {
            Ok(true) => Ok(held.into_iter().flatten().collect()),
            Ok(false) => Err(Stop::Overtaken),
            // What may count, and may have been given to another call, is nobody's to take back.
            Err(Failure::Unavailable { unknown: true } | Failure::Internal) => Err(Stop::Unknown),
            Err(failure) => Err(Stop::Failed(failure)),
        }
    }

    /// Takes back whatever it has; `again`: until it is taken again.
    pub async fn take_back(&mut self, again: bool) -> Result<(), Stop> {
        let which: Vec<_> = (0..self.touched.len()).filter(|index| self.touched[*index]).collect();
        match self.grants.withdraw(&which, &self.nonce, again).await {
            Ok(()) => {
                self.touched.fill(false);
                Ok(())
            }
            Err(LockError::Failed(failure)) => Err(Stop::Failed(failure)),
            Err(LockError::Refused(_)) => Err(Stop::Failed(Failure::Internal)),
        }
    }

    /// A grant under this nonce is over and can't be made again: goes on under another.
    async fn renew_nonce(&mut self) -> Result<(), Stop> {
        self.take_back(false).await?;
        let (by, kept, fresh) = (self.by, self.kept, self.grants.engine.node.random.bytes());
        match self.decide(|name, view| bundle::renew(name, by, fresh, kept, view)).await {
            Ok(true) => {
                self.nonce = fresh;
                Ok(())
            }
            Ok(false) => Err(Stop::Overtaken),
            Err(failure) => Err(Stop::Failed(failure)),
        }
    }

    /// Lets others go first who need the same locks, for a time that no two of them have in common.
    async fn pause(&self, round: u32, caller: &mut Caller) -> Result<(), Stop> {
        if round == 0 {
            return Ok(());
        }
        let random = self.grants.engine.node.random.number();
        let pause = Duration::from_micros(random % (1000 << round.min(PAUSE_BITS_MAX)));
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = caller.closed() => Err(Stop::Gone),
        }
    }

    /// Decides about the bundle's record.
    pub async fn decide<Reply>(
        &self,
        mut rule: impl FnMut(&Name, &mut View) -> Result<Reply, Pause>,
    ) -> Result<Reply, Failure> {
        let node = &self.grants.engine.node;
        let decided = node.decide(self.name.group(), node.deadline(), |view| rule(&self.name, view)).await?;
        Ok(decided.reply)
    }
}

/// Why a round didn't get everything.
enum Blocked {
    /// Somebody has a lock, or it is closed.
    Held(usize, Refusal),
    /// A lease was over before all were there.
    Expired(usize),
    /// Another round wouldn't help.
    For(Stop),
}
