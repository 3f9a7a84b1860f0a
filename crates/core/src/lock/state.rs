//! The lock as a view shows it, and the steps that all rules are made of: grant, end, hand over, prune.

use super::command::{Context, Decided, Effect, End, Granted, Held, Liveness, Reply};
use super::grant::{Digest, Flags, Grant, Terms};
use super::memo::{Fate, Memo};
use super::name::{GrantId, Kind, LockName};
use super::roster::{Holder, Roster};
use super::waiting::Waiting;
use crate::commit::Ttl;
use crate::record::Bytes;
use crate::view::{Pause, Stamp, View};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Forgotten waiters dropped by one command at most, so that it fits in a commit.
const PRUNE_MAX: usize = 16;

/// A lock that is being decided on.
pub(super) struct State<'a> {
    pub lock: &'a LockName,
    pub view: &'a mut View,
    pub context: &'a Context<'a>,
    pub roster: Roster,
    changed: bool,
    effects: Vec<Effect>,
}

impl<'a> State<'a> {
    pub fn open(lock: &'a LockName, view: &'a mut View, context: &'a Context<'a>) -> Result<Self, Pause> {
        let seen = view.get(&lock.roster())?;
        let mut roster = Roster::default();
        if let Some(seen) = seen {
            roster = Roster::decode(&seen.value)?;
            // Until somebody rewrites it, the roster has the revision of the grant's own commit.
            if let (Some(holder), Stamp::At(revision)) = (&mut roster.holder, seen.revision) {
                holder.fencing.get_or_insert(revision);
            }
        }
        Ok(Self { lock, view, context, roster, changed: false, effects: Vec::new() })
    }

    /// Ends the decision.
    pub fn reply(self, reply: Reply) -> Result<Decided, Pause> {
        if self.changed {
            let key = self.lock.roster();
            if self.roster.holder.is_none() && self.roster.waiting == 0 {
                self.view.delete(&key);
            } else {
                self.view.put(&key, self.roster.encode(), Ttl::Forever);
            }
        }
        Ok(Decided { reply, effects: self.effects })
    }

    /// The roster will be written, and so get a new revision.
    pub fn change(&mut self) {
        self.changed = true;
    }

    /// The holder's fencing token.
    pub fn fencing(holder: &Holder) -> Stamp {
        holder.fencing.map_or(Stamp::ThisCommit, Stamp::At)
    }

    /// The holder, if its lease runs: assumed to, when nothing is known, because the commit checks it.
    pub fn holder(&mut self) -> Option<Holder> {
        let holder = self.roster.holder.clone()?;
        let key = self.lock.grant(holder.id);
        self.view.holds(&key, Self::fencing(&holder)).then_some(holder)
    }

    /// Ends a holder whose lease has run out, after looking: then the lock is free.
    pub fn evict_if_expired(&mut self) -> Result<(), Pause> {
        if let Some(holder) = &self.roster.holder
            && self.view.lease(&self.lock.grant(holder.id))?.is_none()
        {
            self.evict();
        }
        Ok(())
    }

    /// Ends the holder, whose lease has run out.
    pub fn evict(&mut self) {
        self.end(End::Expired, Fate::Expired);
    }

    /// Ends the holder's grant and remembers how.
    pub fn end(&mut self, how: End, fate: Fate) {
        let Some(holder) = self.roster.holder.take() else { return };
        let fencing = Self::fencing(&holder);
        if how != End::Expired {
            self.view.delete(&self.lock.grant(holder.id));
        }
        self.remember(holder.id, fate, fencing, holder.digest, &holder.owner);
        self.roster.metadata = None;
        self.change();
        let Holder { id, owner, granted_at, .. } = holder;
        self.effects.push(Effect::Ended { id, how, owner, fencing, granted_at });
    }

    /// Leaves a memo.
    pub fn remember(&mut self, id: GrantId, fate: Fate, fencing: Stamp, digest: Digest, owner: &Arc<str>) {
        let fencing = match fencing {
            Stamp::At(revision) => revision,
            Stamp::ThisCommit => crate::record::Revision(0),
        };
        let memo = Memo { fate, fencing, at: self.context.now, digest, owner: owner.clone() };
        self.view.put(&self.lock.memo(id), memo.encode(), Ttl::AtLeast(self.context.memory));
    }

    /// What is remembered of a request; nothing, unless known otherwise.
    pub fn recall(&mut self, id: GrantId) -> Result<Option<Memo>, Pause> {
        let key = self.lock.memo(id);
        self.view.assume_absent(&key);
        let memo = self.view.get(&key)?.map(|seen| Memo::decode(&seen.value)).transpose()?;
        Ok(memo)
    }

    /// Makes a grant. The lock must be free, and the request without a memo or void.
    pub fn grant(&mut self, id: GrantId, terms: &Terms, queued: Option<&Waiting>) -> Result<Granted, Pause> {
        let key = self.lock.grant(id);
        // A grant's token is its commit's revision, so that two grants can't share a commit; and one that is put
        // over the record of an undone one would keep that one's creation.
        if self.view.creates(&self.lock.prefix(Kind::Grant)) || self.view.deletes(&key) {
            return Err(Pause::NextCommit);
        }
        self.view.assume_absent(&key);
        if self.view.lease(&key)?.is_some() {
            // Grants and rosters are made and ended together: a grant without its place in the roster is damage.
            return Err(Pause::Unreadable);
        }
        if self.recall(id)?.is_some() {
            // Void: it never took effect, so it may now. Until now the memo kept a late copy of the old commit out;
            // from here on the grant does.
            self.view.delete(&self.lock.memo(id));
        }
        let flags = Flags { reentrant: terms.reentrant, alone: queued.is_none() && self.roster.waiting == 0 };
        let grant = Grant {
            flags,
            ttl: terms.ttl,
            granted_at: self.context.now,
            owner: terms.owner.clone(),
            principal: terms.principal.clone(),
        };
        self.view.put(&key, grant.encode(), Ttl::Exactly(terms.ttl));
        let digest = terms.digest();
        self.roster.holder = Some(Holder {
            id,
            digest,
            owner: terms.owner.clone(),
            principal: terms.principal.clone(),
            granted_at: self.context.now,
            count: 1,
            flags,
            replayed: false,
            fencing: None,
        });
        self.roster.metadata = terms.metadata.clone();
        self.change();
        let granted = Granted {
            id,
            flags,
            digest,
            fencing: Stamp::ThisCommit,
            owner: terms.owner.clone(),
            principal: terms.principal.clone(),
            ttl: terms.ttl,
            count: 1,
            is_new: true,
        };
        let queued_since = queued.map(|waiting| waiting.since);
        self.effects.push(Effect::Granted { grant: granted.clone(), queued_since });
        Ok(granted)
    }

    /// Gives a free lock to the first waiter whose call is parked here. Says whether one parked elsewhere comes
    /// before, and so nobody else may take the lock.
    pub fn hand_over(&mut self) -> Result<bool, Pause> {
        self.prune()?;
        if self.roster.holder.is_some() || self.roster.waiting == 0 {
            return Ok(false);
        }
        let prefix = self.lock.prefix(Kind::Order);
        let mut after: Option<Bytes> = None;
        while let Some((name, order)) = self.view.next(&prefix, after.as_ref())? {
            let id = GrantId::from_suffix(&order.value).ok_or(Pause::Unreadable)?;
            if let Some(waiting) = self.waiting(id)? {
                match (self.context.liveness)(id, &waiting) {
                    Liveness::Orphan => {}
                    Liveness::Elsewhere => return Ok(true),
                    // It had its turn already, whoever is parked for it.
                    Liveness::Here if self.recall(id)?.is_some_and(|memo| memo.fate != Fate::Void) => {
                        self.dequeue(id, waiting.place);
                    }
                    Liveness::Here => {
                        self.dequeue(id, waiting.place);
                        self.grant(id, &waiting.terms, Some(&waiting))?;
                        return Ok(false);
                    }
                }
            }
            after = Some(name);
        }
        Ok(false)
    }

    /// Drops waiters whose place has been kept long enough.
    pub fn prune(&mut self) -> Result<(), Pause> {
        for id in self.context.forgotten.iter().take(PRUNE_MAX) {
            if let Some(waiting) = self.waiting(*id)?
                && (self.context.liveness)(*id, &waiting) == Liveness::Orphan
            {
                self.dequeue(*id, waiting.place);
            }
        }
        Ok(())
    }

    /// A waiter. The roster's revision vouches for it.
    pub fn waiting(&mut self, id: GrantId) -> Result<Option<Waiting>, Pause> {
        let seen = self.view.peek(&self.lock.waiting(id))?;
        Ok(seen.map(|seen| Waiting::decode(&seen.value)).transpose()?)
    }

    /// Puts a waiter at the end of the queue.
    pub fn enqueue(&mut self, id: GrantId, terms: &Terms, attachment: u64) -> Result<(), Pause> {
        self.keep_the_guess_of_a_drafted_grant_true()?;
        let place = self.roster.next_place;
        let (node, since) = (self.context.node, self.context.now);
        let waiting = Waiting { place, node, attachment, since, terms: terms.clone() };
        self.view.put(&self.lock.waiting(id), waiting.encode(), Ttl::Forever);
        self.view.put(&self.lock.order(place), id.0[..].into(), Ttl::Forever);
        self.roster.next_place += 1;
        self.roster.waiting += 1;
        self.change();
        Ok(())
    }

    /// A grant made by this very draft may have been answered as `alone` already: its release will then guess the
    /// roster of this commit, so that nothing may be added to it.
    pub fn keep_the_guess_of_a_drafted_grant_true(&self) -> Result<(), Pause> {
        match &self.roster.holder {
            Some(holder) if holder.flags.alone && holder.fencing.is_none() => Err(Pause::NextCommit),
            _ => Ok(()),
        }
    }

    /// Takes a waiter out of the queue.
    pub fn dequeue(&mut self, id: GrantId, place: u64) {
        self.view.delete(&self.lock.waiting(id));
        self.view.delete(&self.lock.order(place));
        self.roster.waiting = self.roster.waiting.saturating_sub(1);
        self.change();
    }

    /// For an answer: why the lock can't be had now.
    pub fn held(&self) -> Result<Held, Pause> {
        let waiting = self.roster.waiting;
        let Some(holder) = &self.roster.holder else {
            return Ok(Held { owner: None, retry_after: None, waiting });
        };
        let grant = self.view.peek(&self.lock.grant(holder.id))?;
        let retry_after = grant.and_then(|grant| grant.expires_in);
        Ok(Held { owner: Some(holder.owner.clone()), retry_after, waiting })
    }
}
