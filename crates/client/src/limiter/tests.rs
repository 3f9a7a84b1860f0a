//! Many threads at one limiter's purses: what they spend is what was lent, whoever comes and goes meanwhile.

use super::key::{Plain, Sought};
use super::purses::{Held, Next, Purses};
use baton_api::limit::LeaseResponse;
use baton_core::limit::pocket::{Pocket, Taken};
use baton_core::limit::purse::{Message, Purse, Terms};
use baton_core::limit::till::Till;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const THREADS: usize = 4;
const TTL_MS: u64 = 10_000;

/// The server's side of one key's lease: what it had when its holder last spoke.
#[derive(Default)]
struct Row {
    lent: u64,
    last: Option<Message>,
}

impl Row {
    /// Lends what is wanted, and looks whether the numbers fit together.
    fn hear(&mut self, message: &Message) -> LeaseResponse {
        assert!(message.spent + message.kept <= self.lent, "{message:?} of {} lent", self.lent);
        if let Some(last) = self.last {
            assert!(message.spent >= last.spent, "{message:?} after {last:?}");
        }
        self.last = Some(*message);
        // What is not kept is back, what is wanted comes on top.
        self.lent = message.spent + message.kept + message.want;
        LeaseResponse {
            lease_id: "x".into(),
            granted: message.kept + message.want,
            ttl_millis: TTL_MS,
            size: Some(1_000),
            slack: None,
            limit: 1_000_000,
            remaining: 0,
            reset_millis: 1,
            retry_after_millis: None,
            bound: None,
            version: 1,
        }
    }
}

/// Spends one, as a check would; says what has to be said at once.
fn spend(purses: &Purses, key: Plain<'_>, sought: &Sought, row: &Mutex<Row>, now_ms: u64) -> bool {
    if purses.take(key, 1, now_ms) {
        return true;
    }
    let (is_spent, message) = match purses.next(key, sought, 1, now_ms, false) {
        Next::Spent { ask } => (true, ask),
        Next::Renew(message) => (false, Some(message)),
        Next::Refused { .. } | Next::Ask { .. } | Next::Wait(_) => (false, None),
    };
    if let Some(message) = message {
        let lent = row.lock().unwrap().hear(&message);
        purses.heard(sought, &message, &lent, now_ms);
    }
    is_spent
}

#[test]
fn many_threads_spend_exactly_what_was_lent() {
    let purses = Purses::default();
    let key = Plain::Text("acme");
    let (sought, row) = (purses.seek(key), Mutex::new(Row::default()));
    let (spent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    spent.fetch_add(u64::from(spend(&purses, key, &sought, &row, 1_000)), Ordering::Relaxed);
                }
            });
        }
        // Beside them everything is given back and lent again, over and over.
        while spent.load(Ordering::Relaxed) < 200_000 {
            for (text, sought, message) in purses.leaving(true, 1_000) {
                assert_eq!(text, "acme");
                let lent = row.lock().unwrap().hear(&message);
                purses.heard(&sought, &message, &lent, 1_000);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for (_, sought, message) in purses.leaving(true, 1_000) {
        let lent = row.lock().unwrap().hear(&message);
        purses.heard(&sought, &message, &lent, 1_000);
    }
    let last = row.lock().unwrap().last.expect("there were messages");
    let spent = spent.load(Ordering::Relaxed);
    assert_eq!(last.spent, spent, "what was said to be spent is what was");
    assert!(!purses.take(key, 1, 1_000), "nothing is left");
}

#[test]
fn no_key_spends_what_another_was_lent_while_keys_come_and_go() {
    const KEYS: u64 = 40;
    let purses = Purses::default();
    let soughts: Vec<_> = (0..KEYS).map(|key| purses.seek(Plain::Number(key))).collect();
    let rows: Vec<_> = (0..KEYS).map(|_| (Mutex::new((0, Row::default())), AtomicU64::new(0))).collect();
    let (now_ms, is_over) = (AtomicU64::new(1_000), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (purses, soughts, rows, now_ms, is_over) = (&purses, &soughts, &rows, &now_ms, &is_over);
            scope.spawn(move || {
                let mut next = thread;
                while !is_over.load(Ordering::Relaxed) {
                    next = (next * 7 + 3) % KEYS;
                    let (sought, (row, spent)) = (&soughts[next as usize], &rows[next as usize]);
                    let now_ms = now_ms.load(Ordering::Relaxed);
                    let message = match purses.take(Plain::Number(next), 1, now_ms) {
                        true => {
                            spent.fetch_add(1, Ordering::SeqCst);
                            None
                        }
                        false => match purses.next(Plain::Number(next), sought, 1, now_ms, false) {
                            Next::Spent { ask } => {
                                spent.fetch_add(1, Ordering::SeqCst);
                                ask
                            }
                            Next::Renew(message) => Some(message),
                            Next::Refused { .. } | Next::Ask { .. } | Next::Wait(_) => None,
                        },
                    };
                    if let Some(message) = message {
                        let mut row = row.lock().unwrap();
                        // A lease that ended is burned, and the key's next one begins at nothing.
                        if message.sequence == 1 {
                            row.0 += row.1.lent;
                            row.1 = Row::default();
                        }
                        let lent = row.1.hear(&message);
                        purses.heard(sought, &message, &lent, now_ms);
                    }
                }
            });
        }
        // Time flies: leases end, and keys are forgotten whose turn to be used doesn't come before.
        for _ in 0..400 {
            let later_ms = now_ms.fetch_add(TTL_MS / 3, Ordering::Relaxed) + TTL_MS / 3;
            purses.leaving(false, later_ms + 3 * TTL_MS);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for (key, (row, spent)) in rows.iter().enumerate() {
        let row = row.lock().unwrap();
        let (lent, spent) = (row.0 + row.1.lent, spent.load(Ordering::SeqCst));
        assert!(spent <= lent, "key {key} spent {spent} of {lent}");
    }
}

#[test]
fn what_a_message_says_adds_up_while_others_spend() {
    let (pocket, mut purse, terms) = (Pocket::default(), Purse::default(), Terms::lease(TTL_MS, Some(9)));
    let (is_over, spent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut lent, mut last) = (0, 0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS - 1 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let is_spent = pocket.take(1, 1, || true) == Taken::Yes;
                    spent.fetch_add(u64::from(is_spent), Ordering::Relaxed);
                }
            });
        }
        let (mut wrong, mut balance) = (None, 0);
        for _ in 0..300_000 {
            let till = Till::of(balance + pocket.empty() as i64);
            let message = purse.ask(&till, 0, 1, &terms);
            if message.spent + message.kept != lent {
                wrong = Some((message, lent));
                break;
            }
            (lent, last) = (lent + 100, message.spent);
            purse.heard(&till, message.sequence, message.kept + 100, &terms);
            let (amount, alarm_ms) = till.pocket();
            balance = till.balance();
            pocket.fill(amount, alarm_ms);
        }
        // Whatever was found, the others end.
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None, "a message, and all that was lent");
    });
    assert!(last <= spent.into_inner(), "nobody is told of more than was spent");
}

#[test]
fn a_key_takes_little_behind_its_lock() {
    assert!(size_of::<Mutex<Held>>() <= 104, "{} bytes", size_of::<Mutex<Held>>());
}
