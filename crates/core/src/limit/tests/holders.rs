//! What a holder does with a check: each answer once, in the order in which it may follow from another.

use super::definitions::plain;
use crate::limit::holder::{Holder, Known, Seen, Step, Waits, taken, terms};
use crate::limit::purse::{Message, Purse, Rhythm, Terms};
use crate::limit::till::Till;
use crate::limit::{Defined, Definition, Identity, Mechanism};
use crate::meter::{Algorithm, Claim, Meter, Rule, Take, charge};
use crate::record::{Group, Key, Revision};

const TERMS: Terms = Terms::lease(1_000, Some(100));
const SLACK: Terms = Terms { rhythm: Rhythm::Every(100), low: 200, ..TERMS };
/// Of a store that has plenty.
const PLENTY: Seen = Seen { remaining: 1_000, left: 1_000, stands_ms: 0 };
const EMPTY: Seen = Seen { remaining: 0, left: 1_000, stands_ms: 15 };

/// One that has all its parts.
struct Whole {
    till: Till,
    purse: Purse,
    known: Known,
    terms: Terms,
}

impl Whole {
    fn new(terms: Terms) -> Self {
        Self { till: Till::default(), purse: Purse::default(), known: Known::default(), terms }
    }

    fn holder(&mut self) -> Holder<'_> {
        Holder { till: &self.till, purse: &mut self.purse, known: &mut self.known, terms: &self.terms }
    }

    /// A check that has waited so often.
    fn check(&mut self, cost: u64, now_ms: u64, had: usize) -> Step {
        self.holder().check(cost, now_ms, Waits { had, most: 3 })
    }

    fn heard(&mut self, message: Message, amount: u64, seen: Seen, now_ms: u64) {
        assert!(self.holder().heard(message.sequence, amount, seen, now_ms));
    }

    /// One that was given so much.
    fn given(terms: Terms, now_ms: u64, amount: u64) -> Self {
        let mut whole = Self::new(terms);
        let message = whole.renew(1, now_ms, 0);
        whole.heard(message, amount, PLENTY, now_ms);
        whole
    }

    fn renew(&mut self, cost: u64, now_ms: u64, had: usize) -> Message {
        match self.check(cost, now_ms, had) {
            Step::Renew(message) => message,
            other => panic!("{other:?}: it has nothing"),
        }
    }
}

fn ask(is_low: bool) -> Step {
    Step::Ask { say: None, is_low }
}

#[test]
fn an_empty_holder_asks_for_a_share_and_then_for_just_what_those_lack_who_wait() {
    let mut whole = Whole::new(TERMS);
    let first = whole.renew(1, 10, 0);
    assert_eq!((first.want, first.spent, first.is_needed), (100, 0, false));
    for _ in 0..4 {
        assert_eq!(whole.check(2, 10, 0), Step::Wait);
    }
    whole.heard(first, 3, PLENTY, 11);
    assert!(
        matches!(whole.check(1, 11, 1), Step::Spent { ask: Some(_), .. }),
        "and more is asked for beside it"
    );
    assert!(matches!(whole.check(2, 11, 1), Step::Spent { ask: None, .. }));
    whole.holder().unheard(2, 11);
    assert_eq!(whole.check(2, 11, 1), ask(false), "nobody knows what is there");
    // The same, and nothing gets lost: of nine that are wanted three come, so six are lacking.
    let mut whole = Whole::new(Terms { size: Some(1), ..TERMS });
    let first = whole.renew(1, 10, 0);
    for _ in 0..4 {
        assert_eq!(whole.check(2, 10, 0), Step::Wait);
    }
    whole.heard(first, 3, PLENTY, 11);
    assert!(matches!(whole.check(1, 11, 1), Step::Spent { ask: None, .. }));
    assert!(matches!(whole.check(2, 11, 1), Step::Spent { ask: None, .. }));
    let second = whole.renew(2, 11, 1);
    assert_eq!((second.want, second.is_needed), (6, true));
    assert_eq!(whole.check(2, 11, 1), Step::Wait);
    assert_eq!(whole.check(2, 11, 1), Step::Wait);
    // All or nothing, and it is nothing: four are left, so two of three can go on.
    whole.heard(second, 0, Seen { remaining: 4, ..PLENTY }, 12);
    let third = whole.renew(2, 12, 2);
    assert_eq!((third.want, third.is_needed), (4, true));
    assert_eq!((whole.check(2, 12, 2), whole.check(2, 12, 2)), (Step::Wait, Step::Wait));
    whole.heard(third, 4, EMPTY, 13);
    assert!(matches!(whole.check(2, 13, 3), Step::Spent { .. }));
    assert!(matches!(whole.check(2, 13, 3), Step::Spent { .. }));
    assert_eq!(whole.check(2, 13, 3), Step::Refused { retry_at_ms: Some(28) });
}

#[test]
fn who_has_waited_as_often_as_one_may_or_costs_more_than_there_is_goes_to_the_store() {
    let mut whole = Whole::new(TERMS);
    let message = whole.renew(9, 10, 0);
    whole.heard(message, 0, Seen { remaining: 5, ..PLENTY }, 11);
    assert_eq!(whole.check(9, 11, 1), ask(false), "five are left at the store, and nine are wanted");
    assert!(matches!(whole.check(5, 11, 1), Step::Renew(Message { want: 5, is_needed: true, .. })));
    assert_eq!(whole.check(5, 11, 3), ask(false));
    let holds_nothing = Waits { had: 0, most: 0 };
    assert_eq!(
        Whole::new(TERMS).holder().check(1, 10, holds_nothing),
        ask(false),
        "nothing is asked for any more"
    );
    assert!(matches!(
        Whole::given(TERMS, 10, 1).holder().check(1, 10, holds_nothing),
        Step::Spent { ask: None, .. }
    ));
}

#[test]
fn an_empty_store_is_not_asked_again_for_a_moment_by_whoever_comes() {
    let mut whole = Whole::new(TERMS);
    let message = whole.renew(1, 10, 0);
    assert_eq!(whole.check(1, 10, 0), Step::Wait);
    whole.heard(message, 0, EMPTY, 11);
    for had in [0, 1, 2] {
        assert_eq!(whole.check(1, 25, had), Step::Refused { retry_at_ms: Some(26) });
    }
    assert!(matches!(whole.check(1, 26, 0), Step::Renew(_)));
}

#[test]
fn a_store_is_empty_until_what_comes_in_ten_milliseconds_is_there_and_a_tenth_of_a_second_at_most() {
    let stands = |algorithm, limit, window_ms| {
        let definition = Definition { algorithm, ..plain(limit, window_ms) };
        let rule: Rule = Defined { definition, version: Revision(1) }.rule("k", None);
        let take = Take::AllOrNone(limit);
        let claim = Claim { key: Key::new(Group(0), []), rule: rule.clone(), take, row: None };
        let meter: Meter = charge(None, &claim, 1_000_000).unwrap().meter;
        Seen::of(&meter, &rule).stands_ms
    };
    assert_eq!(stands(Algorithm::TokenBucket, 100_000, 1_000), 10, "a hundred come in a millisecond");
    assert_eq!(stands(Algorithm::TokenBucket, 20, 1_000), 50, "the next one comes then");
    assert_eq!(stands(Algorithm::TokenBucket, 2, 1_000), 100);
    assert_eq!(stands(Algorithm::FixedWindow, 100, 20), 20, "the window's end");
    assert_eq!(stands(Algorithm::FixedWindow, 100, 60_000), 100);
    let rule = Defined { definition: plain(10, 100), version: Revision(1) }.rule("k", None);
    let look = Claim { key: Key::new(Group(0), []), rule: rule.clone(), take: Take::Nothing, row: None };
    let fresh = charge(None, &look, 1_000_000).unwrap().meter;
    assert_eq!(Seen::of(&fresh, &rule), Seen { remaining: 10, left: 10, stands_ms: 0 });
}

#[test]
fn the_store_s_no_stands_for_a_moment_and_for_those_who_cost_as_much() {
    let mut whole = Whole::given(TERMS, 10, 2);
    assert!(matches!(whole.check(2, 11, 0), Step::Spent { .. }));
    let sent = whole.purse.is_asking().then_some(2).unwrap();
    whole.holder().unheard(sent, 11);
    for (retry_ms, stands_ms, stood_ms) in
        [(Some(30), 0, 30), (Some(1), 10, 10), (Some(5_000), 0, 100), (None, 0, 100)]
    {
        whole.holder().note_refusal(2, retry_ms, stands_ms, 20);
        let retry_at_ms = retry_ms.map(|retry_ms| 20 + retry_ms);
        assert_eq!(whole.check(2, 19 + stood_ms, 3), Step::Refused { retry_at_ms });
        assert_eq!(whole.check(1, 19 + stood_ms, 3), ask(false), "it costs less");
        assert_eq!(whole.check(2, 20 + stood_ms, 3), ask(false));
    }
}

#[test]
fn with_little_left_the_store_decides_and_slack_goes_back() {
    let mut whole = Whole::given(SLACK, 10, 100);
    assert!(matches!(whole.check(1, 11, 0), Step::Spent { ask: None, .. }));
    // A round later the store is told, beside a check.
    let Step::Spent { ask: Some(said), .. } = whole.check(1, 110, 0) else { panic!("it is time") };
    assert_eq!((said.spent, said.kept, said.want, said.ttl_ms), (2, 98, 2, 400));
    whole.heard(said, 100, Seen { left: 199, ..PLENTY }, 111);
    let Step::Ask { say: Some(back), is_low: true } = whole.check(1, 112, 0) else {
        panic!("little is left")
    };
    assert_eq!((back.kept, back.want), (0, 0));
    assert_eq!(whole.check(1, 112, 0), ask(true), "it is said once");
    whole.heard(back, 0, Seen { left: 199, ..PLENTY }, 113);
    assert_eq!(whole.check(1, 114, 0), ask(true));
    whole.holder().note_left(200);
    assert!(matches!(whole.check(1, 115, 0), Step::Renew(_)), "there is enough again");
    let mut leased = Whole::given(TERMS, 10, 100);
    leased.holder().note_left(0);
    assert!(matches!(leased.check(1, 11, 0), Step::Spent { .. }), "a lease knows no mark");
}

#[test]
fn with_little_left_nobody_spends_past_the_holder_and_what_is_idle_goes_back_too() {
    let mut whole = Whole::given(SLACK, 10, 100);
    assert!(whole.till.is_quiet(11));
    whole.holder().note_left(0);
    assert!(!whole.till.is_quiet(11), "whoever spends looks first");
    whole.till = Till::of(whole.till.balance());
    whole.holder().mark();
    assert!(!whole.till.is_quiet(11), "also if its till was put together anew");
    let said = whole.holder().look(false, 12).expect("it is of no use here");
    assert_eq!((said.kept, said.want), (0, 0));
}

#[test]
fn slack_is_reconciled_as_often_as_is_spent_and_lives_for_four_rounds() {
    let adapts = Terms { rhythm: Rhythm::AsUsed, ttl_ms: 60_000, size: Some(1_000_000), ..TERMS };
    for (spent, every_ms) in [(2_000, 100), (200, 500), (20, 2_000)] {
        let mut whole = Whole::given(adapts, 1, 1_000_000);
        // What is spent in a second, then a message, then another whose answer says when to come again.
        assert!(matches!(whole.check(spent, 2, 0), Step::Spent { .. }));
        let Step::Spent { ask: Some(said), .. } = whole.check(1, 1_001, 0) else { panic!("it is time") };
        assert_eq!(said.ttl_ms, 4 * every_ms, "{spent} a second");
        whole.heard(said, 1_000_000, PLENTY, 1_002);
        let is_asked = |whole: &mut Whole, now_ms| match whole.check(1, now_ms, 0) {
            Step::Spent { ask, .. } => ask.is_some(),
            other => panic!("{other:?}"),
        };
        assert!(!is_asked(&mut whole, 1_001 + every_ms * 7 / 8 - 1));
        assert!(is_asked(&mut whole, 1_001 + every_ms));
    }
    let short = Terms { ttl_ms: 200, ..adapts };
    let mut whole = Whole::new(short);
    assert_eq!(whole.renew(1, 10, 0).ttl_ms, 200, "never longer than the window");
}

#[test]
fn what_is_idle_goes_back_and_is_forgotten_later() {
    let mut whole = Whole::given(TERMS, 10, 100);
    assert_eq!(whole.holder().look(false, 300), None, "not yet due");
    assert!(Whole::given(TERMS, 10, 100).holder().look(true, 300).is_some(), "unless it has to go");
    let said = whole.holder().look(false, 600).expect("nobody has spent any");
    assert_eq!((said.kept, said.want), (0, 0));
    whole.heard(said, 0, PLENTY, 601);
    assert_eq!(whole.holder().look(false, 1_500), None);
    assert!(!whole.holder().is_over(10, 1_500), "the lease would still be open");
    assert!(whole.holder().is_over(10, 2_010));
}

#[test]
fn a_message_takes_a_share_or_all_that_is_needed_or_nothing() {
    let rule = Defined { definition: plain(10, 100), version: Revision(1) }.rule("k", None);
    let message = Whole::new(TERMS).renew(1, 10, 0);
    assert_eq!(taken(&message, &rule), Take::Share(100));
    assert_eq!(taken(&Message { is_needed: true, ..message }, &rule), Take::Try(100));
    assert_eq!(taken(&Message { want: 0, ..message }, &rule), Take::Nothing);
}

#[test]
fn what_is_small_in_flight_audited_or_only_counted_has_no_lease() {
    let terms = |definition: &Definition| terms(definition, "k", Identity::default());
    let leased = Definition { mechanism: Mechanism::Leased, ..plain(80, 5_000) };
    assert_eq!(terms(&leased), Some(Terms::lease(5_000, None)));
    let long = Definition { window_ms: 60_000, ..leased.clone() };
    assert_eq!(terms(&long), Some(Terms::lease(10_000, None)));
    let owned = Definition { mechanism: Mechanism::Owned, ..leased.clone() };
    assert_eq!(terms(&owned), Some(Terms::lease(5_000, Some(4))), "an owner holds one chunk");
    let approximate = Definition { mechanism: Mechanism::Approximate, ..long };
    assert_eq!(terms(&approximate).map(|terms| (terms.ttl_ms, terms.low)), Some((60_000, 16)));
    for other in [
        Definition { limit: 79, ..leased.clone() },
        Definition { limit: 79, ..approximate },
        Definition { mechanism: Mechanism::Central, ..leased.clone() },
        Definition { algorithm: Algorithm::InFlight, ..leased.clone() },
        Definition { audit: true, ..leased.clone() },
        Definition { dry_run: true, ..leased },
    ] {
        assert_eq!(terms(&other), None);
    }
}
