//! A lease from its holder's side: what may be spent without asking, when to ask for more, and what to say (M2).
//!
//! All times are the holder's own monotonic clock in milliseconds. The store's row expires later than the purse closes, since the
//! purse counts from before the message was sent, and leaves a margin.
//!
//! What is said is (sequence, all that was spent, what is kept): the highest sequence wins at the store, so a message that comes
//! twice or late changes nothing. What is not kept is taken out of the purse before the message leaves. An answer counts
//! only if it is to the last message.
//!
//! What may be spent is in a [`Till`], which every one of a purse's methods is given. Both are one holder's at a time. Where threads spend
//! beside each other, what they may spend without looking is in a [pocket](super::pocket), and is put back into the till before anything is
//! said: so what was spent and what is kept always make up what was given.

use super::narrow::U40;
use super::till::{BALANCE_MAX, Taken, Till};
use alloc::boxed::Box;
use core::num::NonZeroU32;

/// How a lease behaves, or slack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// How long it lives; slack, at most.
    pub ttl_ms: u64,
    /// How much it has; adapts to what is spent if nothing is said.
    pub size: Option<u64>,
    /// The most that it has, whoever says so.
    pub size_max: u64,
    /// When the store is told what was spent.
    pub rhythm: Rhythm,
    /// When less than this isn't counted yet, the store decides every check. Of a lease, 0.
    pub low: u64,
}

/// When the store is told what was spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rhythm {
    /// Between a third and a half of a lease's life.
    Life,
    /// Every so many milliseconds.
    Every(u64),
    /// By how much is spent: often if it is much, seldom if it is little.
    AsUsed,
}

impl Terms {
    /// Of a lease.
    pub const fn lease(ttl_ms: u64, size: Option<u64>) -> Self {
        Self { ttl_ms, size, size_max: u64::MAX, rhythm: Rhythm::Life, low: 0 }
    }

    /// How long it lives at the store, of a holder that asks for so long (0 if it says nothing), and has some or none: never shorter
    /// than it believes, who may not hear that the definition has changed.
    pub fn lent_ms(&self, asked_ms: u64, has_some: bool) -> u64 {
        match (every_ms(None, self), asked_ms) {
            (None, _) if has_some => self.ttl_ms.max(asked_ms),
            (None, _) => self.ttl_ms,
            (Some(every_ms), 0) => life_ms(every_ms, self),
            (Some(_), asked_ms) if has_some => asked_ms,
            (Some(_), asked_ms) => asked_ms.min(self.ttl_ms).max(LIFE_MS_MIN),
        }
    }
}

/// What the size adapts within.
pub const SIZE_MIN: u64 = 10;
/// As above.
pub const SIZE_MAX: u64 = 10_000;
/// How often the store is told what was spent of slack, if nobody says otherwise.
pub const SYNC_MS: u64 = 500;
/// The same, if it is much: a message stands for a hundred and more.
pub const SYNC_BUSY_MS: u64 = 100;
/// The same, if it is little.
pub const SYNC_QUIET_MS: u64 = 2_000;
/// From so much a second on it is much.
pub const BUSY_PER_SECOND: u64 = 1_000;
/// Up to so much a second it is little.
pub const QUIET_PER_SECOND: u64 = 50;
/// Slack lives for so many rounds: long enough to miss one, and short, because what a dead holder had is out of use until then.
const ROUNDS: u64 = 4;
/// The shortest life.
pub const LIFE_MS_MIN: u64 = 100;
const SIZE_FIRST: u64 = 100;
/// Over how long what is spent is averaged, about.
const MEMORY_MS: u64 = 60_000;

/// What a holder knows of a lease, beside what is in its till.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Purse {
    /// All that was ever put in, less what was given back: what was spent is this less the till's balance.
    given: i64,
    /// Of the last message. With one a millisecond it lasts for 34 years.
    sequence: U40,
    /// From when on nothing is spent.
    closes_ms: U40,
    /// From when on more is asked for, whatever is left.
    renew_ms: U40,
    /// Only while a message is under way, or something undecided: a process may have a million purses.
    aside: Option<Box<Aside>>,
    /// What was spent recently, in units of 1/1024 a millisecond, and one: a slowly forgetting mean.
    rate: Option<NonZeroU32>,
    rated_ms: U40,
    rated_spent: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Aside {
    asked: Option<Asked>,
    /// What was taken for checks that may still come to nothing: neither spent nor in the till, and kept at the store meanwhile.
    undecided: u64,
    /// How many of those checks are undecided, also those whose part has lapsed.
    open: u64,
    /// The last message before the purse was last found closed: what was undecided then counts as spent, whatever becomes of it.
    lapsed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    kept: i64,
    sent_ms: u64,
    ttl_ms: u64,
}

/// What a holder says to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Higher than of any message before.
    pub sequence: u64,
    /// All that was ever spent.
    pub spent: u64,
    /// What is kept.
    pub kept: u64,
    /// How much more is wanted.
    pub want: u64,
    /// Whether that is what checks wait for: then it is all or nothing, and no share of what is there.
    pub is_needed: bool,
    /// How long the lease is to live from now.
    pub ttl_ms: u64,
    /// What was left when the purse closed, and isn't the holder's any more. The store isn't told: it knows when the lease ends.
    pub lapsed: u64,
}

/// What a message says beside the balance.
#[derive(Default)]
struct Added {
    want: u64,
    is_needed: bool,
    lapsed: u64,
}

/// What became of an attempt to spend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spent {
    /// It was there.
    Yes {
        /// More should be asked for now, beside it.
        ask: bool,
        /// Of the last message before it: to put it back with.
        sequence: u64,
    },
    /// There isn't enough.
    No,
}

impl Purse {
    /// Spends, if it is there and the purse is open.
    #[inline]
    pub fn spend(&self, till: &Till, cost: u64, now_ms: u64) -> Spent {
        match till.take(cost, now_ms) {
            Taken::Yes => Spent::Yes { ask: false, sequence: self.sequence.get() },
            Taken::Last => Spent::Yes { ask: !self.is_asking(), sequence: self.sequence.get() },
            // It is time for a message: that doesn't keep anybody from spending what is there.
            Taken::Look => self.spend_due(till, cost, now_ms),
        }
    }

    fn spend_due(&self, till: &Till, cost: u64, now_ms: u64) -> Spent {
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        if now_ms >= self.closes_ms.get() {
            return Spent::No;
        }
        let (before, _) = till.change(|balance| if cost <= balance { balance - cost } else { balance });
        match cost <= before {
            true => Spent::Yes { ask: !self.is_asking(), sequence: self.sequence.get() },
            false => Spent::No,
        }
    }

    /// What was just spent is for a check that may still come to nothing: until it is [decided](Self::decided) the store isn't told
    /// that it was spent.
    pub fn leave_open(&mut self, cost: u64) {
        let aside = self.aside.get_or_insert_default();
        (aside.undecided, aside.open) = (aside.undecided.saturating_add(cost), aside.open + 1);
    }

    /// What became of something that was [left open](Self::leave_open) after this message: it was spent, or is put back. If the purse was
    /// closed meanwhile it counts as spent, and isn't this holder's any more.
    pub fn decided(&mut self, till: &Till, cost: u64, sequence: u64, is_spent: bool, now_ms: u64) {
        let Some(aside) = &mut self.aside else { return };
        aside.open = aside.open.saturating_sub(1);
        if sequence > aside.lapsed {
            let cost = cost.min(aside.undecided);
            aside.undecided -= cost;
            if !is_spent && now_ms < self.closes_ms.get() {
                let cost = i64::try_from(cost).unwrap_or_default();
                till.change(|balance| balance.saturating_add(cost));
            }
        }
        self.tidy();
    }

    /// What may be spent now.
    pub fn balance(&self, till: &Till, now_ms: u64) -> u64 {
        if now_ms >= self.closes_ms.get() { 0 } else { u64::try_from(till.balance()).unwrap_or_default() }
    }

    /// Until when it may be spent.
    pub fn closes_ms(&self) -> u64 {
        self.closes_ms.get()
    }

    /// Whether a message is under way.
    pub fn is_asking(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.asked.is_some())
    }

    /// How much a lease should have.
    pub fn size(&self, terms: &Terms) -> u64 {
        let size = terms.size.unwrap_or_else(|| match self.rated() {
            None => SIZE_FIRST,
            // What is spent in a lease's life.
            Some(rate) => (rate.saturating_mul(self.life_ms(terms)) / 1024).clamp(SIZE_MIN, SIZE_MAX),
        });
        size.min(terms.size_max)
    }

    /// What was spent recently, in units of 1/1024 a millisecond, if that is known yet.
    fn rated(&self) -> Option<u64> {
        self.rate.map(|rate| u64::from(rate.get() - 1))
    }

    /// How often the store is told of slack; nothing for a lease.
    fn every_ms(&self, terms: &Terms) -> Option<u64> {
        let per_second = self.rated().map(|rate| rate.saturating_mul(1_000) / 1024);
        every_ms(per_second, terms)
    }

    /// How long what is asked for now is to live.
    fn life_ms(&self, terms: &Terms) -> u64 {
        self.every_ms(terms).map_or(terms.ttl_ms, |every_ms| life_ms(every_ms, terms))
    }

    /// As far as that is decided.
    fn spent(&self, balance: i64) -> u64 {
        u64::try_from(self.given - balance - self.open()).unwrap_or_default()
    }

    /// What is undecided.
    fn open(&self) -> i64 {
        self.aside.as_ref().map_or(0, |aside| i64::try_from(aside.undecided).unwrap_or(i64::MAX))
    }

    /// What was said last, if that is the message under way, which is over now.
    fn take_asked(&mut self, sequence: u64) -> Option<Asked> {
        let aside = self.aside.as_mut().filter(|_| sequence == self.sequence.get())?;
        let asked = aside.asked.take();
        self.tidy();
        asked
    }

    fn tidy(&mut self) {
        self.aside.take_if(|aside| aside.asked.is_none() && aside.open == 0);
    }

    /// How much more it may have: what is undecided counts as kept.
    fn room(&self, balance: i64, terms: &Terms) -> u64 {
        let keeps = balance.max(0).saturating_add(self.open());
        terms.size_max.saturating_sub(u64::try_from(keeps).unwrap_or_default())
    }

    /// Asks for at least `cost`: what to say now.
    pub fn ask(&mut self, till: &Till, cost: u64, now_ms: u64, terms: &Terms) -> Message {
        let lapsed = self.lapse(till, now_ms);
        let balance = till.balance();
        self.rate(balance, now_ms);
        let size = self.size(terms).max(cost);
        let want = size.saturating_sub(u64::try_from(balance).unwrap_or_default());
        let want = want.min(self.room(balance, terms));
        self.message(till, balance, Added { want, lapsed, ..Added::default() }, now_ms, terms)
    }

    /// Asks for just what checks wait for, all of it or nothing.
    pub fn need(&mut self, till: &Till, want: u64, now_ms: u64, terms: &Terms) -> Message {
        let lapsed = self.lapse(till, now_ms);
        let balance = till.balance();
        self.rate(balance, now_ms);
        let want = want.min(self.room(balance, terms));
        self.message(till, balance, Added { want, is_needed: true, lapsed }, now_ms, terms)
    }

    /// Gives everything back, and asks for as much anew if it goes on under another definition.
    pub fn give_back(&mut self, till: &Till, goes_on: bool, now_ms: u64, terms: &Terms) -> Message {
        let lapsed = self.lapse(till, now_ms);
        let (_, balance) = self.keep(till, 0);
        let want = if goes_on { self.size(terms).min(self.room(balance, terms)) } else { 0 };
        self.message(till, balance, Added { want, lapsed, ..Added::default() }, now_ms, terms)
    }

    /// Keeps what it needs by what was spent lately, and gives the rest back: for one that is used too seldom to be renewed by
    /// whoever spends, and would be burned.
    pub fn trim(&mut self, till: &Till, now_ms: u64, terms: &Terms) -> Message {
        let lapsed = self.lapse(till, now_ms);
        self.rate(till.balance(), now_ms);
        let (_, balance) = self.keep(till, i64::try_from(self.size(terms)).unwrap_or(i64::MAX));
        self.message(till, balance, Added { lapsed, ..Added::default() }, now_ms, terms)
    }

    /// What is left when the purse closes is burned at the store: it is not the holder's any more. How much that was.
    pub fn lapse(&mut self, till: &Till, now_ms: u64) -> u64 {
        if now_ms < self.closes_ms.get() {
            return 0;
        }
        // If the row is still there it hears so, and else that is burned with it.
        if let Some(aside) = &mut self.aside {
            (aside.undecided, aside.lapsed) = (0, self.sequence.get());
        }
        let (before, after) = self.keep(till, 0);
        u64::try_from(before - after).unwrap_or_default()
    }

    /// Takes everything above `most` out of the till. The balance before, and then.
    fn keep(&mut self, till: &Till, most: i64) -> (i64, i64) {
        let (before, after) = till.change(|balance| balance.min(most));
        self.given -= before - after;
        (before, after)
    }

    /// `balance` was the till's at one moment: all of it is kept, and what is undecided.
    fn message(&mut self, till: &Till, balance: i64, added: Added, now_ms: u64, terms: &Terms) -> Message {
        let ttl_ms = self.life_ms(terms);
        self.sequence = U40::of(self.sequence.get() + 1);
        let keeps = balance.max(0).saturating_add(self.open());
        self.aside.get_or_insert_default().asked = Some(Asked { kept: keeps, sent_ms: now_ms, ttl_ms });
        // A lease that is to live shorter than before does so from when the store hears of it, whether or not this holder hears
        // back.
        self.closes_ms = U40::of(self.closes_ms.get().min(now_ms + open_ms(ttl_ms)));
        self.set_marks(till, terms);
        let kept = u64::try_from(keeps).unwrap_or_default();
        let Added { want, is_needed, lapsed } = added;
        Message {
            sequence: self.sequence.get(),
            spent: self.spent(balance),
            kept,
            want,
            is_needed,
            ttl_ms,
            lapsed,
        }
    }

    /// The answer: what the store's row has now. Whether it was to the last message.
    pub fn heard(&mut self, till: &Till, sequence: u64, amount: u64, terms: &Terms) -> bool {
        let Some(asked) = self.take_asked(sequence) else { return false };
        let more = i64::try_from(amount).unwrap_or(i64::MAX).min(BALANCE_MAX) - asked.kept;
        // What a till can't hold counts as not given.
        let (before, after) = till.change(|balance| balance.saturating_add(more));
        self.given += after - before;
        let ttl_ms = asked.ttl_ms;
        self.closes_ms = U40::of(asked.sent_ms + open_ms(ttl_ms));
        // A different moment for each message, so that holders don't all ask at once: between a third and a half of a lease's life,
        // or in the last eighth of a round.
        let part = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let (first_ms, spread_ms) = match self.every_ms(terms) {
            Some(every_ms) => (every_ms - every_ms / 8, every_ms / 8),
            None => (ttl_ms / 3, ttl_ms / 6),
        };
        self.renew_ms = U40::of(asked.sent_ms + first_ms + spread_ms * part / 1024);
        self.set_marks(till, terms);
        true
    }

    /// The same, from a lender that may let it live shorter than was asked for: the store's row does, from the same moment.
    pub fn heard_for(&mut self, till: &Till, sequence: u64, amount: u64, terms: &Terms) -> bool {
        if let Some(asked) = self.aside.as_mut().and_then(|aside| aside.asked.as_mut())
            && sequence == self.sequence.get()
        {
            asked.ttl_ms = asked.ttl_ms.min(terms.ttl_ms);
        }
        self.heard(till, sequence, amount, terms)
    }

    /// There was no answer: it may have arrived or not. What is known stays as it is, and may be asked again.
    pub fn unheard(&mut self, till: &Till, sequence: u64, now_ms: u64, terms: &Terms) {
        if self.take_asked(sequence).is_some() {
            // Not at once again: a store that is gone is asked by others too.
            self.renew_ms = U40::of(self.renew_ms.get().max(now_ms + RETRY_MS));
            self.set_marks(till, terms);
        }
    }

    /// Says to the till when this purse has to be looked at.
    pub(super) fn set_marks(&self, till: &Till, terms: &Terms) {
        match self.is_asking() {
            // Whatever is to be said is being said.
            true => till.set_marks(self.closes_ms.get(), i64::MIN),
            false => {
                let low = i64::try_from(self.size(terms) / 4).unwrap_or(i64::MAX);
                till.set_marks(self.closes_ms.get().min(self.renew_ms.get()), low);
            }
        }
    }

    /// Nobody spends from now on without asking this purse.
    pub(super) fn be_looked_at(&self, till: &Till) {
        till.set_marks(0, i64::MAX);
    }

    fn rate(&mut self, balance: i64, now_ms: u64) {
        let spent = self.spent(balance);
        let recent = spent.saturating_sub(self.rated_spent).saturating_mul(1024);
        let elapsed_ms = now_ms.saturating_sub(self.rated_ms.get());
        let Some(recent) = recent.checked_div(elapsed_ms) else { return };
        if self.rated_ms.get() != 0 {
            // The first measure stands for itself; later ones weigh by how long they were.
            let (rate, weight) = match self.rated() {
                Some(rate) => (rate, elapsed_ms.saturating_mul(4).min(MEMORY_MS)),
                None => (0, MEMORY_MS),
            };
            let before = u128::from(rate) * u128::from(MEMORY_MS - weight);
            let after = u128::from(recent) * u128::from(weight);
            let rate = u32::try_from((before + after) / u128::from(MEMORY_MS)).unwrap_or(u32::MAX);
            self.rate = Some(NonZeroU32::MIN.saturating_add(rate));
        }
        self.rated_ms = U40::of(now_ms.max(1));
        self.rated_spent = spent;
    }

    /// Whether nothing was spent since the last message, and it is time for the next: then it should be given back.
    pub fn is_idle(&self, till: &Till, now_ms: u64) -> bool {
        self.is_due(now_ms) && !self.has_spent(till)
    }

    /// Whether anything was spent since the last message.
    pub fn has_spent(&self, till: &Till) -> bool {
        self.spent(till.balance()) != self.rated_spent
    }

    /// Whether it is time for a message, and nobody has sent one.
    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.renew_ms.get() && !self.is_asking()
    }
}

/// A closed purse may ask again after this.
const RETRY_MS: u64 = 200;

/// How often the store is told of slack of which so much is spent, if that is known; nothing for a lease.
pub(super) fn every_ms(per_second: Option<u64>, terms: &Terms) -> Option<u64> {
    let every_ms = match (terms.rhythm, per_second) {
        (Rhythm::Life, _) => return None,
        (Rhythm::Every(every_ms), _) => every_ms,
        (Rhythm::AsUsed, Some(BUSY_PER_SECOND..)) => SYNC_BUSY_MS,
        (Rhythm::AsUsed, Some(0..=QUIET_PER_SECOND)) => SYNC_QUIET_MS,
        (Rhythm::AsUsed, _) => SYNC_MS,
    };
    Some(every_ms.min(terms.ttl_ms / ROUNDS).max(1))
}

/// How long slack lives that the store is told of every so often.
pub(super) fn life_ms(every_ms: u64, terms: &Terms) -> u64 {
    every_ms.saturating_mul(ROUNDS).max(LIFE_MS_MIN).min(terms.ttl_ms)
}

/// How long a purse is open: it closes before the store's row expires, by a margin.
fn open_ms(ttl_ms: u64) -> u64 {
    ttl_ms.saturating_sub((ttl_ms / 20).max(5))
}
