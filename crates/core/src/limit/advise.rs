//! Which mechanism to choose: what each of them costs and risks for a given traffic, and one recommendation with its reason.
//!
//! What nodes say to the store to live is the same for all, and not among the figures. Figures follow from the same defaults that leases and slack have; a test holds them against a simulation. They are for traffic that
//! is spread evenly over nodes and keys: uneven traffic costs about as much, since what a key needs follows its use. Where about as much is
//! wanted as there is, holders get in each other's way, and who gets what is chance: that is measured by whoever can, not reckoned.

use super::bound::{Bound, bound};
use super::definition::{Definition, Mechanism, Purpose};
use super::demand::{Demand, Pace, pace};
use super::gossip::{self, Spread};
use super::holder::terms;
use super::purse::Terms;
use super::rule::Defined;
use super::slack::Identity;
use crate::record::Revision;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Beyond this part of the limit, in hundredths, what holders ask for is measured rather than reckoned.
const RECKONED_PERCENT: u128 = 75;

/// What is asked.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// The limit of each key. Its mechanism doesn't matter.
    pub definition: Definition,
    /// What it is for.
    pub purpose: Purpose,
    /// Checks a second, of all keys at all nodes.
    pub rate: u64,
    /// At least 1.
    pub nodes: u64,
    /// At least 1.
    pub keys: u64,
    /// There and back.
    pub store_latency_us: u64,
    /// Whether a database that is asked anyway counts already.
    pub is_counted_elsewhere: bool,
    /// Whether every single operation must be counted exactly when it happens.
    pub is_exact: bool,
}

/// Who decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The store, every check.
    Central,
    /// A node, out of what it has debited before.
    Leased,
    /// The node that owns the key.
    Owned,
    /// A node, out of slack.
    Approximate,
    /// A node, by counts that spread.
    Gossip,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Central, Self::Leased, Self::Owned, Self::Approximate, Self::Gossip];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Leased => "leased",
            Self::Owned => "owned",
            Self::Approximate => "approximate",
            Self::Gossip => "gossip",
        }
    }

    /// Whether a definition can name it yet.
    pub fn is_available(self) -> bool {
        Mechanism::ALL.iter().any(|mechanism| mechanism.as_str() == self.as_str())
    }
}

/// What one of them costs and risks.
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    /// Which.
    pub way: Way,
    /// Charges at the store, a second.
    pub store_operations: f64,
    /// Whether that is the most it can be, and not what it is.
    pub is_most: bool,
    /// Whether as much is wanted as there is, so that holders fight for what is left.
    pub is_short: bool,
    /// What a check waits, on average.
    pub added_latency_us: f64,
    /// What it adds to the most that may pass, of one key in an interval as long as the window; nothing if there is no number.
    pub adds: Option<u64>,
    /// The most that may pass, with the algorithm's own.
    pub worst: Option<u64>,
    /// What comes first while the store can't be asked, and what then.
    pub outage: &'static str,
}

/// What is recommended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing of this kind.
    NotNeeded,
    /// This one.
    Use(Way),
}

/// The answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Advice {
    /// Of each mechanism.
    pub figures: Vec<Figures>,
    /// What is recommended.
    pub answer: Answer,
    /// Why.
    pub because: String,
    /// What the failure policy does, where an outage is left to it.
    pub policy: String,
}

/// What a mechanism was seen to do with what is asked about.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// Charges at the store, a second.
    pub store_operations: f64,
    /// What a check waits, on average.
    pub added_latency_us: f64,
}

/// What to choose, and why. `measured` says what a mechanism does where about as much is wanted as there is; nothing if that would
/// take too long to find out.
pub fn advise(question: &Question, measured: impl Fn(Mechanism) -> Option<Measured>) -> Advice {
    let figures: Vec<_> = Way::ALL.into_iter().map(|way| figures(question, way, &measured)).collect();
    let (answer, because) = recommended(question, &figures);
    let bounds = bound(&question.definition, "", question.nodes, "");
    let policy = bounds.items.into_iter().find(|item| item.source == "outage");
    Advice { figures, answer, because, policy: policy.map(|item| item.because).unwrap_or_default() }
}

fn figures(question: &Question, way: Way, measured: impl Fn(Mechanism) -> Option<Measured>) -> Figures {
    let of = |mechanism| Definition { mechanism, ..question.definition.clone() };
    let exact = bound(&of(Mechanism::Central), "", question.nodes, "").worst();
    let (rate, latency_us) = (question.rate as f64, question.store_latency_us as f64);
    let asked = |mechanism, holders| {
        let pace = pace_of(question, of(mechanism), holders);
        let is_reckoned = pace.is_none() || is_reckoned(question);
        let measured = if is_reckoned { None } else { measured(mechanism) };
        Asked::of(question, pace, measured, holders)
    };
    let plain = Figures {
        way,
        store_operations: rate,
        is_most: false,
        is_short: false,
        added_latency_us: latency_us,
        adds: Some(0),
        worst: exact,
        outage: "the policy decides",
    };
    match way {
        Way::Central => plain,
        Way::Leased => {
            let Asked { store_operations, is_most, is_short, waited_us, .. } =
                asked(Mechanism::Leased, question.nodes);
            let outage = "what is leased is spent first, then the policy decides";
            Figures { store_operations, is_most, is_short, added_latency_us: waited_us, outage, ..plain }
        }
        Way::Approximate => {
            let worst = bound(&of(Mechanism::Approximate), "", question.nodes, "").worst();
            let Asked { store_operations, is_most, is_short, waited_us, .. } =
                asked(Mechanism::Approximate, question.nodes);
            Figures {
                store_operations,
                is_most,
                is_short,
                added_latency_us: waited_us,
                adds: worst.zip(exact).map(|(worst, exact)| worst.saturating_sub(exact)),
                worst,
                outage: "slack is spent first, then the policy decides",
                ..plain
            }
        }
        Way::Owned => {
            // The owner debits ahead of what it admits, by the chunks of a lease, and is alone in that.
            let Asked { store_operations, is_most, is_short, waited_us, is_reckoned } =
                asked(Mechanism::Owned, 1);
            // Another node is taken to be as far away as the store. What is forwarded goes at once, or behind what is under way.
            let away = (question.nodes - 1) as f64 / question.nodes.max(1) as f64;
            Figures {
                store_operations: store_operations.min(rate),
                is_most,
                is_short,
                // What was measured has it already; and where there is nothing to hold, nothing is forwarded.
                added_latency_us: if is_reckoned { away * latency_us + waited_us } else { waited_us },
                outage: "the owner spends what it has debited, then the policy decides",
                ..plain
            }
        }
        Way::Gossip => {
            let worst = bound_of_gossip(question);
            Figures {
                store_operations: 0.0,
                added_latency_us: 0.0,
                adds: worst.items.iter().find(|item| item.source == "mechanism").and_then(|item| item.amount),
                worst: worst.worst(),
                outage: "no store is asked; nodes that can't hear each other each admit the whole limit",
                ..plain
            }
        }
    }
}

/// What may pass where counts spread, and another node is as far away as the store. What can't spread is counted by the algorithm that takes its place.
fn bound_of_gossip(question: &Question) -> Bound {
    let said = question.definition.algorithm;
    let algorithm = if gossip::spreads(said) { said } else { gossip::USUAL };
    let definition = Definition { algorithm, ..question.definition.clone() };
    let spread = Spread {
        lag_ms: question.store_latency_us.div_ceil(1_000),
        rate: Some(question.rate / question.keys.max(1)),
        ..Spread::unmeasured(&definition, question.nodes)
    };
    gossip::bound(&definition, "", &spread)
}

/// What holders ask of the store, all of them together.
struct Asked {
    store_operations: f64,
    is_most: bool,
    is_short: bool,
    /// What a check waits for it, on average.
    waited_us: f64,
    /// Whether there is something to hold, and nobody has measured.
    is_reckoned: bool,
}

impl Asked {
    fn of(question: &Question, pace: Option<Pace>, measured: Option<Measured>, holders: u64) -> Self {
        let (rate, latency_us) = (question.rate as f64, question.store_latency_us as f64);
        let is_short = pace == Some(Pace::Short);
        let (store_operations, waited_us) = match (measured, pace) {
            (Some(measured), _) => (measured.store_operations, measured.added_latency_us),
            (None, Some(Pace::Steady { messages, waits })) => {
                (messages * (holders * question.keys) as f64, latency_us * waits)
            }
            // Whoever gets nothing when asking for more asks the store itself: two charges for one check.
            (None, Some(Pace::Short)) => (2.0 * rate, latency_us),
            (None, None) => (rate, latency_us),
        };
        let is_reckoned = measured.is_none() && pace.is_some();
        Self { store_operations, is_most: is_short && measured.is_none(), is_short, waited_us, is_reckoned }
    }
}

/// Whether so little is wanted that what holders ask for can be reckoned.
fn is_reckoned(question: &Question) -> bool {
    let Definition { limit, window_ms, .. } = question.definition;
    let wanted = u128::from(question.rate) * u128::from(window_ms) * 100;
    wanted <= u128::from(limit) * u128::from(question.keys.max(1)) * 1_000 * RECKONED_PERCENT
}

/// How often each holder asks; nothing if there is nothing to hold.
fn pace_of(question: &Question, definition: Definition, holders: u64) -> Option<Pace> {
    let terms = terms(&definition, "", Identity::default())?;
    let rule = Defined { definition, version: Revision(0) }.rule("", None);
    Some(pace(&demand(question, holders), &rule, &terms))
}

fn demand(question: &Question, holders: u64) -> Demand {
    let all = holders.max(1) as f64 * question.keys.max(1) as f64 * 1_000.0;
    Demand {
        per_ms: question.rate as f64 / all,
        holders,
        latency_ms: question.store_latency_us as f64 / 1_000.0,
    }
}

fn recommended(question: &Question, figures: &[Figures]) -> (Answer, String) {
    let of = |way: Way| figures.iter().find(|figures| figures.way == way);
    if question.is_counted_elsewhere {
        let why = "a database that is asked anyway can count in the same transaction: one more system only adds a way to \
                   disagree with it";
        return (Answer::NotNeeded, why.into());
    }
    let must_last = matches!(question.purpose, Purpose::Billing | Purpose::Security);
    if question.nodes <= 1 && !must_last {
        let why =
            "one node has nobody to agree with: count in its process, and lose the count when it restarts";
        return (Answer::NotNeeded, why.into());
    }
    if question.is_exact {
        let why = "exactness on every operation is one decision at one place each time: the store's, with a tight time-out and \
                   onFailure `closed`";
        return (Answer::Use(Way::Central), why.into());
    }
    let owned = Way::Owned.is_available();
    match question.purpose {
        Purpose::Security => {
            let why = "one-time codes and passwords are few and each counts: the store decides, and nothing is kept anywhere else";
            (Answer::Use(Way::Central), why.into())
        }
        Purpose::Billing if owned => (
            Answer::Use(Way::Owned),
            "what is paid for is counted by one owner, ahead of what it admits".into(),
        ),
        Purpose::Billing => {
            let why = "what is paid for is counted exactly and survives every node; `owned` would be cheaper, and isn't there yet";
            (Answer::Use(Way::Central), why.into())
        }
        Purpose::Authenticated if owned => {
            let why =
                "callers that are known come all the time: their owner decides exactly, without the store";
            (Answer::Use(Way::Owned), why.into())
        }
        Purpose::Authenticated | Purpose::Abuse => match of(Way::Leased) {
            Some(leased) if terms_of(question).is_none() => {
                let why = format!(
                    "a twentieth of {} is too little to be leased, so the store decides: {:.0} operations/s",
                    question.definition.limit, leased.store_operations
                );
                (Answer::Use(Way::Central), why)
            }
            Some(leased) if !leased.is_short && leased.store_operations >= question.rate as f64 / 2.0 => {
                let why = "a key comes so seldom to a node that a lease is hardly used before it ends: asking each time is as cheap, \
                           and exact";
                (Answer::Use(Way::Central), why.into())
            }
            Some(leased) if leased.is_short => {
                let why = "leases admit no more than the limit and decide most checks in process; but as much is asked for as the \
                           limit has, so what is left is fought for at the store: give it a higher limit, or shed load before it";
                (Answer::Use(Way::Leased), why.into())
            }
            leased => {
                let share = leased
                    .map_or(0.0, |leased| 100.0 * leased.store_operations / question.rate.max(1) as f64);
                let why = format!(
                    "decided in process without admitting more than the limit; the store sees {share:.2} % of the checks"
                );
                (Answer::Use(Way::Leased), why)
            }
        },
    }
}

fn terms_of(question: &Question) -> Option<Terms> {
    let definition = Definition { mechanism: Mechanism::Leased, ..question.definition.clone() };
    terms(&definition, "", Identity::default())
}
