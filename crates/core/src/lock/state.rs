//! The lock as a view shows it, and the steps that all rules are made of: grant, end, hand over, prune.

use super::command::{Context, Decided, Effect, End, Granted, Held, Liveness, Reply};
use super::election;
use super::front::Next;
use super::grant::{Digest, Flags, Grant, Terms};
use super::memo::{Fate, Memo};
use super::mode::Hold;
use super::name::{GrantId, Kind, LockName};
use super::roster::{Holder, Roster};
use super::waiting::Waiting;
use crate::codec::Encoder;
use crate::commit::Ttl;
use crate::record::Bytes;
use crate::view::{Pause, Stamp, View};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// Forgotten waiters dropped beside something else at most, so that it fits in a commit.
const PRUNE_MAX: usize = 12;
/// Waiters that one command looks at, at most, to find one who has a call. Whoever stands behind so many without one waits until
/// some of them are dropped; a queue as long as it may be by default has fewer. The rules' own tests have short queues.
const LOOKED_AT_MAX: usize = if cfg!(test) { 32 } else { 16 * 1024 };
/// Holders ended by one command because their time is over, at most; for the same reason.
const EVICT_MAX: usize = 6;

/// A lock that is being decided on.
pub(super) struct State<'a> {
    pub lock: &'a LockName,
    pub view: &'a mut View,
    pub context: &'a Context<'a>,
    pub roster: Roster,
    /// More holders are to be ended than one commit takes.
    pub has_more_to_end: bool,
    /// Somebody could go on whose call is parked at another node, or may stand farther behind than was looked.
    pub is_free_elsewhere: bool,
    has_granted: bool,
    changed: bool,
    effects: Vec<Effect>,
}

impl<'a> State<'a> {
    pub fn open(lock: &'a LockName, view: &'a mut View, context: &'a Context<'a>) -> Result<Self, Pause> {
        let seen = view.get(&lock.roster())?;
        let mut roster = Roster::default();
        if let Some(seen) = seen {
            roster = Roster::decode(&seen.value)?;
            // Until somebody rewrites it, the roster has the revision of the last grant's own commit.
            if let Stamp::At(revision) = seen.revision {
                for holder in &mut roster.holders {
                    holder.fencing.get_or_insert(revision);
                }
            }
        }
        Ok(Self {
            lock,
            view,
            context,
            roster,
            has_more_to_end: false,
            is_free_elsewhere: false,
            has_granted: false,
            changed: false,
            effects: Vec::new(),
        })
    }

    /// Ends the decision.
    pub fn reply(mut self, reply: Reply) -> Result<Decided, Pause> {
        if self.changed {
            self.show_more();
            let key = self.lock.roster();
            if self.roster.is_empty() {
                self.view.delete(&key);
            } else {
                self.view.put(&key, self.roster.encode(), Ttl::Forever);
            }
        }
        // A commit makes one grant: if there is room for others, they follow in commits of their own.
        let may_follow = self.has_granted && self.roster.waiting > 0 && self.roster.has_room();
        Ok(Decided { reply, effects: self.effects, more: may_follow || self.has_more_to_end })
    }

    /// The roster will be written, and so get a new revision.
    pub fn change(&mut self) {
        self.changed = true;
    }

    /// The holder's fencing token.
    pub fn fencing(holder: &Holder) -> Stamp {
        holder.fencing.map_or(Stamp::ThisCommit, Stamp::At)
    }

    /// The holder with this grant, if its lease runs: assumed to, when nothing is known, because the commit checks it.
    pub fn living(&mut self, id: GrantId) -> Option<Holder> {
        let holder = self.roster.find(id).filter(|holder| !holder.closed)?.clone();
        self.view.holds(&self.lock.grant(id), Self::fencing(&holder)).then_some(holder)
    }

    /// Writes a holder's entry anew.
    pub fn replace(&mut self, holder: Holder) {
        if let Some(old) = self.roster.holders.iter_mut().find(|old| old.id == holder.id) {
            *old = holder;
            self.change();
        }
    }

    /// Makes a live holder's lease last longer, and with it the record that keeps the lock closed afterwards.
    pub fn touch(&mut self, holder: &Holder, ttl: Duration) {
        self.view.touch(&self.lock.grant(holder.id), ttl);
        if holder.flags.delayed {
            self.view.touch(&self.lock.delay(holder.id), ttl + holder.delay);
        }
    }

    /// Ends holders whose leases have run out and opens places whose lock-delay is over, after looking: as many as one
    /// commit takes.
    pub fn evict_expired(&mut self) -> Result<(), Pause> {
        let ids: Vec<_> = self.roster.holders.iter().map(|holder| (holder.id, holder.closed)).collect();
        let mut ended = 0;
        for (id, closed) in ids {
            let key = if closed { self.lock.delay(id) } else { self.lock.grant(id) };
            if self.view.peek(&key)?.is_some() {
                continue;
            }
            if ended == EVICT_MAX {
                self.has_more_to_end = true;
                break;
            }
            ended += 1;
            // Known to be absent, and now checked to be.
            self.view.lease(&key)?;
            if closed { self.reopen_if_due(id)? } else { self.evict(id)? }
        }
        Ok(())
    }

    /// Takes a closed holder out of the roster, if its lock-delay is over.
    fn reopen_if_due(&mut self, id: GrantId) -> Result<(), Pause> {
        let is_closed = self.roster.find(id).is_some_and(|holder| holder.closed);
        if is_closed && self.view.peek(&self.lock.delay(id))?.is_none() {
            self.view.lease(&self.lock.delay(id))?;
            self.roster.holders.retain(|holder| holder.id != id);
            self.change();
        }
        Ok(())
    }

    /// Ends a holder whose lease has run out.
    pub fn evict(&mut self, id: GrantId) -> Result<(), Pause> {
        self.end(id, End::Expired, Fate::Expired);
        self.reopen_if_due(id)
    }

    /// Ends a holder's grant and remembers how. If its lease ran out, its place may stay closed for a while.
    pub fn end(&mut self, id: GrantId, how: End, fate: Fate) {
        let Some(index) = self.roster.holders.iter().position(|holder| holder.id == id) else { return };
        let mut holder = self.roster.holders.remove(index);
        let fencing = Self::fencing(&holder);
        // Also what is over: it may not have been collected yet, and a store whose clock steps back would have it again, and renew
        // it. A delay's record renews nothing, and isn't looked at once its place is open.
        self.view.delete(&self.lock.grant(id));
        if how != End::Expired && holder.flags.delayed {
            self.view.delete(&self.lock.delay(id));
        }
        self.remember(id, fate, fencing, holder.digest, &holder.owner);
        self.roster.metadata = None;
        self.change();
        let (owner, granted_at) = (holder.owner.clone(), holder.granted_at);
        self.effects.push(Effect::Ended { id, how, owner, fencing, granted_at });
        if how == End::Expired && holder.flags.delayed {
            holder.closed = true;
            self.roster.holders.push(holder);
        }
    }

    /// Keeps the place of a holder that was just ended closed for a while.
    pub fn close(&mut self, holder: Holder, delay: Duration) {
        self.view.put(&self.lock.delay(holder.id), delay_value(), Ttl::Exactly(delay));
        self.roster.holders.push(Holder { closed: true, ..holder });
        self.change();
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

    /// Makes a grant. The lock must admit it, and the request be without a memo or void.
    pub fn grant(&mut self, id: GrantId, terms: &Terms, queued: Option<&Waiting>) -> Result<Granted, Pause> {
        let key = self.lock.grant(id);
        if self.has_granted {
            return Err(Pause::SettleFirst);
        }
        // A grant's token is its commit's revision, so that two grants can't share a commit; and one that is put
        // over the record of an undone one would keep that one's creation.
        if self.view.is_dirty()
            && (self.view.creates(&self.lock.prefix(Kind::Grant)) || self.view.deletes(&key))
        {
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
        let hold = self.roster.next_hold(terms.mode);
        let alone = queued.is_none() && self.roster.waiting == 0 && hold == Hold::Exclusive;
        let flags = Flags { reentrant: terms.reentrant, alone, delayed: !terms.delay.is_zero() };
        // What an exclusive holder says about itself can be changed, and nothing rewrites a grant.
        let (of_roster, of_grant) = match hold {
            Hold::Exclusive => (terms.metadata.clone(), None),
            Hold::Shared | Hold::Permit { .. } => (None, terms.metadata.clone()),
        };
        let grant = Grant {
            flags,
            ttl: terms.ttl,
            granted_at: self.context.now,
            owner: terms.owner.clone(),
            principal: terms.principal.clone(),
            hold,
            delay: terms.delay,
            metadata: of_grant,
        };
        self.view.put(&key, grant.encode(), Ttl::Exactly(terms.ttl));
        if flags.delayed {
            self.view.put(&self.lock.delay(id), delay_value(), Ttl::Exactly(terms.ttl + terms.delay));
        }
        let digest = terms.digest();
        self.roster.permits = terms.mode.permits();
        self.roster.holders.push(Holder {
            id,
            digest,
            owner: terms.owner.clone(),
            principal: terms.principal.clone(),
            granted_at: self.context.now,
            count: 1,
            flags,
            replayed: false,
            closed: false,
            hold,
            delay: terms.delay,
            fencing: None,
        });
        self.roster.metadata = of_roster;
        self.has_granted = true;
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
            hold,
            is_new: true,
        };
        let queued_since = queued.map(|waiting| waiting.since);
        self.effects.push(Effect::Granted { grant: granted.clone(), queued_since });
        Ok(granted)
    }

    /// Lets the first waiter whose call is parked here have the lock, if there is room for it. Says whether a waiter
    /// that couldn't have it now comes before, and so nobody else may take it.
    pub fn hand_over(&mut self) -> Result<bool, Pause> {
        self.prune(PRUNE_MAX)?;
        if self.roster.waiting == 0 || !self.roster.has_room() {
            return Ok(false);
        }
        for next in self.roster.front.shown().to_vec() {
            if let Some(must_wait) = self.offer(next)? {
                return Ok(must_wait);
            }
        }
        if self.roster.front.is_whole(self.roster.waiting) {
            return Ok(false);
        }
        let prefix = self.lock.prefix(Kind::Order);
        let mut after = self.end_of_front();
        let mut looked_at = self.roster.front.shown().len();
        while let Some((name, order)) = self.view.next(&prefix, after.as_ref())? {
            if looked_at == LOOKED_AT_MAX {
                self.is_free_elsewhere = true;
                return Ok(true);
            }
            looked_at += 1;
            let id = GrantId::from_suffix(&order.value).ok_or(Pause::Unreadable)?;
            if let Some(waiting) = self.waiting(id)?
                && let Some(must_wait) = self.offer(Next::of(id, &waiting))?
            {
                return Ok(must_wait);
            }
            after = Some(name);
        }
        Ok(false)
    }

    /// It is this waiter's turn, if it has a call. Then nobody after it can have the lock now, but for who is behind
    /// it if it takes it: says whether somebody who couldn't have it comes before them.
    fn offer(&mut self, next: Next) -> Result<Option<bool>, Pause> {
        match (self.context.liveness)(next.id, next.node, next.attachment) {
            Liveness::Orphan => Ok(None),
            // Whoever comes after it waits as well, or a writer would wait for ever behind those who read.
            _ if !self.roster.admits(next.mode) => Ok(Some(true)),
            Liveness::Elsewhere => {
                self.is_free_elsewhere = true;
                Ok(Some(true))
            }
            // It had its turn already, whoever is parked for it.
            Liveness::Here if self.recall(next.id)?.is_some_and(|memo| memo.fate != Fate::Void) => {
                self.dequeue(next.id, next.place);
                Ok(None)
            }
            Liveness::Here => {
                // If it isn't there, the roster isn't as it was either, and the commit will say so.
                let Some(waiting) = self.waiting(next.id)? else { return Ok(None) };
                self.dequeue(next.id, next.place);
                self.grant(next.id, &waiting.terms, Some(&waiting))?;
                Ok(Some(false))
            }
        }
    }

    /// The name of the last place in the queue that the roster shows.
    fn end_of_front(&self) -> Option<Bytes> {
        self.roster.front.shown().last().map(|last| self.lock.order(last.place).name)
    }

    /// Lets the roster show somebody who comes to stand in a queue of so many others.
    pub fn show(&mut self, next: Next, others: u64) {
        if self.context.is_shared {
            self.roster.front.join(next, others);
        }
    }

    /// Lets the roster show more of the queue, as far as it is known anyway.
    fn show_more(&mut self) {
        let prefix = self.lock.prefix(Kind::Order);
        let mut after = self.end_of_front();
        while self.context.is_shared
            && self.roster.front.has_room()
            && let Ok(Some((name, order))) = self.view.next(&prefix, after.as_ref())
            && let Some(id) = GrantId::from_suffix(&order.value)
            && let Ok(Some(waiting)) = self.waiting(id)
        {
            self.roster.front.extend(Next::of(id, &waiting));
            after = Some(name);
        }
    }

    /// Drops waiters whose place has been kept long enough, so many at most.
    pub fn prune(&mut self, most: usize) -> Result<(), Pause> {
        for id in self.context.forgotten.iter().take(most) {
            if let Some(waiting) = self.waiting(*id)?
                && (self.context.liveness)(*id, waiting.node, waiting.attachment) == Liveness::Orphan
            {
                self.dequeue(*id, waiting.place);
            }
        }
        Ok(())
    }

    /// A waiter. The roster's revision vouches for it; where there is no roster there is nobody but who is drafted, whatever
    /// was in the store a moment ago: its absence, unlike a revision, may come true again.
    pub fn waiting(&mut self, id: GrantId) -> Result<Option<Waiting>, Pause> {
        let key = self.lock.waiting(id);
        if self.view.is_new(&self.lock.roster()) && !self.view.writes(&key) {
            return Ok(None);
        }
        let seen = self.view.peek(&key)?;
        Ok(seen.map(|seen| Waiting::decode(&seen.value)).transpose()?)
    }

    /// Puts a waiter at the end of the queue, or of those with its rank.
    pub fn enqueue(&mut self, id: GrantId, terms: &Terms, attachment: u64, rank: u16) -> Result<(), Pause> {
        self.keep_the_guess_of_a_drafted_grant_true()?;
        let place = election::place(rank, self.roster.next_place);
        let (node, since) = (self.context.node, self.context.now);
        let waiting = Waiting { place, node, attachment, since, terms: terms.clone() };
        self.view.put(&self.lock.waiting(id), waiting.encode(), Ttl::Forever);
        self.view.put(&self.lock.order(place), id.0[..].into(), Ttl::Forever);
        self.show(Next::of(id, &waiting), self.roster.waiting);
        self.roster.permits = terms.mode.permits();
        self.roster.next_place += 1;
        self.roster.waiting += 1;
        self.change();
        Ok(())
    }

    /// A grant made by this very draft may have been answered as `alone` already: its release will then guess the
    /// roster of this commit, so that nothing may be added to it.
    pub fn keep_the_guess_of_a_drafted_grant_true(&self) -> Result<(), Pause> {
        match self.roster.exclusive() {
            Some(holder) if holder.flags.alone && holder.fencing.is_none() => Err(Pause::NextCommit),
            _ => Ok(()),
        }
    }

    /// Takes a waiter out of the queue.
    pub fn dequeue(&mut self, id: GrantId, place: u64) {
        self.view.delete(&self.lock.waiting(id));
        self.view.delete(&self.lock.order(place));
        self.roster.front.leave(id);
        self.roster.waiting = self.roster.waiting.saturating_sub(1);
        self.change();
    }

    /// For an answer: why the lock can't be had now.
    pub fn held(&self) -> Result<Held, Pause> {
        let mut first = Held { owner: None, retry_after: None, waiting: self.roster.waiting };
        for holder in &self.roster.holders {
            let key = if holder.closed { self.lock.delay(holder.id) } else { self.lock.grant(holder.id) };
            let Some(record) = self.view.peek(&key)? else { continue };
            if first.retry_after.is_none_or(|left| record.expires_in.is_some_and(|its| its < left)) {
                first.retry_after = record.expires_in;
                first.owner = (!holder.closed).then(|| holder.owner.clone());
            }
        }
        Ok(first)
    }
}

/// A delay record says nothing but that it is there. Version 1.
fn delay_value() -> Bytes {
    Encoder::new(1).finish()
}
