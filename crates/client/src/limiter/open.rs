//! A purse while somebody looks at it: what was in its pocket is back in its till. In the end what may be spent without looking goes
//! into the pocket again, whatever was done meanwhile.

use super::purses::Held;
use super::table::Found;
use baton_core::limit::holder::Holder;
use baton_core::limit::purse::Terms;
use baton_core::limit::till::Till;

pub(super) struct Open<'a> {
    found: Found<'a, Held>,
    till: Till,
    /// What the purse goes by meanwhile.
    pub terms: Terms,
    now_ms: u64,
}

impl<'a> Open<'a> {
    pub fn new(found: Found<'a, Held>, now_ms: u64) -> Self {
        let till = Till::of(found.cold.balance + found.pocket.empty() as i64);
        let terms = found.cold.terms();
        let mut open = Self { found, till, terms, now_ms };
        open.holder().mark();
        open
    }

    pub fn held(&mut self) -> &mut Held {
        &mut self.found.cold
    }

    pub fn holder(&mut self) -> Holder<'_> {
        let Held { purse, rare, .. } = &mut *self.found.cold;
        // It goes again in the end, if there is nothing in it.
        let known = &mut rare.get_or_insert_default().known;
        Holder { till: &self.till, purse, known, terms: &self.terms }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let (amount, alarm_ms) = self.till.pocket();
        // What had this pocket before had no alarm after that moment: who still knows one of those must not meet it again. An alarm that
        // is over has everyone look, and is never spent before.
        let alarm_ms = if alarm_ms > self.found.forgotten_ms { alarm_ms } else { 0 };
        let held = &mut *self.found.cold;
        held.balance = self.till.balance();
        held.stays(alarm_ms);
        if let Some(rare) = &mut held.rare {
            rare.known.tidy(self.now_ms);
        }
        held.rare.take_if(|rare| !rare.is_needed());
        self.found.pocket.fill(amount, alarm_ms);
    }
}
