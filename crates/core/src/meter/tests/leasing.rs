//! Several holders with leases over one meter, each spending on its own, and everything that goes wrong between them and the
//! store. Whatever they do, what they really spent stays within the algorithm's own bound, with nothing added.

use super::actual::Actual;
use super::world::{COUNTING, One, claim, row, rule};
use crate::meter::{Algorithm, Claim, Edges, Meter, Reclaim, Row, Rule, Take, Verdict};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use proptest::sample::Index;

const HOLDERS: usize = 12;
const WINDOW_MS: u64 = 100;

/// As a holder sees its lease.
#[derive(Clone, Default, Debug)]
struct Holder {
    id: String,
    /// What it may still spend.
    balance: u64,
    /// All it ever spent.
    spent: u64,
    /// Of its latest message, when it made it, for how long it asked, and what it had spent by then.
    sequence: u64,
    made_ms: u64,
    ttl_ms: u64,
    spent_when_made: u64,
    /// It spends before that only: from when it made the message that gave the lease.
    until_ms: u64,
}

/// What became of a lease at the store, as an answer says.
#[derive(Clone, Debug)]
struct Answer {
    id: String,
    sequence: u64,
    amount: u64,
}

struct Leases {
    one: One,
    ttl_ms: u64,
    holders: Vec<Holder>,
    /// How many took the place of one that crashed.
    crashed: usize,
    /// All that was ever sent: any of it may arrive at any time, and again.
    messages: Vec<Claim>,
    /// All that was ever answered.
    answers: Vec<Answer>,
    actual: Actual,
    /// The most generous rule there was.
    widest: Rule,
    /// What expired and was not counted.
    dropped: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    /// It arrives, and its sender hears the answer.
    Heard,
    /// It arrives; the answer is heard late, or never.
    Applied,
    /// It arrives late, or never.
    Lost,
}

#[derive(Clone, Debug)]
enum Step {
    Send {
        holder: usize,
        take: Take,
        back: u64,
        forgets: bool,
        fate: Fate,
    },
    Arrive {
        which: Index,
        is_heard: bool,
    },
    Hear(Index),
    /// The same message once more.
    Retry(usize),
    Spend {
        holder: usize,
        amount: u64,
    },
    /// Everybody spends all it has.
    Rush,
    /// Everybody asks.
    Ask,
    Central(u64),
    Pass(u64),
    Crash(usize),
    Limit(u64),
    /// From now on leases are asked for this long.
    Ttl(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let holder = || 0..HOLDERS;
    let take =
        prop_oneof![(0..60_u64).prop_map(Take::Share), (0..30_u64).prop_map(Take::Try), Just(Take::Nothing),];
    let fate = proptest::sample::select(&[Fate::Heard, Fate::Heard, Fate::Applied, Fate::Lost][..]);
    let pass = prop_oneof![1..30_u64, Just(WINDOW_MS / 2), Just(WINDOW_MS), 1..250_u64];
    prop_oneof![
        10 => (holder(), take, prop_oneof![2 => Just(0), 1 => 1..30_u64], any::<bool>(), fate)
            .prop_map(|(holder, take, back, forgets, fate)| Step::Send { holder, take, back, forgets, fate }),
        4 => (any::<Index>(), any::<bool>()).prop_map(|(which, is_heard)| Step::Arrive { which, is_heard }),
        3 => any::<Index>().prop_map(Step::Hear),
        2 => holder().prop_map(Step::Retry),
        6 => (holder(), 1..30_u64).prop_map(|(holder, amount)| Step::Spend { holder, amount }),
        3 => Just(Step::Rush),
        2 => Just(Step::Ask),
        4 => (1..30_u64).prop_map(Step::Central),
        6 => pass.prop_map(Step::Pass),
        1 => holder().prop_map(Step::Crash),
        1 => (1..120_u64).prop_map(Step::Limit),
        1 => (10..170_u64).prop_map(Step::Ttl),
    ]
}

impl Leases {
    fn new(rule: Rule, ttl_ms: u64) -> Self {
        let named = |index| Holder { id: format!("holder-{index}"), ..Holder::default() };
        Self {
            one: One::new(rule.clone()),
            ttl_ms,
            holders: (0..HOLDERS).map(named).collect(),
            crashed: 0,
            messages: Vec::new(),
            answers: Vec::new(),
            actual: Actual::default(),
            widest: rule,
            dropped: 0,
        }
    }

    fn now_ms(&self) -> u64 {
        self.one.world.now_ms
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { holder, take, back, forgets, fate } => self.send(holder, take, back, forgets, fate),
            Step::Arrive { which, is_heard } if !self.messages.is_empty() => {
                self.arrive(which.index(self.messages.len()), is_heard);
            }
            Step::Hear(which) if !self.answers.is_empty() => self.hear(which.index(self.answers.len())),
            Step::Arrive { .. } | Step::Hear(_) => {}
            Step::Retry(holder) => {
                let id = &self.holders[holder].id;
                let is_latest = |claim: &Claim| claim.row.as_ref().is_some_and(|row| row.id == *id);
                if let Some(which) = self.messages.iter().rposition(is_latest) {
                    self.arrive(which, true);
                }
            }
            Step::Spend { holder, amount } => self.spend(holder, amount),
            Step::Rush => (0..HOLDERS).for_each(|holder| self.spend(holder, u64::MAX)),
            Step::Ask => {
                for holder in 0..HOLDERS {
                    self.send(holder, Take::Share(20), 0, false, Fate::Heard);
                }
            }
            Step::Central(amount) => {
                let claim = claim("one", &self.one.rule, Take::AllOrNone(amount), None);
                let granted = self.charge(&claim).map_or(0, |(granted, _)| granted);
                self.actual.spend(self.now_ms(), granted);
            }
            Step::Pass(millis) => self.one.pass(millis),
            Step::Ttl(millis) => self.ttl_ms = millis,
            Step::Crash(holder) => {
                self.crashed += 1;
                let id = format!("successor-{}", self.crashed);
                self.holders[holder] = Holder { id, ..Holder::default() };
            }
            Step::Limit(limit) => {
                let (version, is_bucket) =
                    (self.one.rule.version + 1, self.one.rule.algorithm == Algorithm::TokenBucket);
                let capacity = if is_bucket { self.one.rule.capacity } else { limit };
                self.one.rule = Rule { version, limit, capacity, ..self.one.rule.clone() };
                self.widest.limit = self.widest.limit.max(limit);
                self.widest.capacity = self.widest.capacity.max(capacity);
            }
        }
    }

    /// A message is made, and what it gives back is gone from then on, whatever becomes of the message.
    fn send(&mut self, holder: usize, take: Take, back: u64, forgets: bool, fate: Fate) {
        let now_ms = self.now_ms();
        let sender = &mut self.holders[holder];
        if forgets && now_ms >= sender.until_ms {
            sender.balance = 0;
        }
        sender.balance = sender.balance.saturating_sub(back);
        sender.sequence += 1;
        (sender.made_ms, sender.ttl_ms, sender.spent_when_made) = (now_ms, self.ttl_ms, sender.spent);
        // It may arrive and its answer get lost: then the store knows of the shorter life only.
        sender.until_ms = sender.until_ms.min(now_ms + self.ttl_ms);
        let mut said = row(&sender.id, sender.sequence, sender.spent, sender.balance);
        said.ttl_ms = self.ttl_ms;
        self.messages.push(claim("one", &self.one.rule, take, Some(said)));
        if fate != Fate::Lost {
            self.arrive(self.messages.len() - 1, fate == Fate::Heard);
        }
    }

    fn arrive(&mut self, which: usize, is_heard: bool) {
        let claim = self.messages[which].clone();
        let said = claim.row.as_ref().expect("all messages are about a row");
        let Some((_, meter)) = self.charge(&claim) else { return };
        let amount = meter.row(&said.id).map_or(0, |row| row.amount);
        self.answers.push(Answer { id: said.id.clone(), sequence: said.sequence, amount });
        if is_heard {
            self.hear(self.answers.len() - 1);
        }
    }

    /// Only an answer to the latest message says what there is to spend.
    fn hear(&mut self, which: usize) {
        let answer = &self.answers[which];
        let is_meant = |holder: &&mut Holder| holder.id == answer.id && holder.sequence == answer.sequence;
        let Some(holder) = self.holders.iter_mut().find(is_meant) else { return };
        holder.balance = answer.amount.saturating_sub(holder.spent - holder.spent_when_made);
        holder.until_ms = holder.made_ms + holder.ttl_ms;
    }

    fn spend(&mut self, holder: usize, amount: u64) {
        let now_ms = self.now_ms();
        let holder = &mut self.holders[holder];
        if now_ms < holder.until_ms {
            let amount = amount.min(holder.balance);
            holder.balance -= amount;
            holder.spent += amount;
            self.actual.spend(now_ms, amount);
        }
    }

    /// What the store does; nothing if the claim is outdated.
    fn charge(&mut self, claim: &Claim) -> Option<(u64, Meter)> {
        let before = self.one.world.meter("one");
        let charged = self.one.world.charge(core::slice::from_ref(claim));
        let done = charged.meters.into_iter().next()?;
        let is_written = before != self.one.world.meter("one");
        let rows = before.map_or_else(Vec::new, |meter| meter.rows);
        if claim.rule.reclaim == Reclaim::Drop && is_written {
            let expired = rows.iter().filter(|row| row.expires_ms <= self.one.world.now_ms);
            self.dropped += expired.map(|row| row.amount).sum::<u64>();
        }
        let said = claim.row.as_ref();
        let lives = |row: &&Row| row.expires_ms > self.one.world.now_ms;
        let known = rows.iter().filter(lives).find(|row| said.is_some_and(|said| said.id == row.id));
        let is_new = known.is_none_or(|row| said.is_some_and(|said| said.sequence > row.sequence));
        if charged.verdict == Verdict::Charged && is_new && done.granted > 0 {
            let total = done.meter.used() + done.meter.outstanding();
            assert!(total <= claim.rule.capacity, "{total} of {}: {claim:?}", claim.rule.capacity);
        }
        Some((done.granted, done.meter))
    }

    fn assert_within(&self) {
        self.actual.assert_within(&self.widest, self.dropped);
    }
}

fn leased_rule() -> impl Strategy<Value = Rule> {
    let algorithm = proptest::sample::select(&COUNTING[..]);
    let limit = proptest::sample::select(&[5_u64, 20, 60, 200][..]);
    (algorithm, limit, 1..100_u64, 0..WINDOW_MS).prop_map(|(algorithm, limit, burst, offset_ms)| {
        let capacity = if algorithm == Algorithm::TokenBucket { burst } else { limit };
        Rule { capacity, edges: Edges::Every { offset_ms }, ..rule(algorithm, limit, WINDOW_MS) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(700))]

    #[test]
    fn what_is_really_spent_stays_within_the_algorithm_s_own_bound(
        rule in leased_rule(),
        ttl_ms in proptest::sample::select(&[10_u64, 40, WINDOW_MS, 170][..]),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut leases = Leases::new(rule, ttl_ms);
        for step in steps {
            leases.step(step);
        }
        leases.assert_within();
    }

    #[test]
    fn where_expired_leases_are_dropped_at_most_these_are_added(
        rule in leased_rule(),
        ttl_ms in proptest::sample::select(&[10_u64, 40, WINDOW_MS][..]),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut leases = Leases::new(Rule { reclaim: Reclaim::Drop, ..rule }, ttl_ms);
        for step in steps {
            leases.step(step);
        }
        leases.assert_within();
    }
}

fn heard(leases: &mut Leases, holder: usize, take: Take) -> u64 {
    leases.send(holder, take, 0, false, Fate::Heard);
    leases.holders[holder].balance
}

/// Idle for a window, then busy: all leases are older than the window in which they are spent.
#[test]
fn twelve_holders_that_were_idle_over_a_window_s_change_spend_no_more_than_one_window_s_limit() {
    for algorithm in COUNTING {
        let mut leases = Leases::new(rule(algorithm, 100, WINDOW_MS), 170);
        leases.one.pass(90);
        let leased: u64 = (0..HOLDERS).map(|holder| heard(&mut leases, holder, Take::Share(50))).sum();
        assert!(leased > 20, "{algorithm:?}: {leased}");
        leases.one.pass(50);
        assert_eq!(leases.one.look().outstanding(), leased, "what is outstanding does not age");
        let central = leases.one.granted(Take::Try(100 - leased));
        assert_eq!(central, 100 - leased, "{algorithm:?}: the rest is there for others");
        leases.actual.spend(leases.now_ms(), central);
        assert_eq!(leases.one.granted(Take::Try(1)), 0, "{algorithm:?}: and nothing more");
        leases.step(Step::Rush);
        leases.assert_within();
    }
}

/// A copy of the first message shrinks nothing: its holder has more by now.
#[test]
fn a_late_copy_of_an_earlier_message_changes_nothing() {
    let mut leases = Leases::new(rule(Algorithm::FixedWindow, 100, WINDOW_MS), 50);
    assert_eq!(heard(&mut leases, 0, Take::Try(10)), 10);
    assert_eq!(heard(&mut leases, 0, Take::Try(20)), 30);
    let before = leases.one.look();
    let claim = leases.messages[0].clone();
    assert_eq!(leases.charge(&claim), Some((0, before.clone())));
    // The latest again: the same answer, and nothing is taken for it.
    let claim = leases.messages[1].clone();
    assert_eq!(leases.charge(&claim), Some((30, before.clone())));
    assert_eq!(leases.one.look(), before);
}

#[test]
fn a_lost_answer_s_lease_stays_outstanding_until_the_next_message_tells() {
    let mut leases = Leases::new(rule(Algorithm::FixedWindow, 100, WINDOW_MS), 50);
    heard(&mut leases, 0, Take::Try(10));
    leases.spend(0, 4);
    leases.send(0, Take::Try(20), 0, false, Fate::Applied);
    leases.spend(0, 3);
    let meter = leases.one.look();
    assert_eq!((meter.used(), meter.outstanding()), (4, 26));
    leases.send(0, Take::Nothing, 1, false, Fate::Heard);
    let meter = leases.one.look();
    assert_eq!((meter.used(), meter.outstanding()), (7, 2), "what it never heard of went back");
    assert_eq!(leases.holders[0].balance, 2);
}

/// What holders have to keep to: the store may have heard of the shorter life, burned the lease, and given it to others.
#[test]
fn a_holder_that_asked_for_a_shorter_life_spends_no_longer_also_if_it_hears_nothing() {
    let mut leases = Leases::new(rule(Algorithm::FixedWindow, 10, WINDOW_MS), 170);
    leases.one.pass(50);
    assert_eq!(heard(&mut leases, 0, Take::Try(10)), 10);
    leases.step(Step::Ttl(10));
    leases.send(0, Take::Nothing, 0, false, Fate::Applied);
    leases.one.pass(50);
    leases.step(Step::Central(10));
    assert_eq!(leases.one.used(), 10, "it was burned in the window before");
    leases.step(Step::Rush);
    leases.assert_within();
}
