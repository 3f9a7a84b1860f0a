//! What is recommended to whom, and how the figures stand to each other.

use super::definitions::plain;
use crate::limit::advise::{Advice, Figures, Measured};
use crate::limit::{Answer, Definition, Policy, Purpose, Question, Way};
use crate::meter::Algorithm;

fn question(purpose: Purpose) -> Question {
    let (algorithm, _, on_failure) = purpose.preset();
    Question {
        definition: Definition { algorithm, on_failure, ..plain(142_858, 1_000) },
        purpose,
        rate: 100_000,
        nodes: 20,
        keys: 1,
        store_latency_us: 1_000,
        is_counted_elsewhere: false,
        is_exact: false,
    }
}

/// Nobody measures.
fn advise(question: &Question) -> Advice {
    crate::limit::advise(question, |_| None)
}

fn of(advice: &Advice, way: Way) -> &Figures {
    advice.figures.iter().find(|figures| figures.way == way).unwrap()
}

/// What is recommended where owners aren't there yet, and where they are.
fn owned_or(way: Way) -> Answer {
    Answer::Use(if Way::Owned.is_available() { Way::Owned } else { way })
}

#[test]
fn each_purpose_has_its_mechanism_and_some_need_none() {
    let abuse = question(Purpose::Abuse);
    let one_node = Question { nodes: 1, ..abuse.clone() };
    for (question, answer, word) in [
        (question(Purpose::Security), Answer::Use(Way::Central), "each counts"),
        (question(Purpose::Billing), owned_or(Way::Central), "paid for"),
        (question(Purpose::Authenticated), owned_or(Way::Leased), ""),
        (abuse.clone(), Answer::Use(Way::Leased), "0.06 %"),
        (one_node.clone(), Answer::NotNeeded, "in its process"),
        (Question { nodes: 1, ..question(Purpose::Security) }, Answer::Use(Way::Central), "each counts"),
        (Question { is_counted_elsewhere: true, ..abuse.clone() }, Answer::NotNeeded, "same transaction"),
        (Question { is_exact: true, ..abuse.clone() }, Answer::Use(Way::Central), "tight time-out"),
        (
            Question { definition: plain(79, 1_000), rate: 50, ..abuse.clone() },
            Answer::Use(Way::Central),
            "twentieth",
        ),
        (Question { keys: 10_000, rate: 10_000, ..abuse.clone() }, Answer::Use(Way::Central), "seldom"),
        (Question { rate: 150_000, ..abuse }, Answer::Use(Way::Leased), "higher limit"),
    ] {
        let advice = advise(&question);
        assert_eq!(advice.answer, answer, "{question:?}");
        assert!(advice.because.contains(word), "{}", advice.because);
        assert_eq!(advice.figures.len(), Way::ALL.len());
    }
}

#[test]
fn what_decides_in_process_asks_the_store_less_and_waits_less() {
    let advice = advise(&question(Purpose::Abuse));
    let operations = |way| of(&advice, way).store_operations;
    assert_eq!(operations(Way::Central), 100_000.0);
    assert!(operations(Way::Leased) < 1_000.0 && operations(Way::Approximate) < 1_000.0);
    assert!(operations(Way::Owned) < 1_000.0);
    assert_eq!(operations(Way::Gossip), 0.0);
    assert_eq!(of(&advice, Way::Central).added_latency_us, 1_000.0);
    assert_eq!(of(&advice, Way::Leased).added_latency_us, 0.0);
    // 19 of 20 go to another node.
    assert_eq!(of(&advice, Way::Owned).added_latency_us, 0.95 * 1_000.0);
}

#[test]
fn what_may_pass_besides_is_itemised_by_mechanism() {
    let advice = advise(&question(Purpose::Abuse));
    for way in [Way::Central, Way::Leased, Way::Owned] {
        assert_eq!((of(&advice, way).adds, of(&advice, way).worst), (Some(0), Some(2 * 142_858)), "{way:?}");
    }
    assert_eq!(of(&advice, Way::Approximate).adds, Some(1_428));
    // A tenth of a second until it is told, and a millisecond on its way.
    assert_eq!(of(&advice, Way::Gossip).adds, Some(10_100));
    assert_eq!(of(&advice, Way::Gossip).worst, Some(2 * 142_858 + 10_100));
    let log =
        Definition { algorithm: Algorithm::SlidingLog, on_failure: Policy::Closed, ..plain(1_000, 60_000) };
    let advice = advise(&Question { definition: log, rate: 10, ..question(Purpose::Abuse) });
    assert_eq!(of(&advice, Way::Leased).worst, Some(1_000));
    assert!(advice.policy.starts_with("closed"), "{}", advice.policy);
    assert!(of(&advice, Way::Leased).outage.contains("spent first"));
}

#[test]
fn what_was_measured_is_said_where_as_much_is_wanted_as_there_is_and_else_what_is_reckoned() {
    let measured = Measured { store_operations: 77.0, added_latency_us: 5.0 };
    let said = |rate: u64| {
        let question = Question { rate, ..question(Purpose::Abuse) };
        let advice = crate::limit::advise(&question, |_| Some(measured));
        let leased = of(&advice, Way::Leased).clone();
        (leased.store_operations, leased.added_latency_us, leased.is_most, leased.is_short)
    };
    assert_eq!(said(150_000), (77.0, 5.0, false, true));
    // Four fifths of the limit: there is enough, but holders already meet.
    assert_eq!(said(114_000), (77.0, 5.0, false, false));
    assert_ne!(said(100_000).0, 77.0);
    let unmeasured = advise(&Question { rate: 150_000, ..question(Purpose::Abuse) });
    let leased = of(&unmeasured, Way::Leased);
    assert_eq!((leased.store_operations, leased.is_most), (300_000.0, true));
}
