//! What a holder does with a check: each answer once, in the order in which it may follow from another.

use super::definitions::plain;
use crate::limit::holder::{Holder, Step, terms};
use crate::limit::purse::{Message, Terms};
use crate::limit::slack::Slack;
use crate::limit::{Definition, Mechanism};
use crate::meter::Algorithm;

const TERMS: Terms = Terms { ttl_ms: 1_000, size: Some(100) };
const SLACK: Slack = Slack { sync_ms: 100, low: 200 };

fn renewed(holder: &mut Holder, now_ms: u64, amount: u64) -> Message {
    let Step::Renew(message) = holder.check(1, now_ms, &TERMS, None, false) else { panic!("it has nothing") };
    assert!(holder.heard(message.sequence, amount, &TERMS));
    message
}

#[test]
fn an_empty_holder_asks_others_wait_and_who_has_waited_goes_to_the_store() {
    let mut holder = Holder::default();
    let Step::Renew(message) = holder.check(1, 10, &TERMS, None, false) else { panic!("it has nothing") };
    assert_eq!((message.want, message.spent), (100, 0));
    assert_eq!(holder.check(1, 10, &TERMS, None, false), Step::Wait);
    holder.heard(message.sequence, 1, &TERMS);
    assert!(matches!(holder.check(1, 11, &TERMS, None, true), Step::Spent { ask: Some(_), .. }));
    assert_eq!(holder.check(1, 11, &TERMS, None, true), Step::Ask);
}

#[test]
fn the_store_s_no_stands_for_a_moment_and_for_those_who_cost_as_much() {
    let mut holder = Holder::default();
    renewed(&mut holder, 10, 2);
    assert!(matches!(holder.check(2, 11, &TERMS, None, false), Step::Spent { .. }));
    for (retry_ms, stands_ms) in [(Some(30), 30), (Some(5_000), 100), (None, 100)] {
        holder.note_refusal(2, retry_ms, 20);
        let retry_at_ms = retry_ms.map(|retry_ms| 20 + retry_ms);
        assert_eq!(holder.check(2, 19 + stands_ms, &TERMS, None, true), Step::Refused { retry_at_ms });
        assert_eq!(holder.check(1, 19 + stands_ms, &TERMS, None, true), Step::Ask, "it costs less");
        assert_eq!(holder.check(2, 20 + stands_ms, &TERMS, None, true), Step::Ask);
    }
}

#[test]
fn with_little_left_the_store_decides_and_slack_goes_back() {
    let mut holder = Holder::default();
    renewed(&mut holder, 10, 100);
    holder.note_left(200);
    assert!(matches!(holder.check(1, 11, &TERMS, Some(&SLACK), false), Step::Spent { ask: None, .. }));
    let said = holder.sync(110, &TERMS, &SLACK).expect("something was spent");
    assert_eq!((said.spent, said.kept, said.want), (1, 99, 1));
    holder.heard(said.sequence, 100, &TERMS);
    assert_eq!(holder.sync(210, &TERMS, &SLACK), None, "nothing was spent since");
    holder.note_left(199);
    assert_eq!(holder.check(1, 211, &TERMS, Some(&SLACK), false), Step::Ask);
    assert!(matches!(holder.check(1, 211, &TERMS, None, false), Step::Spent { .. }), "a lease knows no mark");
    let said = holder.sync(310, &TERMS, &SLACK).expect("what is left goes back");
    assert_eq!((said.kept, said.want), (0, 0));
    holder.heard(said.sequence, 0, &TERMS);
    assert_eq!(holder.sync(410, &TERMS, &SLACK), None);
}

#[test]
fn what_is_idle_goes_back_and_is_forgotten_later() {
    let mut holder = Holder::default();
    renewed(&mut holder, 10, 100);
    assert_eq!(holder.look(300, &TERMS), None, "not yet due");
    let said = holder.look(600, &TERMS).expect("nobody has spent any");
    assert_eq!((said.kept, said.want), (0, 0));
    holder.heard(said.sequence, 0, &TERMS);
    assert_eq!(holder.look(1_500, &TERMS), None);
    assert!(!holder.is_over(1_500, &TERMS), "the lease would still be open");
    assert!(holder.is_over(2_010, &TERMS));
}

#[test]
fn what_is_small_in_flight_or_only_counted_has_no_lease() {
    let leased = Definition { mechanism: Mechanism::Leased, ..plain(80, 5_000) };
    assert_eq!(terms(&leased, "k"), Some(Terms { ttl_ms: 5_000, size: None }));
    let long = Definition { window_ms: 60_000, ..leased.clone() };
    assert_eq!(terms(&long, "k"), Some(Terms { ttl_ms: 10_000, size: None }));
    for other in [
        Definition { limit: 79, ..leased.clone() },
        Definition { mechanism: Mechanism::Central, ..leased.clone() },
        Definition { algorithm: Algorithm::InFlight, ..leased.clone() },
        Definition { dry_run: true, ..leased },
    ] {
        assert_eq!(terms(&other, "k"), None);
    }
}
