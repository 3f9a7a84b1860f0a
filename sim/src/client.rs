//! What a client does: takes locks, waits for them, loses answers, asks again, renews, sleeps, releases, dies.
//!
//! It keeps to what the SDK does where safety depends on it: its deadline counts from before the attempt that was
//! answered, less a margin, and a grant that took long to be answered is renewed before it is believed.

use crate::nodes::Live;
use crate::scenarios::{Habits, LockKind};
use crate::world::{Ask, Belief, Told, World};
use baton_core::lock::election::rank;
use baton_core::lock::name::Operation;
use baton_core::lock::{GrantId, Mode};
use baton_engine::election::ProclaimCall;
use baton_engine::lock::{AcquireCall, ForceCall, Granted, LockError, Refusal, ReleaseCall, RenewCall, Wait};
use baton_testkit::Dice;
use std::sync::Arc;
use std::time::Duration;

/// A step is tried this often before the client gives up on it.
const ATTEMPTS_MAX: u32 = 12;
/// Nobody waits longer than this for an answer that isn't about waiting.
const PATIENCE: Duration = Duration::from_secs(6);

/// A client.
pub struct Client {
    world: Arc<World>,
    number: usize,
    dice: Dice,
    requests: u32,
}

/// A request that is made until it is answered.
#[derive(Clone)]
struct Request {
    lock: usize,
    id: String,
    grant: GrantId,
    ttl: Duration,
    wait: Wait,
    reentrant: bool,
    expects: u32,
    mode: Mode,
    delay: Duration,
    priority: i16,
}

/// A grant that the client knows of.
struct Held {
    request: Request,
    token: String,
    fencing: u64,
    count: u32,
    /// Whether the count is surely right: every nested acquire was answered.
    certain: bool,
    /// Where its belief is written down.
    belief: usize,
}

/// The client is no more.
struct Gone;

/// What came of a call.
enum Heard<T> {
    Answer(Result<T, LockError>, Duration),
    /// Nothing.
    Silence,
}

impl Client {
    /// A client that has done nothing.
    pub fn new(world: Arc<World>, number: usize, dice: Dice) -> Self {
        Self { world, number, dice, requests: 0 }
    }

    /// Takes locks until the world calms down, or the client dies.
    pub async fn run(mut self) {
        while !self.world.is_calm() {
            let think = self.dice.millis(self.habits().think_ms);
            tokio::time::sleep(think).await;
            if self.episode().await.is_err() {
                let number = self.number;
                self.world.note(|| format!("client {number} dies"));
                return;
            }
        }
    }

    fn habits(&self) -> Habits {
        self.world.plan.habits.clone()
    }

    /// As probable as it says, while things go wrong.
    fn chance(&mut self, per_mille: u32) -> bool {
        self.dice.chance(per_mille) && !self.world.is_calm()
    }

    fn owner(&self) -> Arc<str> {
        format!("client-{}", self.number).into()
    }

    fn request(&mut self, lock: usize, reentrant: bool) -> Request {
        let habits = self.habits();
        self.requests += 1;
        let id = format!("{}-{}", self.number, self.requests);
        let grant = GrantId::of(&self.world.locks[lock], "", Operation::Acquire, &id);
        let wait = if self.dice.chance(habits.waits) {
            Wait::Forever
        } else if self.dice.chance(habits.waits_limited) {
            Wait::AtMost(self.dice.millis(habits.wait_ms))
        } else {
            Wait::No
        };
        let ttl = self.dice.millis(habits.ttl_ms);
        let mode = self.mode(&habits);
        let reentrant = reentrant && mode == Mode::Exclusive;
        let mut delay = Duration::ZERO;
        if habits.delayed > 0 && self.dice.chance(habits.delayed) {
            delay = self.dice.millis(habits.delay_ms);
        }
        let priority = match self.world.plan.elections {
            Some(electing) if self.dice.chance(electing.ranked) => self.dice.between((0, 6)) as i16 - 3,
            _ => 0,
        };
        Request { lock, id, grant, ttl, wait, reentrant, expects: 1, mode, delay, priority }
    }

    /// How to hold a lock; now and then as it isn't meant to be. Plain locks take nothing from the dice.
    fn mode(&mut self, habits: &Habits) -> Mode {
        let kind = self.world.plan.kind;
        let permits = match kind {
            LockKind::Plain => return Mode::Exclusive,
            LockKind::ReadWrite if self.chance(habits.mistakes) => 2,
            LockKind::ReadWrite if self.dice.chance(habits.reads) => return Mode::Shared,
            LockKind::ReadWrite => return Mode::Exclusive,
            LockKind::Semaphore(_) if self.chance(habits.mistakes) => return Mode::Exclusive,
            LockKind::Semaphore(permits) => permits,
        };
        Mode::Semaphore { permits }
    }

    /// One lock, from the first call to the last.
    async fn episode(&mut self) -> Result<(), Gone> {
        let habits = self.habits();
        let lock = self.dice.below(self.world.plan.locks as u64) as usize;
        let reentrant = self.dice.chance(habits.reentrant);
        let request = self.request(lock, reentrant);
        let reentrant = request.reentrant;
        let Some(mut held) = self.take(request.clone()).await? else { return Ok(()) };
        if self.chance(habits.dies_holding) {
            return Err(Gone);
        }
        let nests = if reentrant { self.dice.below(3) } else { 0 };
        let mut is_mine = true;
        for _ in 0..nests {
            self.hold(&mut held, &mut is_mine).await;
            let nested = self.request(lock, true);
            let expects = held.count + 1;
            let nested = Request { expects, ttl: held.request.ttl, delay: held.request.delay, ..nested };
            if is_mine && !self.nest(&mut held, nested).await? {
                is_mine = false;
            }
        }
        self.hold(&mut held, &mut is_mine).await;
        if self.chance(habits.reuses) {
            let reused = Request { ttl: request.ttl + Duration::from_millis(7), ..request.clone() };
            self.repeat(reused, &[Refusal::RequestIdReused]).await;
        }
        while held.count > 0 {
            if !self.give_back(&mut held).await {
                return Ok(());
            }
        }
        if self.chance(habits.repeats) {
            self.repeat(request, &[Refusal::AlreadyReleased, Refusal::Expired]).await;
        }
        Ok(())
    }

    /// Asks until there is an answer. `None` when the lock can't be had.
    async fn take(&mut self, request: Request) -> Result<Option<Held>, Gone> {
        let Some((granted, started)) = self.acquire(&request).await? else { return Ok(None) };
        let world = self.world.clone();
        let now = world.now();
        let deadline = started + request.ttl - margin(request.ttl);
        let token = granted.token.reveal();
        let fencing = granted.fencing.0;
        let (client, lock, hold) = (self.number, request.lock, granted.hold);
        let belief =
            world.believe(Belief { client, lock, fencing, hold, from: now, until: deadline.max(now) });
        let mut held = Held { token, fencing, count: granted.count, certain: true, belief, request };
        if now - started > held.request.ttl / 10 {
            // It took long: believed only once it is renewed.
            self.disbelieve(&held);
            if !self.renew(&mut held).await {
                return Ok(None);
            }
        }
        Ok(Some(held))
    }

    /// Asks for the lock until there is an answer.
    async fn acquire(&mut self, request: &Request) -> Result<Option<(Granted, Duration)>, Gone> {
        let habits = self.habits();
        for _ in 0..ATTEMPTS_MAX {
            if request.wait != Wait::No && self.chance(habits.dies_waiting) {
                let wait = self.dice.millis((0, 500));
                // Gone in the middle of it.
                drop(tokio::time::timeout(wait, self.call_acquire(request.clone(), None)).await);
                return Err(Gone);
            }
            let breaks = self.chance(habits.breaks).then(|| self.dice.millis(habits.breaks_ms));
            let heard = if self.chance(habits.doubled) {
                self.twice(request, breaks).await
            } else {
                self.call_acquire(request.clone(), breaks).await
            };
            match heard {
                Heard::Answer(Ok(granted), started) => return Ok(Some((granted, started))),
                Heard::Answer(Err(LockError::Refused(Refusal::StillWaiting { .. })), _) => {}
                Heard::Answer(Err(LockError::Refused(_)), _) => return Ok(None),
                Heard::Answer(Err(LockError::Failed(_)), _) | Heard::Silence => {}
            }
            tokio::time::sleep(self.dice.millis((0, 200))).await;
        }
        Ok(None)
    }

    /// The same acquire twice at once: the later answer counts, if there is one.
    async fn twice(&mut self, request: &Request, breaks: Option<Duration>) -> Heard<Granted> {
        let offset = self.dice.millis((0, 30));
        let mut other = Self {
            world: self.world.clone(),
            number: self.number,
            dice: self.dice.fork(),
            requests: u32::MAX,
        };
        let again = request.clone();
        let second = tokio::spawn(async move {
            tokio::time::sleep(offset).await;
            other.call_acquire(again, None).await
        });
        let first = self.call_acquire(request.clone(), breaks).await;
        match second.await {
            Ok(Heard::Silence) | Err(_) => first,
            Ok(heard) => heard,
        }
    }

    /// The node to call next: any.
    async fn live(&mut self) -> Arc<Live> {
        let place = self.dice.below(self.world.plan.nodes as u64);
        self.world.live(place).await
    }

    async fn call_acquire(&mut self, request: Request, breaks: Option<Duration>) -> Heard<Granted> {
        let live = self.live().await;
        let (lock, unheard) = (self.world.locks[request.lock].clone(), self.habits().unheard);
        let heard = !self.chance(unheard);
        let call = AcquireCall {
            owner: self.owner(),
            principal: "".into(),
            ttl: request.ttl,
            wait: request.wait,
            request_id: Some(request.id.clone()),
            reentrant: request.reentrant,
            metadata: None,
            mode: request.mode,
            delay: request.delay,
        };
        let attachment = (request.wait != Wait::No).then(|| live.attachment());
        let is_election = self.world.plan.elections.is_some();
        let rank = if is_election { rank(request.priority) } else { 0 };
        let (id, ttl, expects) = (request.grant, request.ttl, request.expects);
        let ask = Ask::Acquire { id, ttl, attachment, expects, rank };
        let open = self.world.begin(self.number, request.lock, live.number, ask);
        let acquire = async {
            match is_election {
                true => live.engine.campaign(&lock, call, request.priority).await,
                false => live.engine.acquire(&lock, call).await,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = acquire => answer,
            () = live.death() => return Heard::Silence,
            () = after(breaks) => return Heard::Silence,
        };
        let told = match &answer {
            Ok(granted) => {
                Told::Granted { fencing: granted.fencing.0, count: granted.count, hold: granted.hold }
            }
            Err(error) => error.clone().into(),
        };
        let started = open.end(told, heard);
        if heard { Heard::Answer(answer, started) } else { Heard::Silence }
    }

    /// Takes what it has. False when it turns out to be lost.
    async fn nest(&mut self, held: &mut Held, nested: Request) -> Result<bool, Gone> {
        match self.acquire(&nested).await? {
            Some((granted, started)) if granted.fencing.0 == held.fencing => {
                if granted.count != nested.expects {
                    let (count, expects) = (granted.count, nested.expects);
                    let what = format!("client {} nests and hears {count}, not {expects}", self.number);
                    self.world.absurd(what);
                }
                held.count = nested.expects;
                self.believe_until(held, started, nested.ttl);
                Ok(true)
            }
            Some((granted, started)) => {
                // The lease was over, and this is a new one: it has to be given back as well.
                self.disbelieve(held);
                let belief = Belief {
                    client: self.number,
                    lock: nested.lock,
                    fencing: granted.fencing.0,
                    hold: granted.hold,
                    from: self.world.now(),
                    until: (started + nested.ttl - margin(nested.ttl)).max(self.world.now()),
                };
                held.belief = self.world.believe(belief);
                (held.token, held.fencing, held.count) =
                    (granted.token.reveal(), granted.fencing.0, granted.count);
                (held.request, held.certain) = (nested, true);
                Ok(true)
            }
            None => {
                held.certain = false;
                Ok(false)
            }
        }
    }

    /// Uses the lock for a while.
    async fn hold(&mut self, held: &mut Held, is_mine: &mut bool) {
        let habits = self.habits();
        if self.chance(habits.sleeps) {
            let over = held.request.ttl + self.dice.millis((0, 400));
            tokio::time::sleep(over).await;
            return;
        }
        if let Some(electing) = self.world.plan.elections
            && self.dice.chance(electing.proclaims)
        {
            self.proclaim(held).await;
        }
        let mut left = self.dice.millis(habits.hold_ms);
        if !self.dice.chance(habits.renews) {
            tokio::time::sleep(left).await;
            return;
        }
        while *is_mine && !left.is_zero() {
            let step = left.min(held.request.ttl / 3);
            tokio::time::sleep(step).await;
            left -= step;
            if !left.is_zero() {
                *is_mine = self.renew(held).await;
            }
        }
    }

    /// Changes the leader's value. Only its own lease's end is a reason to refuse that.
    async fn proclaim(&mut self, held: &Held) {
        let live = self.live().await;
        let election = self.world.locks[held.request.lock].clone();
        let value = format!("{{\"at\":{}}}", self.requests).into_bytes();
        let call = ProclaimCall {
            token: held.token.clone(),
            candidate: self.owner(),
            principal: "".into(),
            value: Some(value.into()),
        };
        let answer = tokio::select! {
            biased;
            answer = live.engine.proclaim(&election, call) => answer,
            () = live.death() => return,
            () = tokio::time::sleep(PATIENCE) => return,
        };
        match answer {
            Ok(epoch) if epoch.0 == held.fencing => {}
            Err(LockError::Failed(_) | LockError::Refused(Refusal::Expired)) => {}
            answer => {
                let what = format!("client {} proclaims and hears {answer:?}", self.number);
                self.world.absurd(what);
            }
        }
    }

    /// Renews, and says whether the lock may still be held.
    async fn renew(&mut self, held: &mut Held) -> bool {
        let live = self.live().await;
        let (lock, unheard) = (self.world.locks[held.request.lock].clone(), self.habits().unheard);
        let heard = !self.chance(unheard);
        let ttl = held.request.ttl;
        let call = RenewCall { token: held.token.clone(), owner: self.owner(), principal: "".into(), ttl };
        let ask = Ask::Renew { fencing: held.fencing, ttl };
        let open = self.world.begin(self.number, held.request.lock, live.number, ask);
        let answer = tokio::select! {
            biased;
            answer = live.engine.renew(&lock, call) => answer,
            () = live.death() => return true,
            () = tokio::time::sleep(PATIENCE) => return true,
        };
        let told = answer.as_ref().map_or_else(|error| error.clone().into(), |_| Told::Done);
        let started = open.end(told, heard);
        match answer {
            _ if !heard => true,
            Ok(_) => {
                self.believe_until(held, started, ttl);
                true
            }
            Err(LockError::Refused(_)) => {
                self.disbelieve(held);
                false
            }
            Err(LockError::Failed(_)) => true,
        }
    }

    /// Releases once, asking until there is an answer. False when there was nothing left to release.
    async fn give_back(&mut self, held: &mut Held) -> bool {
        let habits = self.habits();
        held.count -= 1;
        if held.count == 0 {
            // From here on the client doesn't rely on it.
            self.disbelieve(held);
        }
        self.requests += 1;
        let request_id = held.request.reentrant.then(|| format!("{}-{}", self.number, self.requests));
        let mut successor = match self.world.plan.elections {
            Some(electing) if self.dice.chance(electing.names) => {
                Some(self.dice.below(self.world.plan.clients as u64) as usize)
            }
            _ => None,
        };
        for _ in 0..ATTEMPTS_MAX {
            let live = self.live().await;
            let lock = self.world.locks[held.request.lock].clone();
            let heard = !self.chance(habits.unheard);
            let breaks = self.chance(habits.breaks).then(|| self.dice.millis(habits.breaks_ms));
            let call = ReleaseCall {
                token: held.token.clone(),
                owner: self.owner(),
                principal: "".into(),
                request_id: request_id.clone(),
            };
            let id = held.request.grant;
            let (fencing, left, certain) = (held.fencing, held.count, held.certain);
            let ask = Ask::Release { id, fencing, left, certain, successor };
            let named = successor.map(|client| format!("client-{client}").into());
            let open = self.world.begin(self.number, held.request.lock, live.number, ask);
            let answer = tokio::select! {
                biased;
                answer = live.engine.resign(&lock, call, named) => Some(answer),
                () = live.death() => None,
                () = after(breaks) => None,
                () = tokio::time::sleep(PATIENCE) => None,
            };
            if let Some(answer) = answer {
                let told = answer.as_ref().map_or_else(|error| error.clone().into(), |()| Told::Done);
                open.end(told, heard);
                match answer {
                    Ok(()) if heard => return true,
                    // Nothing has changed: whoever is next may have it.
                    Err(LockError::Refused(Refusal::NoSuchSuccessor)) if heard => successor = None,
                    Err(LockError::Refused(_)) if heard => {
                        self.disbelieve(held);
                        return false;
                    }
                    _ => {}
                }
            }
            tokio::time::sleep(self.dice.millis((0, 200))).await;
        }
        self.disbelieve(held);
        false
    }

    /// A repetition of a request that is over: only these answers are right.
    async fn repeat(&mut self, request: Request, right: &[Refusal]) {
        let request = Request { wait: Wait::No, ..request };
        let Heard::Answer(answer, _) = self.call_acquire(request, Some(PATIENCE)).await else { return };
        match answer {
            Err(LockError::Refused(refusal)) if right.contains(&refusal) => {}
            Err(LockError::Failed(_)) => {}
            answer => {
                let answer = answer.map(|granted| granted.fencing);
                let what = format!("client {} repeats a request and hears {answer:?}", self.number);
                self.world.absurd(what);
            }
        }
    }

    fn believe_until(&self, held: &mut Held, started: Duration, ttl: Duration) {
        let now = self.world.now();
        let until = started + ttl - margin(ttl);
        let mut records = self.world.records();
        if until <= now {
            return;
        }
        let belief = &mut records.beliefs[held.belief];
        if now <= belief.until {
            belief.until = belief.until.max(until);
            return;
        }
        // It had given up, and may believe again from now on.
        let belief = Belief { from: now, until, ..*belief };
        drop(records);
        held.belief = self.world.believe(belief);
    }

    fn disbelieve(&self, held: &Held) {
        let now = self.world.now();
        let mut records = self.world.records();
        let belief = &mut records.beliefs[held.belief];
        belief.until = belief.until.min(now);
    }
}

/// An administrator, who takes locks away until the world calms down.
pub async fn force(world: Arc<World>, mut dice: Dice) {
    let Some(every_ms) = world.plan.forced_ms else { return };
    while !world.is_calm() {
        tokio::time::sleep(dice.millis(every_ms)).await;
        let lock = dice.below(world.plan.locks as u64) as usize;
        let live = world.live(dice.below(world.plan.nodes as u64)).await;
        let (by, reason) = ("admin".into(), "simulated".into());
        let call = ForceCall { fencing: None, delay: Duration::ZERO, by, reason };
        let open = world.begin(usize::MAX, lock, live.number, Ask::Force);
        let answer = tokio::select! {
            biased;
            answer = live.engine.force_release(&world.locks[lock], call.clone()) => answer,
            () = live.death() => continue,
            () = tokio::time::sleep(PATIENCE) => continue,
        };
        let told = answer.map_or_else(Told::from, |forced| Told::Forced {
            fencing: forced.iter().map(|forced| forced.fencing.0).collect(),
        });
        open.end(told, true);
    }
}

/// What a client allows for between its clock and the store's.
fn margin(ttl: Duration) -> Duration {
    (ttl / 500).max(Duration::from_millis(5))
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
