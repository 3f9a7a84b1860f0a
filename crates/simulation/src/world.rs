//! What happens, in its order: checks come, messages travel, nodes look after what they hold, things go wrong.

use crate::chance::{Dice, Skewed};
use crate::event::{Asks, Call, Event, Queue, Said};
use crate::mishaps::{self, Mishap};
use crate::node::{Held, Node, Waiting};
use crate::outcome::{Outcome, bound_of};
use crate::plan::{Plan, Unfit};
use crate::sharp::Sharp;
use crate::store::{Store, key_name};
use crate::tally::{By, Tally};
use crate::traffic::Traffic;
use baton_core::Revision;
use baton_core::limit::holder::{self, Step, Waits};
use baton_core::limit::purse::{Message, Terms};
use baton_core::limit::share::Member;
use baton_core::limit::{Defined, Definition, Identity, Mechanism, Policy};
use std::collections::BTreeSet;

/// How long a node waits for the store.
const DEADLINE_US: u64 = 2_000_000;
/// How often a node looks after what is idle or owed.
const LOOK_US: u64 = holder::LOOK_MS * 1_000;
/// Checks that wait for one purse. Beyond that they ask the store.
const WAITING_MAX: usize = 100_000;
/// How often a check waits for an answer, as at a node.
const WAITS_MAX: usize = holder::WAITS_MAX;
/// How often somebody is told how far it is.
const TOLD_US: u64 = 100_000;

/// What one counter would admit that every check reaches at once, by second.
pub fn allowed(plan: &Plan) -> Result<Vec<u64>, Unfit> {
    plan.check()?;
    let definition = Definition { mechanism: Mechanism::Central, ..plan.definition.clone() };
    let mut store = Store::new(&[definition], plan.keys);
    let mut seconds = vec![0; plan.duration_ms.div_ceil(1_000) as usize];
    for arrival in Traffic::new(plan) {
        let is_admitted = store.admits(0, arrival.key, arrival.at_us) == Ok(true);
        seconds[(arrival.at_us / 1_000_000) as usize] += u64::from(is_admitted);
    }
    Ok(seconds)
}

/// The definitions of a plan, one after the other: the limit is halved, and then what it was.
fn definitions(plan: &Plan, mechanism: Mechanism) -> Vec<Definition> {
    let whole = Definition {
        mechanism,
        expected_nodes: plan.definition.expected_nodes.max(Some(plan.places())),
        ..plan.definition.clone()
    };
    let half = |amount: u64| (amount / 2).max(1);
    let halved = Definition { limit: half(whole.limit), burst: whole.burst.map(half), ..whole.clone() };
    (0..=plan.changes).map(|change| if change % 2 == 0 { whole.clone() } else { halved.clone() }).collect()
}

/// Runs a plan with a mechanism. `told` hears every so often how many milliseconds have passed.
pub fn run(
    plan: &Plan,
    mechanism: Mechanism,
    allowed: &[u64],
    told: impl FnMut(u64),
) -> Result<Outcome, Unfit> {
    run_on(plan, mechanism, allowed, told, Clone::clone)
}

/// The same on a store that goes by other definitions than it was told: what is wrong with that has to show.
pub fn run_on(
    plan: &Plan,
    mechanism: Mechanism,
    allowed: &[u64],
    mut told: impl FnMut(u64),
    at_store: impl Fn(&Definition) -> Definition,
) -> Result<Outcome, Unfit> {
    plan.check()?;
    let mut world = World::new(plan, mechanism, at_store);
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
    /// As it is with this mechanism, one after the other.
    definitions: Vec<Definition>,
    terms: Vec<Option<Terms>>,
    /// Which of them is in force.
    version: usize,
    now_us: u64,
    store: Store,
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
    fn new(plan: &'a Plan, mechanism: Mechanism, at_store: impl Fn(&Definition) -> Definition) -> Self {
        let definitions = definitions(plan, mechanism);
        let terms = definitions.iter().map(|definition| holder::terms(definition, "", Identity::default()));
        let mut dice = Dice::new(plan.seed, 2);
        let nodes = (0..plan.places()).map(|place| Node {
            is_live: place < plan.nodes,
            ahead_ms: 1 + dice.below(1_000_000_000),
            ..Node::default()
        });
        let mut world = Self {
            plan,
            mechanism,
            terms: terms.collect(),
            version: 0,
            now_us: 0,
            store: Store::new(&definitions.iter().map(at_store).collect::<Vec<_>>(), plan.keys),
            nodes: nodes.collect(),
            weights: Skewed::new(plan.places(), plan.node_skew),
            queue: Queue::default(),
            latency: Dice::new(plan.seed, 4),
            settled: BTreeSet::new(),
            debts: 0,
            tally: Tally::new(
                plan.keys,
                plan.definition.window_ms,
                plan.duration_ms,
                Sharp::new(plan, &definitions),
            ),
            local: 0,
            waited_us: 0,
            definitions,
        };
        for place in 0..world.nodes.len() {
            world.queue.put(dice.below(LOOK_US), Event::Look { place });
        }
        let (changes, heard) = mishaps::changes(plan);
        for (before, at_us) in changes.into_iter().enumerate() {
            world.queue.put(at_us, Event::Change { version: before + 1 });
        }
        for (at_us, place, mishap) in mishaps::draw(plan).into_iter().chain(heard) {
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
        let owner = self.owner(key);
        self.nodes[owner.unwrap_or(place)].offered += 1;
        match owner.filter(|owner| *owner != place) {
            Some(owner) => {
                let (life, there_us, back_us) = (self.nodes[owner].life, self.way_us(), self.way_us());
                let forwarded = Event::Forwarded { place: owner, life, key, arrived_us: now_us, back_us };
                self.queue.put(now_us + there_us, forwarded);
            }
            None => self.checks(place, key, now_us),
        }
    }

    /// The node that decides all checks of a key, if one does: the first that lives, from the key's place on.
    fn owner(&self, key: usize) -> Option<usize> {
        let count = self.nodes.len();
        let mut places = (0..count).map(|step| (key + step) % count);
        (self.mechanism == Mechanism::Owned).then(|| places.find(|place| self.nodes[*place].is_live))?
    }

    /// A check that this node decides.
    fn checks(&mut self, place: usize, key: usize, arrived_us: u64) {
        let node = &mut self.nodes[place];
        if self.terms[node.version].is_none() {
            self.ask_store(place, key, arrived_us);
        } else if let std::collections::btree_map::Entry::Vacant(entry) = node.held.entry(key) {
            // A key that comes once needs no purse.
            node.held_before += 1;
            let row = format!("{place}.{}.{}", node.life, node.held_before);
            entry.insert(Held { row, version: node.version, ..Held::default() });
            self.ask_store(place, key, arrived_us);
        } else {
            self.decide(place, key, Waiting { arrived_us, waits: 0 });
        }
    }

    /// By what the node holds, or the store.
    fn decide(&mut self, place: usize, key: usize, check: Waiting) {
        let Waiting { arrived_us, waits } = check;
        let node = &mut self.nodes[place];
        let (now_ms, version) = (node.now_ms(self.now_us), node.version);
        let (Some(terms), Some(held)) = (self.terms[version], node.held.get_mut(&key)) else {
            return self.ask_store(place, key, arrived_us);
        };
        held.used_ms = now_ms;
        let step = if held.version != version && !held.purse.is_asking() {
            // What was given by another definition goes back, for as much by this one.
            held.version = version;
            Step::Renew(held.holder(&terms).leave(true, now_ms))
        } else {
            held.holder(&terms).check(1, now_ms, Waits { had: waits, most: WAITS_MAX })
        };
        match step {
            Step::Wait | Step::Renew(_) if held.waiting.len() < WAITING_MAX => {
                held.waiting.push(Waiting { arrived_us, waits: waits + 1 });
            }
            Step::Wait | Step::Renew(_) | Step::Ask { .. } => self.ask_store(place, key, arrived_us),
            Step::Spent { .. } => self.decided_here(place, key, arrived_us, Some(By::Limit)),
            Step::Refused { .. } => self.decided_here(place, key, arrived_us, None),
        }
        if let Step::Renew(message) = step {
            self.tell_store(place, key, message);
        } else if let Some(message) = step.beside() {
            self.tell_store(place, key, message);
        }
    }

    fn decided_here(&mut self, place: usize, key: usize, arrived_us: u64, admitted: Option<By>) {
        self.local += 1;
        self.waited_us += self.now_us - arrived_us;
        if let Some(by) = admitted {
            self.admitted(place, key, by);
        }
    }

    fn admitted(&mut self, place: usize, key: usize, by: By) {
        self.nodes[place].admitted += 1;
        self.tally.admit(key, self.now_us, by);
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
        let call = Call { place, life: node.life, key, sent_us: now_us, version: node.version, asks };
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
            Event::Look { .. } if !goes_on => {}
            Event::Look { place } => {
                self.look(place);
                self.queue.put(self.now_us + LOOK_US, Event::Look { place });
            }
            Event::Forwarded { place, life, key, arrived_us, back_us } => {
                self.waited_us += back_us;
                let node = &self.nodes[place];
                match node.is_live && node.life == life {
                    true => self.checks(place, key, arrived_us),
                    // Nobody answers: any other asks the store.
                    false => {
                        let live = self.nodes.iter().position(|node| node.is_live);
                        live.into_iter().for_each(|place| self.ask_store(place, key, arrived_us));
                    }
                }
            }
            Event::Change { version } => self.version = version,
            Event::Mishap { place, mishap } => {
                let node = &mut self.nodes[place];
                match mishap {
                    Mishap::Crash => node.crash(),
                    Mishap::Come => node.come(self.version),
                    Mishap::Learn { version } => node.version = node.version.max(version),
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
        let Call { key, version, .. } = call;
        let mut admitted = false;
        let said = match &call.asks {
            Asks::Check { arrived_us } => {
                let asks_when = self.terms[version].is_some();
                self.store.check(version, key, now_us, asks_when).map(|checked| {
                    self.waited_us += now_us + back_us - arrived_us;
                    if checked.is_admitted {
                        admitted = true;
                    }
                    Said::Checked(checked)
                })
            }
            Asks::Lease { row, message } => {
                self.store.hear(version, key, row, *message, now_us).map(Said::Leased)
            }
            Asks::Debt { id, amount } => match self.settled.contains(id) {
                true => Ok(Said::Settled),
                false => self.store.owe(version, key, *amount, now_us).map(|()| {
                    self.settled.insert(*id);
                    Said::Settled
                }),
            },
        };
        // By the definition that it follows by then.
        if let Some((sharp, followed)) = self.tally.sharp.as_mut().zip(self.store.followed(key)) {
            sharp.follow(key, followed, now_us);
        }
        if admitted {
            self.admitted(call.place, key, By::Limit);
        }
        let said = said.unwrap_or(Said::Outdated { version: self.version });
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
            Said::Checked(checked) => Some(checked.seen.remaining),
            Said::Leased(leased) => Some(leased.seen.remaining),
            Said::Settled | Said::Outdated { .. } => None,
        };
        let divides = matches!(self.plan.definition.on_failure, Policy::Local | Policy::Snapshot);
        if let Some(remaining) = remains.filter(|_| divides) {
            node.own.entry(call.key).or_default().remained = Some(remaining);
        }
        let terms = self.terms[node.version];
        match (said, &call.asks) {
            (Said::Outdated { version }, _) => {
                // It reads the definition, and asks again.
                node.version = node.version.max(version);
                let (place, key) = (call.place, call.key);
                self.send(place, key, call.asks);
            }
            (Said::Checked(checked), _) => {
                if let Some((held, terms)) = node.held.get_mut(&call.key).zip(terms) {
                    let mut holder = held.holder(&terms);
                    holder.note_left(checked.seen.left);
                    if !checked.is_admitted {
                        holder.note_refusal(1, checked.retry_ms, checked.seen.stands_ms, now_ms);
                    }
                }
            }
            (Said::Leased(leased), Asks::Lease { row, message }) => {
                let held = node.held.get_mut(&call.key).filter(|held| held.row == *row);
                if let Some((held, terms)) = held.zip(terms) {
                    held.holder(&terms).heard(message.sequence, leased.amount, leased.seen, now_ms);
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
        for check in std::mem::take(&mut held.waiting) {
            self.decide(place, key, check);
        }
    }

    /// The store can't be reached, or was not heard: what was asked may have happened or not.
    fn unanswered(&mut self, call: Call) {
        let node = &mut self.nodes[call.place];
        let now_ms = node.now_ms(self.now_us);
        match call.asks {
            Asks::Check { arrived_us } => {
                let member = Member { rank: call.place as u64, count: self.plan.places() };
                let definition = self.definitions[node.version].clone();
                let defined = Defined { definition, version: Revision(node.version as u64 + 1) };
                let rule = defined.exact_rule(&key_name(call.key), None);
                let is_admitted = node.decide_alone(call.key, &defined.definition, &rule, member, now_ms);
                self.decided_here(call.place, call.key, arrived_us, is_admitted.then_some(By::Policy));
            }
            Asks::Lease { row, message } => {
                let held = node.held.get_mut(&call.key).filter(|held| held.row == row);
                if let Some((held, terms)) = held.zip(self.terms[node.version]) {
                    held.holder(&terms).unheard(message.sequence, now_ms);
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
        if let Some(terms) = self.terms[node.version] {
            node.held.retain(|_, held| {
                let used_ms = held.used_ms;
                !held.waiting.is_empty() || !held.holder(&terms).is_over(used_ms, now_ms)
            });
            let look =
                |(key, held): (&usize, &mut Held)| Some((*key, held.holder(&terms).look(false, now_ms)?));
            messages.extend(node.held.iter_mut().filter_map(look));
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
        let bound = bound_of(plan, &self.definitions[0]);
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
            by_policies: tally.by_policies,
            closest: tally.sharp.and_then(|sharp| sharp.closest),
            seconds: tally.seconds,
        }
    }
}
