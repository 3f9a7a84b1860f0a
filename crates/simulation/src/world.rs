//! What happens, in its order: checks come, messages travel, nodes look after what they hold, things go wrong.

use crate::chance::{Dice, Skewed};
use crate::event::{Asks, Call, Event, Queue, Said};
use crate::mishaps::{self, Mishap};
use crate::node::{Held, Node};
use crate::outcome::{Outcome, bound_of};
use crate::plan::{Mechanism, Plan, Unfit};
use crate::store::Store;
use crate::tally::Tally;
use crate::traffic::Traffic;
use baton_core::limit::holder::{self, Holder, Step};
use baton_core::limit::purse::{Message, Terms};
use baton_core::limit::share::Member;
use baton_core::limit::slack::{self, Slack};
use baton_core::limit::{Definition, Policy};
use std::collections::BTreeSet;

/// How long a node waits for the store.
const DEADLINE_US: u64 = 2_000_000;
/// How often a node looks after what is idle or owed.
const LOOK_US: u64 = holder::LOOK_MS * 1_000;
/// Checks that wait for one purse. Beyond that they ask the store.
const WAITING_MAX: usize = 100_000;
/// How often somebody is told how far it is.
const TOLD_US: u64 = 100_000;

/// What one counter would admit that every check reaches at once, by second.
pub fn allowed(plan: &Plan) -> Result<Vec<u64>, Unfit> {
    plan.check()?;
    let mut store = Store::new(plan, Mechanism::Central);
    let mut seconds = vec![0; plan.duration_ms.div_ceil(1_000) as usize];
    for arrival in Traffic::new(plan) {
        seconds[(arrival.at_us / 1_000_000) as usize] += u64::from(store.admits(arrival.key, arrival.at_us));
    }
    Ok(seconds)
}

/// Runs a plan with a mechanism. `told` hears every so often how many milliseconds have passed.
pub fn run(
    plan: &Plan,
    mechanism: Mechanism,
    allowed: &[u64],
    mut told: impl FnMut(u64),
) -> Result<Outcome, Unfit> {
    plan.check()?;
    let mut world = World::new(plan, mechanism);
    let mut traffic = Traffic::new(plan).peekable();
    let mut next_told_us = 0;
    loop {
        let arrives_us = traffic.peek().map(|arrival| arrival.at_us);
        let happens_us = world.queue.next_us();
        match (arrives_us, happens_us) {
            (Some(at_us), due_us) if due_us.is_none_or(|due_us| at_us < due_us) => {
                let arrival = traffic.next().expect("it was there when peeked at");
                world.now_us = at_us;
                world.arrives(arrival.key, arrival.node);
            }
            // What is under way at the end is decided; nothing new begins.
            (arrives_us, Some(_)) => {
                let next = world.queue.take().expect("it was there when looked at");
                world.now_us = next.at_us;
                world.happens(next.event, arrives_us.is_some());
            }
            (_, None) => break,
        }
        if world.now_us >= next_told_us {
            told(world.now_us / 1_000);
            next_told_us = world.now_us + TOLD_US;
        }
    }
    Ok(world.outcome(allowed))
}

struct World<'a> {
    plan: &'a Plan,
    mechanism: Mechanism,
    /// As it is with this mechanism.
    definition: Definition,
    terms: Option<Terms>,
    slack: Option<Slack>,
    now_us: u64,
    store: Store,
    /// The rules by which nodes count for themselves.
    plain: Store,
    nodes: Vec<Node>,
    weights: Skewed,
    queue: Queue,
    latency: Dice,
    /// Debts that the store has heard of.
    settled: BTreeSet<u64>,
    debts: u64,
    tally: Tally,
    local: u64,
    waited_us: u64,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, mechanism: Mechanism) -> Self {
        let mut definition = plan.definition.clone();
        definition.mechanism = match mechanism {
            Mechanism::Leased => baton_core::limit::Mechanism::Leased,
            Mechanism::Central | Mechanism::Approximate => baton_core::limit::Mechanism::Central,
        };
        definition.expected_nodes = definition.expected_nodes.max(Some(plan.places()));
        let (terms, slack) = match mechanism {
            Mechanism::Approximate => slack::slack(&definition, "", plan.sync_ms, plan.low).unzip(),
            Mechanism::Central | Mechanism::Leased => (holder::terms(&definition, ""), None),
        };
        let mut dice = Dice::new(plan.seed, 2);
        let nodes = (0..plan.places()).map(|place| Node {
            is_live: place < plan.nodes,
            ahead_ms: 1 + dice.below(1_000_000_000),
            ..Node::default()
        });
        let mut world = Self {
            plan,
            mechanism,
            now_us: 0,
            store: Store::new(plan, mechanism),
            plain: Store::new(plan, Mechanism::Central),
            nodes: nodes.collect(),
            weights: Skewed::new(plan.places(), plan.node_skew),
            queue: Queue::default(),
            latency: Dice::new(plan.seed, 4),
            settled: BTreeSet::new(),
            debts: 0,
            tally: Tally::new(plan.keys, definition.window_ms, plan.duration_ms),
            local: 0,
            waited_us: 0,
            definition,
            terms,
            slack,
        };
        for place in 0..world.nodes.len() {
            world.queue.put(dice.below(LOOK_US), Event::Look { place });
            if let Some(slack) = world.slack {
                world.queue.put(dice.below(slack.sync_ms * 1_000), Event::Sync { place });
            }
        }
        for (at_us, place, mishap) in mishaps::draw(plan) {
            world.queue.put(at_us, Event::Mishap { place, mishap });
        }
        world
    }

    /// How long one way takes: at least half of what it does on average.
    fn way_us(&mut self) -> u64 {
        let mean = self.plan.latency_us as f64 / 2.0;
        (mean / 2.0 + self.latency.until(mean / 2.0)) as u64 + 1
    }

    /// A check comes: to a node by its weight, and if that one is away, to another by theirs.
    fn arrives(&mut self, key: usize, node: f64) {
        let now_us = self.now_us;
        self.tally.second(now_us).offered += 1;
        let (mut place, mut part) = (self.weights.at(node), node);
        for _ in 0..64 {
            if self.nodes[place].is_live {
                break;
            }
            part = (part * 9_973.0).fract();
            place = self.weights.at(part);
        }
        if !self.nodes[place].is_live {
            // Nearly all are away: the next one that isn't, if any.
            let count = self.nodes.len();
            let live = (0..count).map(|step| (place + step) % count).find(|place| self.nodes[*place].is_live);
            let Some(live) = live else { return };
            place = live;
        }
        self.nodes[place].offered += 1;
        let is_held = self.terms.is_some();
        if is_held && !self.nodes[place].held.contains_key(&key) {
            // A key that comes once needs no purse.
            let node = &mut self.nodes[place];
            node.held_before += 1;
            let row = format!("{place}.{}.{}", node.life, node.held_before);
            node.held.insert(key, Held { holder: Holder::default(), row, waiting: Vec::new() });
            self.ask_store(place, key, now_us);
        } else if is_held {
            self.decide(place, key, now_us, false);
        } else {
            self.ask_store(place, key, now_us);
        }
    }

    /// By what the node holds, or the store.
    fn decide(&mut self, place: usize, key: usize, arrived_us: u64, renewed: bool) {
        let (now_us, Some(terms)) = (self.now_us, self.terms) else {
            return self.ask_store(place, key, arrived_us);
        };
        let node = &mut self.nodes[place];
        let now_ms = node.now_ms(now_us);
        let Some(held) = node.held.get_mut(&key) else { return self.ask_store(place, key, arrived_us) };
        let step = held.holder.check(1, now_ms, &terms, self.slack.as_ref(), renewed);
        match step {
            Step::Wait | Step::Renew(_) if held.waiting.len() < WAITING_MAX => held.waiting.push(arrived_us),
            Step::Wait | Step::Renew(_) | Step::Ask => self.ask_store(place, key, arrived_us),
            Step::Spent { .. } => self.decided_here(place, key, arrived_us, true),
            Step::Refused { .. } => self.decided_here(place, key, arrived_us, false),
        }
        if let Step::Renew(message) | Step::Spent { ask: Some(message), .. } = step {
            self.tell_store(place, key, message);
        }
    }

    fn decided_here(&mut self, place: usize, key: usize, arrived_us: u64, is_admitted: bool) {
        self.local += 1;
        self.waited_us += self.now_us - arrived_us;
        if is_admitted {
            self.admitted(place, key);
        }
    }

    fn admitted(&mut self, place: usize, key: usize) {
        self.nodes[place].admitted += 1;
        self.tally.admit(key, self.now_us);
    }

    fn ask_store(&mut self, place: usize, key: usize, arrived_us: u64) {
        self.send(place, key, Asks::Check { arrived_us });
    }

    fn tell_store(&mut self, place: usize, key: usize, message: Message) {
        let Some(held) = self.nodes[place].held.get(&key) else { return };
        let row = held.row.clone();
        self.send(place, key, Asks::Lease { row, message });
    }

    fn send(&mut self, place: usize, key: usize, asks: Asks) {
        let (now_us, node) = (self.now_us, &self.nodes[place]);
        let call = Call { place, life: node.life, key, sent_us: now_us, asks };
        match (node.is_cut(now_us), node.knows_cut) {
            (false, _) => {
                let at_us = now_us + self.way_us();
                self.queue.put(at_us, Event::AtStore(call));
            }
            // It has heard nothing for a while, and doesn't wait for it every time.
            (true, true) => self.unanswered(call),
            (true, false) => self.queue.put(now_us + DEADLINE_US, Event::Unanswered(call)),
        }
    }

    fn happens(&mut self, event: Event, goes_on: bool) {
        match event {
            Event::AtStore(call) => self.at_store(call),
            Event::Answered(call, said) => self.answered(call, said),
            Event::Unanswered(call) => {
                let node = &mut self.nodes[call.place];
                if node.is_live && node.life == call.life {
                    node.knows_cut = node.is_cut(self.now_us);
                    self.unanswered(call);
                }
            }
            Event::Look { .. } | Event::Sync { .. } if !goes_on => {}
            Event::Look { place } => {
                self.look(place);
                self.queue.put(self.now_us + LOOK_US, Event::Look { place });
            }
            Event::Sync { place } => {
                self.sync(place);
                let every_us = self.plan.sync_ms * 1_000;
                self.queue.put(self.now_us + every_us, Event::Sync { place });
            }
            Event::Mishap { place, mishap } => {
                let node = &mut self.nodes[place];
                match mishap {
                    Mishap::Crash => node.crash(),
                    Mishap::Come => node.come(),
                    Mishap::Cut { until_us } => node.cut_until_us = node.cut_until_us.max(until_us),
                    Mishap::Heal => node.knows_cut &= node.is_cut(self.now_us),
                }
            }
        }
    }

    fn at_store(&mut self, call: Call) {
        let now_us = self.now_us;
        self.tally.second(now_us).store_operations += 1;
        let back_us = self.way_us();
        let said = match &call.asks {
            Asks::Check { arrived_us } => {
                let checked = self.store.check(call.key, now_us, self.terms.is_some());
                self.waited_us += now_us + back_us - arrived_us;
                if checked.is_admitted {
                    self.admitted(call.place, call.key);
                }
                Said::Checked(checked)
            }
            Asks::Lease { row, message } => Said::Leased(self.store.hear(call.key, row, *message, now_us)),
            Asks::Debt { id, amount } => {
                if self.settled.insert(*id) {
                    self.store.owe(call.key, *amount, now_us);
                }
                Said::Settled
            }
        };
        // An answer on its way when the line is cut is lost, although what it says has happened.
        match self.nodes[call.place].is_cut(now_us) {
            true => self.queue.put((call.sent_us + DEADLINE_US).max(now_us), Event::Unanswered(call)),
            false => self.queue.put(now_us + back_us, Event::Answered(call, said)),
        }
    }

    fn answered(&mut self, call: Call, said: Said) {
        let node = &mut self.nodes[call.place];
        if !node.is_live || node.life != call.life {
            return;
        }
        let now_ms = node.now_ms(self.now_us);
        let remains = match &said {
            Said::Checked(checked) => Some(checked.remaining),
            Said::Leased(leased) => Some(leased.remaining),
            Said::Settled => None,
        };
        let divides = matches!(self.definition.on_failure, Policy::Local | Policy::Snapshot);
        if let Some(remaining) = remains.filter(|_| divides) {
            node.own.entry(call.key).or_default().remained = Some(remaining);
        }
        match (said, &call.asks) {
            (Said::Checked(checked), _) => {
                if let Some(held) = node.held.get_mut(&call.key) {
                    held.holder.note_left(checked.left);
                    if !checked.is_admitted {
                        held.holder.note_refusal(1, checked.retry_ms, now_ms);
                    }
                }
            }
            (Said::Leased(leased), Asks::Lease { row, message }) => {
                if let Some(held) = node.held.get_mut(&call.key).filter(|held| held.row == *row)
                    && let Some(terms) = &self.terms
                {
                    held.holder.note_left(leased.left);
                    held.holder.heard(message.sequence, leased.amount, terms);
                    self.wake(call.place, call.key);
                }
            }
            (Said::Settled, Asks::Debt { amount, .. }) => {
                if let Some(own) = node.own.get_mut(&call.key) {
                    own.owed = own.owed.saturating_sub(*amount);
                    own.offered = None;
                }
            }
            (Said::Leased(_) | Said::Settled, _) => {}
        }
    }

    /// Those who waited for a purse come again.
    fn wake(&mut self, place: usize, key: usize) {
        let Some(held) = self.nodes[place].held.get_mut(&key) else { return };
        for arrived_us in std::mem::take(&mut held.waiting) {
            self.decide(place, key, arrived_us, true);
        }
    }

    /// The store can't be reached, or was not heard: what was asked may have happened or not.
    fn unanswered(&mut self, call: Call) {
        let node = &mut self.nodes[call.place];
        let now_ms = node.now_ms(self.now_us);
        match call.asks {
            Asks::Check { arrived_us } => {
                let member = Member { rank: call.place as u64, count: self.plan.places() };
                let rule = self.plain.rule(call.key);
                let is_admitted = node.decide_alone(call.key, &self.definition, rule, member, now_ms);
                self.decided_here(call.place, call.key, arrived_us, is_admitted);
            }
            Asks::Lease { row, message } => {
                if let Some(held) = node.held.get_mut(&call.key).filter(|held| held.row == row)
                    && let Some(terms) = &self.terms
                {
                    held.holder.unheard(message.sequence, now_ms, terms);
                    self.wake(call.place, call.key);
                }
            }
            // It is offered again, under the same id.
            Asks::Debt { .. } => {}
        }
    }

    /// Gives back what is idle, and offers what is owed.
    fn look(&mut self, place: usize) {
        let (now_us, node) = (self.now_us, &mut self.nodes[place]);
        if !node.is_live {
            return;
        }
        let (now_ms, is_cut) = (node.now_ms(now_us), node.is_cut(now_us));
        let (mut messages, mut debts) = (Vec::new(), Vec::new());
        if let Some(terms) = self.terms {
            node.held.retain(|_, held| !held.waiting.is_empty() || !held.holder.is_over(now_ms, &terms));
            let looked = node
                .held
                .iter_mut()
                .filter_map(|(key, held)| Some((*key, held.holder.look(now_ms, &terms)?)));
            messages.extend(looked);
        }
        for (key, own) in node.own.iter_mut().filter(|(_, own)| own.owed > 0 && !is_cut) {
            let debts_before = &mut self.debts;
            let (id, amount) = *own.offered.get_or_insert_with(|| {
                *debts_before += 1;
                (*debts_before, own.owed)
            });
            debts.push((*key, id, amount));
        }
        for (key, message) in messages {
            self.tell_store(place, key, message);
        }
        for (key, id, amount) in debts {
            self.send(place, key, Asks::Debt { id, amount });
        }
    }

    /// Says what was spent of slack.
    fn sync(&mut self, place: usize) {
        let (Some(terms), Some(slack)) = (self.terms, self.slack) else { return };
        let (now_us, node) = (self.now_us, &mut self.nodes[place]);
        let now_ms = node.now_ms(now_us);
        let spoken = node.held.iter_mut();
        let messages: Vec<_> = spoken
            .filter_map(|(key, held)| Some((*key, held.holder.sync(now_ms, &terms, &slack)?)))
            .collect();
        for (key, message) in messages {
            self.tell_store(place, key, message);
        }
    }

    fn outcome(self, allowed: &[u64]) -> Outcome {
        let Self { plan, mechanism, mut tally, .. } = self;
        for (second, allowed) in tally.seconds.iter_mut().zip(allowed) {
            second.allowed = *allowed;
        }
        let sum = |of: fn(&crate::Second) -> u64| tally.seconds.iter().map(of).sum::<u64>();
        let (offered, admitted) = (sum(|second| second.offered), sum(|second| second.admitted));
        let (allowed, operations) = (sum(|second| second.allowed), sum(|second| second.store_operations));
        let part = |of: u64, all: u64| if all == 0 { 0.0 } else { of as f64 / all as f64 };
        let shares = self.nodes.iter().filter(|node| node.offered > 0);
        let worst_node_share =
            shares.map(|node| part(node.admitted, node.offered)).min_by(f64::total_cmp).unwrap_or_default();
        let bound = bound_of(plan, mechanism, &self.definition, self.store.rule(0));
        Outcome {
            mechanism: mechanism.as_str(),
            offered,
            admitted,
            allowed,
            under_admission: part(allowed.saturating_sub(admitted), allowed),
            worst: tally.worst,
            bound,
            store_operations: operations,
            store_operations_per_second: operations as f64 * 1_000.0 / plan.duration_ms as f64,
            local_share: part(self.local, offered),
            added_latency_micros: part(self.waited_us, offered),
            worst_node_share,
            seconds: tally.seconds,
        }
    }
}
