//! Purses beside a real meter: whatever gets lost, what is spent stays within what the meter allows.

use super::definitions::plain;
use crate::limit::purse::{Message, Purse, Spent, Terms};
use crate::limit::till::Till;
use crate::limit::{Defined, Definition};
use crate::meter::{Claim, Meter, Reclaim, RowClaim, RowKind, Take, charge};
use crate::record::{Group, Key, Revision};
use alloc::format;
use alloc::vec::Vec;
use proptest::prelude::*;

const TERMS: Terms = Terms::lease(400, None);
const WINDOW_MS: u64 = 1_000;

/// A purse with its till, as one holder has them.
#[derive(Default)]
struct Holder {
    purse: Purse,
    till: Till,
    terms: Option<Terms>,
}

impl Holder {
    fn terms(&self) -> Terms {
        self.terms.unwrap_or(TERMS)
    }

    fn spend(&mut self, cost: u64, now_ms: u64) -> Spent {
        self.purse.spend(&self.till, cost, now_ms)
    }

    /// For a check that may come to nothing. After which message, if it is there.
    fn spend_open(&mut self, cost: u64, now_ms: u64) -> Option<u64> {
        let Spent::Yes { sequence, .. } = self.spend(cost, now_ms) else { return None };
        self.purse.leave_open(cost);
        Some(sequence)
    }

    fn decided(&mut self, cost: u64, sequence: u64, is_spent: bool, now_ms: u64) {
        self.purse.decided(&self.till, cost, sequence, is_spent, now_ms);
    }

    fn balance(&self, now_ms: u64) -> u64 {
        self.purse.balance(&self.till, now_ms)
    }

    fn ask(&mut self, cost: u64, now_ms: u64, terms: &Terms) -> Message {
        self.terms = Some(*terms);
        self.purse.ask(&self.till, cost, now_ms, terms)
    }

    fn give_back(&mut self, now_ms: u64) -> Message {
        self.purse.give_back(&self.till, false, now_ms, &self.terms())
    }

    fn trim(&mut self, now_ms: u64) -> Message {
        self.purse.trim(&self.till, now_ms, &self.terms())
    }

    fn heard(&mut self, sequence: u64, amount: u64) -> bool {
        let terms = self.terms();
        self.purse.heard(&self.till, sequence, amount, &terms)
    }

    fn unheard(&mut self, sequence: u64, now_ms: u64) {
        let terms = self.terms();
        self.purse.unheard(&self.till, sequence, now_ms, &terms);
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        self.purse.is_idle(&self.till, now_ms)
    }
}

/// One meter, and holders that talk to it over a bad line.
struct World {
    now_ms: u64,
    meter: Option<Meter>,
    purses: Vec<Holder>,
    limit: u64,
    /// What was spent in each window.
    spent: alloc::collections::BTreeMap<u64, u64>,
    /// Messages that arrive later: when, whose, what.
    late: Vec<(u64, usize, Message)>,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    Good,
    AnswerLost,
    Lost,
    Late(u64),
}

impl World {
    fn new(holders: usize, limit: u64) -> Self {
        let purses = (0..holders).map(|_| Holder::default()).collect();
        Self { now_ms: 1_000_000, meter: None, purses, limit, spent: Default::default(), late: Vec::new() }
    }

    /// The store hears a message; what the row has then.
    fn arrives(&mut self, holder: usize, message: Message) -> u64 {
        let definition = Definition { reclaim: Reclaim::Burn, ..plain(self.limit, WINDOW_MS) };
        let rule = Defined { definition, version: Revision(1) }.rule("k", None);
        let id = format!("row-{holder}");
        let row = RowClaim {
            id: id.clone(),
            owner: "node".into(),
            kind: RowKind::Lease,
            ttl_ms: message.ttl_ms,
            sequence: message.sequence,
            spent: message.spent,
            kept: message.kept,
        };
        let take = if message.want == 0 { Take::Nothing } else { Take::Share(message.want) };
        let claim = Claim { key: Key::new(Group(0), []), rule, take, row: Some(row) };
        let effect = charge(self.meter.take(), &claim, self.now_ms).unwrap();
        let amount = effect.meter.row(&id).map_or(0, |row| row.amount);
        self.meter = Some(effect.meter);
        amount
    }

    fn send(&mut self, holder: usize, message: Message, line: Line) {
        match line {
            Line::Good => {
                let amount = self.arrives(holder, message);
                assert!(self.purses[holder].heard(message.sequence, amount));
            }
            Line::AnswerLost => {
                self.arrives(holder, message);
                self.purses[holder].unheard(message.sequence, self.now_ms);
            }
            Line::Lost => self.purses[holder].unheard(message.sequence, self.now_ms),
            Line::Late(by_ms) => {
                self.late.push((self.now_ms + by_ms, holder, message));
                self.purses[holder].unheard(message.sequence, self.now_ms);
            }
        }
    }

    fn spend(&mut self, holder: usize, cost: u64, line: Line, terms: &Terms) {
        match self.purses[holder].spend(cost, self.now_ms) {
            Spent::Yes { ask, .. } => {
                *self.spent.entry(self.now_ms / WINDOW_MS).or_default() += cost;
                if ask {
                    let message = self.purses[holder].ask(0, self.now_ms, terms);
                    self.send(holder, message, line);
                }
            }
            Spent::No if !self.purses[holder].purse.is_asking() => {
                let message = self.purses[holder].ask(cost, self.now_ms, terms);
                self.send(holder, message, line);
            }
            Spent::No => {}
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now_ms += millis;
        let now_ms = self.now_ms;
        let due: Vec<_> = self.late.extract_if(.., |(at_ms, ..)| *at_ms <= now_ms).collect();
        for (_, holder, message) in due {
            // Nobody waits for its answer any more.
            self.arrives(holder, message);
        }
    }
}

fn line() -> impl Strategy<Value = Line> {
    prop_oneof![
        6 => Just(Line::Good),
        1 => Just(Line::AnswerLost),
        1 => Just(Line::Lost),
        1 => (1..900_u64).prop_map(Line::Late),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Spend { holder: usize, cost: u64, times: u64, line: Line, short: bool },
    GiveBack { holder: usize, line: Line },
    Trim { holder: usize, line: Line },
    SpendOpen { holder: usize, cost: u64, asks: Option<Line> },
    Decide { is_spent: bool },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_usize, 1..4_u64, 1..30_u64, line(), any::<bool>())
            .prop_map(|(holder, cost, times, line, short)| Step::Spend { holder, cost, times, line, short }),
        1 => (0..6_usize, line()).prop_map(|(holder, line)| Step::GiveBack { holder, line }),
        1 => (0..6_usize, line()).prop_map(|(holder, line)| Step::Trim { holder, line }),
        2 => (0..6_usize, 1..9_u64, prop::option::of(line()))
            .prop_map(|(holder, cost, asks)| Step::SpendOpen { holder, cost, asks }),
        2 => any::<bool>().prop_map(|is_spent| Step::Decide { is_spent }),
        4 => prop_oneof![1..40_u64, 40..600_u64].prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn what_holders_spend_stays_within_the_limit_whatever_gets_lost(
        limit in 20..400_u64,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(6, limit);
        // Two lives of a lease, as when a definition changes.
        let short = Terms { ttl_ms: 100, ..TERMS };
        let mut undecided = Vec::new();
        for step in steps {
            match step {
                Step::Spend { holder, cost, times, line, short: is_short } => {
                    let terms = if is_short { short } else { TERMS };
                    for _ in 0..times {
                        world.spend(holder, cost, line, &terms);
                    }
                }
                Step::GiveBack { holder, line } if !world.purses[holder].purse.is_asking() => {
                    let message = world.purses[holder].give_back(world.now_ms);
                    world.send(holder, message, line);
                }
                Step::Trim { holder, line } if !world.purses[holder].purse.is_asking() => {
                    let message = world.purses[holder].trim(world.now_ms);
                    world.send(holder, message, line);
                }
                Step::GiveBack { .. } | Step::Trim { .. } => {}
                Step::SpendOpen { holder, cost, asks } => {
                    // For a check that may come to nothing, perhaps after a message, or when the purse has long been closed.
                    let now_ms = world.now_ms;
                    if let Some(sequence) = world.purses[holder].spend_open(cost, now_ms) {
                        undecided.push((holder, cost, sequence, now_ms));
                    }
                    if let Some(line) = asks && !world.purses[holder].purse.is_asking() {
                        let message = world.purses[holder].ask(0, now_ms, &TERMS);
                        world.send(holder, message, line);
                    }
                }
                Step::Decide { is_spent } => {
                    if let Some((holder, cost, sequence, at_ms)) = undecided.pop() {
                        world.purses[holder].decided(cost, sequence, is_spent, world.now_ms);
                        if is_spent {
                            *world.spent.entry(at_ms / WINDOW_MS).or_default() += cost;
                        }
                    }
                }
                Step::Pass(millis) => world.pass(millis),
            }
        }
        for (window, spent) in &world.spent {
            prop_assert!(*spent <= limit, "{} of {} in window {}", spent, limit, window);
        }
    }
}

proptest! {
    /// As long as no lease ends with something in it, what was admitted is counted, and nothing else.
    #[test]
    fn what_comes_to_nothing_is_put_back_whatever_was_said_meanwhile(
        steps in prop::collection::vec((1..9_u64, any::<bool>(), any::<bool>(), 0..30_u64), 1..60),
    ) {
        let mut world = World::new(1, 1_000);
        let first = world.purses[0].ask(1, world.now_ms, &TERMS);
        world.send(0, first, Line::Good);
        let (mut undecided, mut admitted) = (Vec::new(), 0);
        for (cost, asks, is_spent, millis) in steps {
            if world.now_ms + millis < 1_000_380 {
                world.pass(millis);
            }
            if let Some(sequence) = world.purses[0].spend_open(cost, world.now_ms) {
                undecided.push((cost, sequence));
            }
            if asks {
                let message = world.purses[0].ask(0, world.now_ms, &TERMS);
                world.send(0, message, Line::Good);
            }
            if !undecided.is_empty() && (is_spent || undecided.len() > 3) {
                let (cost, sequence) = undecided.remove(0);
                world.purses[0].decided(cost, sequence, is_spent, world.now_ms);
                admitted += if is_spent { cost } else { 0 };
            }
        }
        for (cost, sequence) in undecided {
            world.purses[0].decided(cost, sequence, false, world.now_ms);
        }
        let last = world.purses[0].give_back(world.now_ms);
        world.send(0, last, Line::Good);
        let meter = world.meter.unwrap();
        prop_assert_eq!((meter.used(), meter.outstanding()), (admitted, 0));
    }
}

/// Spends everything there is, and says how much that was.
fn spend_all(purse: &mut Holder, now_ms: u64) -> u64 {
    let balance = purse.balance(now_ms);
    (balance > 0).then(|| purse.spend(balance, now_ms));
    balance
}

#[test]
fn a_purse_is_closed_before_the_row_expires_and_a_late_answer_does_not_open_it() {
    let mut purse = Holder::default();
    let first = purse.ask(1, 0, &TERMS);
    assert_eq!((first.sequence, first.spent, first.kept, first.want, first.ttl_ms), (1, 0, 0, 100, 400));
    assert!(purse.heard(1, 50));
    assert_eq!((purse.balance(379), purse.balance(380)), (50, 0), "a twentieth before its end");
    let second = purse.ask(1, 100, &TERMS);
    purse.unheard(second.sequence, 150);
    let third = purse.ask(1, 160, &TERMS);
    assert!(!purse.heard(second.sequence, 90), "an answer to a message before the last doesn't count");
    assert_eq!(third.kept, 50);
    assert!(purse.heard(third.sequence, 70));
    assert_eq!(spend_all(&mut purse, 200), 70);
}

#[test]
fn a_shorter_life_holds_from_when_it_was_said() {
    let mut purse = Holder::default();
    let first = purse.ask(1, 0, &TERMS);
    purse.heard(first.sequence, 50);
    let short = Terms::lease(100, None);
    let second = purse.ask(1, 10, &short);
    purse.unheard(second.sequence, 20);
    assert_eq!((purse.balance(104), purse.balance(105)), (50, 0), "the store may have heard it");
}

#[test]
fn what_is_undecided_is_kept_until_it_is_spent_or_put_back_or_the_purse_is_closed() {
    let mut purse = Holder::default();
    let first = purse.ask(1, 0, &TERMS);
    purse.heard(first.sequence, 50);
    let (put_back, spent) = (purse.spend_open(5, 1).unwrap(), purse.spend_open(7, 1).unwrap());
    assert_eq!(purse.balance(2), 38);
    let report = purse.ask(0, 2, &TERMS);
    assert_eq!((report.spent, report.kept), (0, 50), "nobody knows yet");
    purse.decided(5, put_back, false, 3);
    assert_eq!(purse.balance(3), 43);
    purse.heard(report.sequence, 50);
    purse.decided(7, spent, true, 4);
    let returned = purse.give_back(5);
    assert_eq!((returned.spent, returned.kept, purse.balance(5)), (7, 0, 0), "what goes back was not spent");
    purse.heard(returned.sequence, 0);
    let again = purse.ask(1, 6, &TERMS);
    purse.heard(again.sequence, 50);
    let late = purse.spend_open(5, 7).unwrap();
    // Closed, and opened again: what was undecided then counts as spent, if it isn't burned with the row already.
    let reopened = purse.ask(1, 500, &TERMS);
    assert_eq!((reopened.spent, reopened.kept), (12, 0));
    purse.heard(reopened.sequence, 50);
    purse.decided(5, late, false, 501);
    assert_eq!(purse.balance(501), 50);
    assert_eq!(purse.ask(0, 502, &TERMS).spent, 12);
}

#[test]
fn more_is_asked_for_before_it_runs_dry_and_before_it_ends_and_once() {
    let mut purse = Holder::default();
    let first = purse.ask(1, 0, &TERMS);
    purse.heard(first.sequence, 100);
    let asks = |purse: &mut Holder, cost, now_ms| match purse.spend(cost, now_ms) {
        Spent::Yes { ask, .. } => ask,
        Spent::No => panic!("it is there"),
    };
    assert!(!asks(&mut purse, 70, 1), "there is enough");
    assert!(asks(&mut purse, 10, 1), "less than a quarter is left");
    let second = purse.ask(0, 2, &TERMS);
    assert!(!asks(&mut purse, 5, 3), "somebody has asked already");
    purse.heard(second.sequence, 100);
    assert!(!asks(&mut purse, 1, 130), "not before a third of its life");
    assert!(asks(&mut purse, 1, 210), "after half of it at the latest");
}

#[test]
fn its_size_follows_what_is_spent_within_bounds_and_idle_ones_show() {
    let mut purse = Holder::default();
    let mut now_ms = 1;
    let mut sizes = Vec::new();
    for spends in [40_u64, 40, 400, 4_000, 40_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] {
        let message = purse.ask(1, now_ms, &TERMS);
        purse.heard(message.sequence, 50_000);
        purse.spend(spends, now_ms);
        sizes.push(purse.purse.size(&TERMS));
        now_ms += 15_000;
    }
    assert_eq!(sizes[0], 100, "nothing is known yet");
    assert!(sizes.windows(2).take(5).skip(1).all(|pair| pair[0] <= pair[1]), "{sizes:?}");
    assert!(sizes.iter().all(|size| (10..=10_000).contains(size)), "{sizes:?}");
    assert!(sizes.last() < sizes.iter().max(), "it forgets: {sizes:?}");
    assert!(purse.is_idle(now_ms));
    let fixed = Terms { size: Some(7), ..TERMS };
    assert_eq!(purse.purse.size(&fixed), 7);
}

#[test]
fn one_that_is_used_seldom_keeps_little_and_then_nothing() {
    let terms = Terms::lease(10_000, None);
    let mut purse = Holder::default();
    let first = purse.ask(1, 1, &terms);
    purse.heard(first.sequence, 50);
    purse.spend(1, 2);
    assert!(!purse.purse.is_due(3_000) && purse.purse.is_due(5_100) && !purse.is_idle(5_100), "it was used");
    let trimmed = purse.trim(5_100);
    assert_eq!((trimmed.spent, trimmed.kept, trimmed.want), (1, 10, 0), "the rest goes back");
    purse.heard(trimmed.sequence, 10);
    assert_eq!(purse.balance(5_101), 10);
    assert!(purse.is_idle(10_200), "nobody came");
    let returned = purse.give_back(10_200);
    assert_eq!((returned.spent, returned.kept), (1, 0));
}

#[test]
fn a_lease_that_has_a_largest_size_has_it_with_what_is_undecided() {
    let terms = Terms { size_max: 100, ..Terms::lease(400, Some(100)) };
    let mut holder = Holder::default();
    let first = holder.ask(1, 0, &terms);
    assert_eq!((first.want, holder.heard(first.sequence, first.want)), (100, true));
    assert!(holder.spend_open(90, 1).is_some());
    let asked = holder.ask(20, 2, &terms);
    let needed = holder.purse.need(&holder.till, 50, 3, &terms);
    let anew = holder.purse.give_back(&holder.till, true, 4, &terms);
    assert_eq!(
        [asked, needed, anew].map(|message| (message.kept, message.want)),
        [(100, 0), (100, 0), (90, 10)]
    );
}
