//! Any sequence of calls on several nodes, with everything that goes wrong between a client, a node and a store:
//! answers that get lost, commits that arrive late or twice, decisions that race, calls and nodes that vanish.

use super::world::*;
use crate::commit::{Commit, Outcome, Write};
use crate::lock::command::{Acquire, Attachment};
use crate::lock::grant::Terms;
use crate::lock::memo::Fate;
use crate::lock::name::Kind;
use crate::lock::{Command, Effect, Granted, Mode, NodeId, Reply};
use crate::record::Revision;
use crate::view::View;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Debug)]
enum Step {
    /// Commands that arrive together at a node, and perhaps others that are decided meanwhile at another.
    Ask { node: NodeId, asks: Vec<Ask>, race: Option<(NodeId, Vec<Ask>)> },
    /// A commit doesn't reach the store for now, and its request is given up.
    Lose { node: NodeId, ask: Ask },
    /// A commit that was lost, or made, reaches the store.
    Deliver(Index),
    /// Time passes.
    Pass(Duration),
    /// All calls on a node end, and nobody says so to the store.
    Crash(NodeId),
    /// The orphans have had their time.
    Forget,
}

#[derive(Clone, Debug)]
enum Ask {
    Acquire { request: u8, waits: bool, otherwise: bool, rank: u16 },
    Release { of: Index, request: Option<u8> },
    ReleaseTo { of: Index, owner: u8 },
    Proclaim { of: Index, value: u8 },
    Leave(Index),
    Detach(Index),
    Undo(Index),
    Withdraw { request: u8, again: bool },
    Force { target: Option<Index> },
    Settle,
}

fn ask() -> impl Strategy<Value = Ask> {
    let index = any::<Index>;
    prop_oneof![
        8 => (0..6_u8, any::<bool>(), proptest::bool::weighted(0.1), 1..3_u16)
            .prop_map(|(request, waits, otherwise, rank)| Ask::Acquire { request, waits, otherwise, rank }),
        5 => (index(), proptest::option::of(0..3_u8)).prop_map(|(of, request)| Ask::Release { of, request }),
        1 => (index(), 0..3_u8).prop_map(|(of, owner)| Ask::ReleaseTo { of, owner }),
        1 => (index(), 0..3_u8).prop_map(|(of, value)| Ask::Proclaim { of, value }),
        1 => index().prop_map(Ask::Leave),
        1 => index().prop_map(Ask::Detach),
        1 => index().prop_map(Ask::Undo),
        1 => (0..6_u8, any::<bool>()).prop_map(|(request, again)| Ask::Withdraw { request, again }),
        1 => proptest::option::of(index()).prop_map(|target| Ask::Force { target }),
        2 => Just(Ask::Settle),
    ]
}

fn node() -> impl Strategy<Value = NodeId> {
    (1..4_u64).prop_map(NodeId)
}

fn step() -> impl Strategy<Value = Step> {
    let asks = || proptest::collection::vec(ask(), 1..5);
    const TIMES: &[u64] = &[1, 3_000, 10_000, 20_000, 700_000];
    prop_oneof![
        10 => (node(), asks(), proptest::option::of((node(), asks())))
            .prop_map(|(node, asks, race)| Step::Ask { node, asks, race }),
        4 => (node(), ask()).prop_map(|(node, ask)| Step::Ask { node, asks: [ask].into(), race: None }),
        2 => (node(), ask()).prop_map(|(node, ask)| Step::Lose { node, ask }),
        4 => any::<Index>().prop_map(Step::Deliver),
        3 => proptest::sample::select(TIMES).prop_map(|ms| Step::Pass(Duration::from_millis(ms))),
        1 => node().prop_map(Step::Crash),
        1 => Just(Step::Forget),
    ]
}

/// What the lock is used as.
#[derive(Clone, Copy, Default, Debug)]
enum Kinds {
    #[default]
    Plain,
    ReadWrite,
    Semaphore(u16),
}

/// The world, and what its clients and its network have kept.
#[derive(Default)]
struct Run {
    kind: Kinds,
    delay: Duration,
    world: World,
    is_election: bool,
    /// What clients were told; also of what ended long ago.
    grants: Vec<Granted>,
    calls: Vec<(NodeId, Attachment)>,
    /// Commits on the way, since when.
    late: Vec<(u64, Commit)>,
}

impl Run {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask { node, asks, race } => self.ask(*node, asks, race.as_ref()),
            Step::Lose { node, ask } => self.lose(*node, ask),
            Step::Deliver(which) => self.deliver(*which),
            Step::Pass(time) => self.world.advance(*time),
            Step::Crash(node) => self.world.calls.retain(|(parked, ..)| parked != node),
            Step::Forget => self.forget(),
        }
        let made = core::mem::take(&mut self.world.made);
        self.late.extend(made.into_iter().map(|commit| (self.world.store.now, commit)));
    }

    fn command(&mut self, node: NodeId, ask: &Ask) -> Command {
        match ask {
            Ask::Acquire { request, waits, otherwise, rank } => {
                let terms = self.terms(*request, *otherwise);
                let request = format!("r{request}");
                if !waits {
                    return self.world.acquire(&request, &terms);
                }
                let (command, attachment) = self.world.acquire_waiting(node, &request, &terms);
                self.calls.push((node, attachment));
                match command {
                    Command::Acquire(acquire) => {
                        // Locks have one rank, elections several; nothing has both.
                        let rank = if self.is_election { *rank } else { 0 };
                        Command::Acquire(Acquire { rank, ..acquire })
                    }
                    other => other,
                }
            }
            Ask::Release { of, request } if !self.grants.is_empty() => {
                let granted = of.get(&self.grants);
                let request = request.map(|request| format!("x{request}"));
                self.world.release(granted, request.as_deref())
            }
            Ask::ReleaseTo { of, owner } if !self.grants.is_empty() => {
                self.world.release_to(of.get(&self.grants), &format!("o{owner}"))
            }
            Ask::Proclaim { of, value } if !self.grants.is_empty() => {
                self.world.proclaim(of.get(&self.grants), &[*value])
            }
            Ask::Leave(which) if !self.calls.is_empty() => Command::Leave(self.end_call(*which)),
            Ask::Detach(which) if !self.calls.is_empty() => Command::Detach(self.end_call(*which)),
            Ask::Undo(which) if !self.grants.is_empty() => {
                let granted = which.get(&self.grants);
                Command::Undo { id: granted.id, fencing: granted.fencing.resolve(Revision(0)) }
            }
            Ask::Withdraw { request, again } => {
                let terms = self.terms(*request, false);
                self.world.withdraw(&format!("r{request}"), &terms, *again)
            }
            Ask::Force { target } if !self.grants.is_empty() => {
                force(target.map(|target| target.get(&self.grants).id))
            }
            _ => Command::Settle,
        }
    }

    fn terms(&self, request: u8, otherwise: bool) -> Terms {
        // Two owners; most of their requests for a plain lock are reentrant.
        let owner = format!("o{}", request % 2);
        let ttl = TTL * if otherwise { 2 } else { 1 };
        // Some of them leave the lock closed for a while if their lease runs out.
        let delay = if request.is_multiple_of(3) { self.delay } else { Duration::ZERO };
        let terms = Terms { ttl, delay, ..terms(&owner) };
        match self.kind {
            Kinds::Plain => Terms { reentrant: request < 4, ..terms },
            Kinds::ReadWrite if request < 4 => Terms { mode: Mode::Shared, ..terms },
            Kinds::ReadWrite => terms,
            Kinds::Semaphore(permits) => {
                let permits = if request == 5 && otherwise { permits + 1 } else { permits };
                Terms { mode: Mode::Semaphore { permits }, ..terms }
            }
        }
    }

    fn end_call(&mut self, which: Index) -> Attachment {
        let (node, attachment) = *which.get(&self.calls);
        self.world.lose_call(node, attachment);
        attachment
    }

    fn ask(&mut self, node: NodeId, asks: &[Ask], race: Option<&(NodeId, Vec<Ask>)>) {
        let commands: Vec<_> = asks.iter().map(|ask| self.command(node, ask)).collect();
        let other = race.map(|(node, asks)| {
            let commands: Vec<_> = asks.iter().map(|ask| self.command(*node, ask)).collect();
            (*node, commands)
        });
        let remembered = match (&commands[..], &other) {
            ([Command::Acquire(acquire)], None) => self.remembered(acquire),
            _ => None,
        };
        let effects = self.world.effects.len();
        let mut raced = Vec::new();
        let mut answers = self.world.run_racing(node, &commands, |world| {
            if let Some((node, commands)) = other {
                raced = world.run_all(node, &commands);
            }
        });
        if let Some(remembered) = remembered {
            assert_eq!(answers[0].reply, remembered);
        }
        answers.append(&mut raced);
        let answered = answers.iter().filter(|answer| matches!(answer.reply, Reply::Granted(_)));
        self.grants.extend(answered.map(Answer::granted));
        let woken = self.world.effects[effects..].iter().filter_map(|(at, effect)| match effect {
            Effect::Granted { grant, .. } => Some(resolved(grant, *at)),
            Effect::Ended { .. } => None,
        });
        self.grants.extend(woken);
    }

    /// What a request must be answered because of what became of it.
    fn remembered(&self, acquire: &Acquire) -> Option<Reply> {
        let memo = self.world.memo(acquire.id)?;
        match memo.fate {
            Fate::Void | Fate::Nested { .. } => None,
            _ if memo.digest != acquire.digest => Some(Reply::RequestIdReused),
            Fate::Released => Some(Reply::AlreadyReleased),
            Fate::Expired | Fate::Forced | Fate::Counted => Some(Reply::Expired),
        }
    }

    fn lose(&mut self, node: NodeId, ask: &Ask) {
        let command = self.command(node, ask);
        let Command::Acquire(acquire) = &command else { return };
        let mut view = View::new(self.world.lock.group());
        self.world.draft(node, &mut view, core::slice::from_ref(&command));
        let call = acquire.attachment.map(|number| Attachment { id: acquire.id, number });
        call.into_iter().for_each(|call| self.world.lose_call(node, call));
        if view.is_dirty() && matches!(self.world.poison(acquire.id), Outcome::Committed { .. }) {
            self.late.push((self.world.store.now, view.commit()));
        }
    }

    fn deliver(&mut self, which: Index) {
        let now = self.world.store.now;
        self.late.retain(|(since, commit)| {
            let remembered = now - since < MEMORY.as_millis() as u64;
            // To renew twice does no harm.
            remembered && commit.writes.iter().any(|write| !matches!(write, Write::Touch { .. }))
        });
        if !self.late.is_empty() {
            let (_, commit) = which.get(&self.late);
            let outcome = self.world.store.commit(commit);
            assert!(matches!(outcome, Outcome::Conflict { .. }), "{commit:?} took effect late");
        }
    }

    fn forget(&mut self) {
        let queue = self.world.queue();
        let calls = &self.world.calls;
        let is_orphan = |id: &crate::lock::GrantId| !calls.iter().any(|(_, parked, _)| parked == id);
        self.world.forgotten = queue.into_iter().filter(is_orphan).collect();
    }
}

proptest! {
    #[test]
    fn whatever_is_asked_and_whatever_goes_wrong_the_records_and_the_answers_agree(
        kind in proptest::sample::select(&[Kinds::Plain, Kinds::ReadWrite, Kinds::Semaphore(1), Kinds::Semaphore(3)]),
        delay_ms in proptest::sample::select(&[0, 0, 5_000, 30_000]),
        steps in proptest::collection::vec(step(), 1..60),
        is_election: bool,
        is_shared: bool,
    ) {
        // Elections are plain locks.
        let kind = if is_election { Kinds::Plain } else { kind };
        let mut run = Run { kind, delay: Duration::from_millis(delay_ms), is_election, ..Run::default() };
        run.world.is_shared = is_shared;
        for step in &steps {
            run.step(step);
        }
        // In the end everybody goes, and nothing is left.
        run.step(&Step::Pass(MEMORY));
        (1..4).for_each(|node| run.step(&Step::Crash(NodeId(node))));
        run.step(&Step::Forget);
        run.world.settle(HERE);
        prop_assert_eq!(run.world.roster_record(), None);
        prop_assert_eq!(run.world.store.all(&run.world.lock.prefix(Kind::Order)).len(), 0);
    }
}
