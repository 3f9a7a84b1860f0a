//! A lock, its store and the nodes around it: runs the decide loop as the engine does.

use super::invariants::{self, Promised};
use super::store::Store;
use crate::commit::{Commit, Outcome};
use crate::lock::command::{Acquire, Attachment, Force, Proclaim, Release, Withdraw};
use crate::lock::grant::Terms;
use crate::lock::memo::{Fate, Memo};
use crate::lock::name::{Kind, Operation};
use crate::lock::roster::{Holder, Roster};
use crate::lock::{
    ClusterKey, Command, Context, Decided, Effect, GrantId, Granted, Liveness, LockName, LockToken, Mode,
    NodeId, Reply, decide,
};
use crate::record::{Record, Revision, WallTime};
use crate::view::{Pause, View};
use crate::{Check, Ttl, Write};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

pub const ALICE: &str = "alice";
pub const BOB: &str = "bob";
pub const CAROL: &str = "carol";
/// The node that decides, unless a test says otherwise.
pub const HERE: NodeId = NodeId(1);
pub const THERE: NodeId = NodeId(2);
/// The lease that tests ask for, unless they say otherwise.
pub const TTL: Duration = Duration::from_secs(10);
pub const MEMORY: Duration = Duration::from_secs(600);

const KEY: ClusterKey = ClusterKey([7; 32]);

/// A lock, its store, and what the nodes know outside of it.
#[derive(Clone)]
pub struct World {
    pub lock: LockName,
    pub store: Store,
    pub queue_max: u64,
    /// Whether the nodes take each other into account.
    pub is_shared: bool,
    /// Calls that are parked somewhere.
    pub calls: BTreeSet<(NodeId, GrantId, u64)>,
    /// Waiters whose place has been kept long enough.
    pub forgotten: Vec<GrantId>,
    /// Every commit that was made.
    pub made: Vec<Commit>,
    /// Every effect, with the revision of its commit.
    pub effects: Vec<(Revision, Effect)>,
    /// What must hold because of what was answered.
    pub promised: Promised,
    pub next_attachment: u64,
    /// Owners whom the commands at hand name as successors.
    pub named: Vec<alloc::sync::Arc<str>>,
    /// Ranks that the commands at hand would queue with.
    pub ranks: Vec<(GrantId, u16)>,
}

/// An answer, and the commit that it was true at: the store's last one for an answer without a commit.
#[derive(Clone, Debug)]
pub struct Answer {
    pub reply: Reply,
    pub at: Revision,
}

impl Default for World {
    fn default() -> Self {
        Self {
            lock: LockName::new("n", "k"),
            store: Store::default(),
            queue_max: 8,
            is_shared: true,
            calls: BTreeSet::new(),
            forgotten: Vec::new(),
            made: Vec::new(),
            effects: Vec::new(),
            promised: Promised::default(),
            next_attachment: 0,
            named: Vec::new(),
            ranks: Vec::new(),
        }
    }
}

// The engine's loop.
impl World {
    /// Runs one command to its answer.
    pub fn run(&mut self, node: NodeId, command: Command) -> Answer {
        self.run_all(node, &[command]).remove(0)
    }

    /// Runs commands that arrived together, in as few commits as the rules allow.
    pub fn run_all(&mut self, node: NodeId, commands: &[Command]) -> Vec<Answer> {
        self.run_racing(node, commands, |_| {})
    }

    /// As [`Self::run_all`], with something else happening between the first decision and its commit.
    pub fn run_racing(
        &mut self,
        node: NodeId,
        commands: &[Command],
        race: impl FnOnce(&mut Self),
    ) -> Vec<Answer> {
        let mut race = Some(race);
        let mut answers = Vec::new();
        let mut view = View::new(self.lock.group());
        // What is asked, and what follows from it: that nobody is answered.
        let mut jobs: VecDeque<_> = commands.iter().map(|command| (command.clone(), true)).collect();
        for _ in 0..1000 {
            let decided = self.draft_jobs(node, &mut view, &mut jobs);
            if let Some(race) = race.take() {
                race(self);
            }
            let named = commands.iter().filter_map(|command| match command {
                Command::Release(release) => release.successor.clone(),
                _ => None,
            });
            self.named = named.collect();
            let ranks = commands.iter().filter_map(|command| match command {
                Command::Acquire(acquire) => Some((acquire.id, acquire.rank)),
                _ => None,
            });
            self.ranks = ranks.collect();
            if let Some(at) = self.conclude(&mut view, &decided) {
                for Decided { reply, more, .. } in decided {
                    let (_, is_asked) = jobs.pop_front().unwrap();
                    answers.extend(is_asked.then_some(Answer { reply, at }));
                    jobs.extend(more.then_some((Command::Settle, false)));
                }
            }
            if jobs.is_empty() {
                return answers;
            }
        }
        panic!("no end to it: {commands:?}");
    }

    /// Decides as many of the jobs as one commit takes, and puts before them what has to come first.
    fn draft_jobs(
        &mut self,
        node: NodeId,
        view: &mut View,
        jobs: &mut VecDeque<(Command, bool)>,
    ) -> Vec<Decided> {
        let mut decided = Vec::new();
        while let Some((command, _)) = jobs.get(decided.len()) {
            match self.decide(node, view, &command.clone()) {
                Ok(one) => decided.push(one),
                Err(Pause::SettleFirst) => jobs.insert(decided.len(), (Command::Settle, false)),
                Err(_) => break,
            }
        }
        assert!(!decided.is_empty(), "the first command has nothing to wait for");
        decided
    }

    /// Decides as many of the commands as one commit takes.
    pub fn draft(&mut self, node: NodeId, view: &mut View, commands: &[Command]) -> Vec<Decided> {
        let mut decided = Vec::new();
        for command in commands {
            match self.decide(node, view, command) {
                Ok(one) => decided.push(one),
                Err(_) => break,
            }
        }
        assert!(!decided.is_empty(), "the first command has nothing to wait for: {commands:?}");
        decided
    }

    fn decide(&mut self, node: NodeId, view: &mut View, command: &Command) -> Result<Decided, Pause> {
        loop {
            view.save();
            let pause = match self.decide_once(node, view, command) {
                Ok(decided) if view.fits() => return Ok(decided),
                Ok(_) => Pause::NextCommit,
                Err(pause) => pause,
            };
            view.roll_back();
            match pause {
                Pause::NextCommit | Pause::SettleFirst => return Err(pause),
                Pause::Read(key) => view.learn(&key, self.store.read(&key)),
                Pause::Scan { prefix, after } => {
                    let (page, more) = self.store.scan(&prefix, after.as_ref(), 2);
                    if prefix == self.lock.prefix(Kind::Order) {
                        for id in page.iter().filter_map(|order| GrantId::from_suffix(&order.value)) {
                            let key = self.lock.waiting(id);
                            if view.peek(&key).is_err() {
                                view.learn(&key, self.store.read(&key));
                            }
                        }
                    }
                    view.learn_page(&prefix, page, more);
                }
                Pause::Unreadable => panic!("unreadable: {command:?}"),
            }
        }
    }

    /// Decides one command on what the view knows, and nothing else.
    pub fn decide_without_reading(&self, node: NodeId, view: &mut View, command: &Command) -> Decided {
        view.save();
        self.decide_once(node, view, command).expect("everything is known")
    }

    fn decide_once(&self, node: NodeId, view: &mut View, command: &Command) -> Result<Decided, Pause> {
        let liveness =
            |id: GrantId, parked_at: NodeId, number: u64| self.liveness(node, id, (parked_at, number));
        let context = Context {
            node,
            now: WallTime(self.store.now),
            memory: MEMORY,
            queue_max: self.queue_max,
            liveness: &liveness,
            is_shared: self.is_shared,
            forgotten: &self.forgotten,
        };
        decide(&self.lock, command, view, &context)
    }

    /// Commits the draft, or says that it needs none. `None`: decide again, the view knows more now.
    fn conclude(&mut self, view: &mut View, decided: &[Decided]) -> Option<Revision> {
        let commit = view.commit();
        if !view.is_dirty() {
            if !view.is_assuming() {
                return Some(Revision(self.store.revision));
            }
            view.clear();
            for key in commit.checks.iter().map(Check::key) {
                view.learn(key, self.store.read(key));
            }
            return None;
        }
        let before = self.store.clone();
        match self.store.commit(&commit) {
            Outcome::Committed { revision, .. } => {
                invariants::check(self, &before, decided, revision);
                view.clear();
                self.made.push(commit);
                let effects = decided.iter().flat_map(|decided| &decided.effects);
                self.effects.extend(effects.map(|effect| (revision, effect.clone())));
                Some(revision)
            }
            Outcome::Conflict { found, .. } => {
                view.clear();
                for (key, record) in found {
                    view.learn(&key, record);
                }
                None
            }
        }
    }

    pub fn liveness(&self, node: NodeId, id: GrantId, parked: (NodeId, u64)) -> Liveness {
        if !self.calls.contains(&(parked.0, id, parked.1)) {
            Liveness::Orphan
        } else if parked.0 == node {
            Liveness::Here
        } else {
            Liveness::Elsewhere
        }
    }

    /// Gives up on a request whose commit may still arrive, as the engine does before it says "not applied".
    pub fn poison(&mut self, id: GrantId) -> Outcome {
        let memo = Memo {
            fate: Fate::Void,
            fencing: Revision(0),
            at: WallTime(self.store.now),
            digest: [0; 8],
            owner: "".into(),
        };
        let key = self.lock.memo(id);
        let write = Write::Put { key: key.clone(), value: memo.encode(), ttl: Ttl::AtLeast(MEMORY) };
        let checks = vec![Check::Absent(key), Check::Absent(self.lock.grant(id))];
        self.store.commit(&Commit { checks, writes: vec![write] })
    }
}

// What tests say. A request's name is its requestId; the owner's first request is named like the owner.
impl World {
    pub fn id(&self, request: &str) -> GrantId {
        GrantId::of(&self.lock, "", Operation::Acquire, request)
    }

    pub fn release_id(&self, request: &str) -> GrantId {
        GrantId::of(&self.lock, "", Operation::Release, request)
    }

    pub fn acquire(&self, request: &str, terms: &Terms) -> Command {
        let (terms, digest) = (terms.clone(), terms.digest());
        Command::Acquire(Acquire { id: self.id(request), terms, digest, attachment: None, rank: 0 })
    }

    /// An acquire that waits: its call is parked from now on.
    pub fn acquire_waiting(&mut self, node: NodeId, request: &str, terms: &Terms) -> (Command, Attachment) {
        self.next_attachment += 1;
        let (id, number) = (self.id(request), self.next_attachment);
        self.calls.insert((node, id, number));
        let (terms, digest) = (terms.clone(), terms.digest());
        let acquire = Acquire { id, terms, digest, attachment: Some(number), rank: 0 };
        (Command::Acquire(acquire), Attachment { id, number })
    }

    pub fn release(&self, granted: &Granted, request: Option<&str>) -> Command {
        Command::Release(Release {
            token: self.token(granted),
            owner: granted.owner.clone(),
            principal: granted.principal.clone(),
            id: request.map(|request| self.release_id(request)),
            successor: None,
        })
    }

    /// A release in favour of an owner.
    pub fn release_to(&self, granted: &Granted, successor: &str) -> Command {
        match self.release(granted, None) {
            Command::Release(release) => {
                Command::Release(Release { successor: Some(successor.into()), ..release })
            }
            other => other,
        }
    }

    pub fn proclaim(&self, granted: &Granted, value: &[u8]) -> Command {
        let fencing = granted.fencing.resolve(Revision(0));
        Command::Proclaim(Proclaim { id: granted.id, fencing, value: Some(value.into()) })
    }

    pub fn withdraw(&self, request: &str, terms: &Terms, again: bool) -> Command {
        let (owner, digest) = (terms.owner.clone(), terms.digest());
        Command::Withdraw(Withdraw { id: self.id(request), digest, owner, again })
    }

    pub fn token(&self, granted: &Granted) -> LockToken {
        let fencing = granted.fencing.resolve(Revision(0));
        assert_ne!(fencing, Revision(0), "only resolved grants have a token");
        let parts = (granted.id, granted.flags, fencing.into(), granted.digest);
        LockToken::new(&KEY, &self.lock, &granted.owner, &granted.principal, parts)
    }

    pub fn try_take(&mut self, owner: &str) -> Reply {
        let command = self.acquire(owner, &terms(owner));
        self.run(HERE, command).reply
    }

    pub fn take(&mut self, owner: &str) -> Granted {
        self.take_as(owner, &terms(owner))
    }

    pub fn take_as(&mut self, request: &str, terms: &Terms) -> Granted {
        let command = self.acquire(request, terms);
        self.run(HERE, command).granted()
    }

    /// As the engine renews: the grant is touched, whatever the roster says.
    pub fn renew(&mut self, granted: &Granted) -> Outcome {
        let key = self.lock.grant(granted.id);
        let checks = vec![Check::Created(key.clone(), granted.fencing.resolve(Revision(0)))];
        self.store.commit(&Commit { checks, writes: vec![Write::Touch { key, ttl: TTL }] })
    }

    /// Queues, and says which call is parked.
    pub fn park(&mut self, node: NodeId, owner: &str) -> Attachment {
        let (command, attachment) = self.acquire_waiting(node, owner, &terms(owner));
        assert_eq!(self.run(node, command).reply, Reply::Parked);
        attachment
    }

    pub fn park_all(&mut self, owners: &[&str]) {
        for owner in owners {
            self.park(HERE, owner);
        }
    }

    /// The parked call's connection or node is gone, and nobody has told the store.
    pub fn lose_call(&mut self, node: NodeId, attachment: Attachment) {
        self.calls.remove(&(node, attachment.id, attachment.number));
    }

    pub fn give_back(&mut self, granted: &Granted) -> Reply {
        let command = self.release(granted, None);
        self.run(HERE, command).reply
    }

    pub fn force(&mut self, target: Option<GrantId>) -> Reply {
        self.run(HERE, force(target)).reply
    }

    pub fn settle(&mut self, node: NodeId) -> Reply {
        self.run(node, Command::Settle).reply
    }

    pub fn advance(&mut self, by: Duration) {
        self.store.now += by.as_millis() as u64;
    }

    pub fn roster_record(&self) -> Option<Record> {
        self.store.look(&self.lock.roster())
    }

    pub fn roster(&self) -> Option<Roster> {
        self.roster_record().map(|record| Roster::decode(&record.value).unwrap())
    }

    pub fn holder(&self) -> Option<GrantId> {
        self.roster()?.holders.first().map(|holder| holder.id)
    }

    /// The one and only.
    pub fn only_holder(&self) -> Holder {
        let mut holders = self.roster().unwrap().holders;
        assert_eq!(holders.len(), 1);
        holders.remove(0)
    }

    /// Everybody who holds it, in the order of their grants.
    pub fn holders(&self) -> Vec<GrantId> {
        self.roster().unwrap_or_default().holders.iter().map(|holder| holder.id).collect()
    }

    pub fn memo(&self, id: GrantId) -> Option<Memo> {
        self.store.look(&self.lock.memo(id)).map(|record| Memo::decode(&record.value).unwrap())
    }

    pub fn grant_record(&self, id: GrantId) -> Option<Record> {
        self.store.look(&self.lock.grant(id))
    }

    /// Who waits, in order.
    pub fn queue(&self) -> Vec<GrantId> {
        let order = self.store.all(&self.lock.prefix(Kind::Order));
        order.iter().map(|record| GrantId::from_suffix(&record.value).unwrap()).collect()
    }

    /// The grant that the last commit made for a waiter.
    pub fn handed_over(&self) -> Granted {
        let last = self.effects.iter().rev().find_map(|(at, effect)| match effect {
            Effect::Granted { grant, queued_since: Some(_) } => Some((at, grant)),
            _ => None,
        });
        let (at, grant) = last.expect("a hand-over");
        resolved(grant, *at)
    }
}

pub fn terms(owner: &str) -> Terms {
    Terms {
        owner: owner.into(),
        principal: "".into(),
        ttl: TTL,
        reentrant: false,
        metadata: None,
        mode: Mode::Exclusive,
        delay: Duration::ZERO,
    }
}

pub fn reentrant(owner: &str) -> Terms {
    Terms { reentrant: true, ..terms(owner) }
}

pub fn force(target: Option<GrantId>) -> Command {
    let (by, reason) = ("admin".into(), "stuck".into());
    Command::Force(Force { target, fencing: None, delay: Duration::ZERO, by, reason })
}

pub fn resolved(grant: &Granted, at: Revision) -> Granted {
    Granted { fencing: crate::Stamp::At(grant.fencing.resolve(at)), ..grant.clone() }
}

impl Answer {
    /// The grant, as the caller hears of it.
    pub fn granted(&self) -> Granted {
        match &self.reply {
            Reply::Granted(granted) => resolved(granted, self.at),
            other => panic!("not granted: {other:?}"),
        }
    }
}
