//! What a node knows of definitions.
//!
//! A definition is read when it is first needed, and followed by the store's hints from then on. Hints get lost, so what was
//! last read some seconds ago is read again beside the next check that needs it. And a node that charges a meter by
//! an older definition than the meter follows is told so by the store: it never counts by an old one against a new one.
//!
//! What is known is written to the node's state directory, for a start without the store. What comes from there, or from a file of
//! limits that the store doesn't have yet, is *assumed*: good for a failure policy, and read before anything is charged by it.

use super::calls::LimitError;
use super::gossip::is_spread;
use crate::engine::{Engine, Node};
use crate::failure::Failure;
use crate::state::{Copied, State};
use baton_core::limit::{DEFINITION, Defined, Definition, Identity, Mechanism, definition_key};
use baton_core::{Group, Name, Record, Revision, WallTime};
use baton_store::Range;
use baton_store::watch::{Change, Watch};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// After this long a definition is read again, in case a hint got lost.
const FRESH: Duration = Duration::from_secs(5);
/// Records read from the store at once.
const PAGE: usize = 256;
/// Definitions known at once. Beyond it all are forgotten, and read again when they are needed.
const KNOWN_MAX: usize = 10_000;

/// Changes that come together are written together.
const COPY_PAUSE: Duration = Duration::from_millis(500);

/// The definitions a node knows.
#[derive(Default)]
pub(crate) struct Definitions {
    known: Mutex<HashMap<Name, Known>>,
    /// What is known isn't what was written down.
    changed: Notify,
    /// Whose they are: of a copy until the store was met, then of the store.
    cluster: Mutex<Option<[u8; 16]>>,
}

struct Known {
    defined: Arc<Defined>,
    /// As those see it who aren't known, if that is different.
    anonymous: Option<Arc<Defined>>,
    /// The store hasn't said so.
    is_assumed: bool,
    read_at: Instant,
    is_doubted: bool,
    /// The windows of its calendar, as of the last look.
    edges: Option<[u64; 3]>,
}

/// A definition, and its calendar's windows.
#[derive(Clone)]
pub(super) struct Current {
    pub defined: Arc<Defined>,
    anonymous: Option<Arc<Defined>>,
    pub edges: Option<[u64; 3]>,
}

impl Current {
    /// As this class sees it.
    pub fn of(mut self, identity: Identity) -> Self {
        if let Some(own) = self.anonymous.take_if(|_| identity == Identity::Anonymous) {
            self.defined = own;
        }
        self
    }
}

impl Known {
    fn new(defined: Defined, is_assumed: bool, edges: Option<[u64; 3]>) -> Self {
        let anonymous = defined.own_of(Identity::Anonymous).map(Arc::new);
        let (defined, read_at) = (Arc::new(defined), Instant::now());
        Self { defined, anonymous, is_assumed, read_at, is_doubted: false, edges }
    }

    fn current(&self) -> Current {
        Current { defined: self.defined.clone(), anonymous: self.anonymous.clone(), edges: self.edges }
    }
}

/// How far what is known can be relied on.
#[derive(PartialEq)]
enum Standing {
    Fresh,
    /// To be read again, beside what it is needed for.
    Stale,
    /// To be read before anything is charged by it.
    Assumed,
}

impl Definitions {
    /// Those that were known when a node was last here.
    pub fn new(state: Option<&State>) -> Self {
        let definitions = Self::default();
        if let Some(copied) = state.and_then(State::copied) {
            *definitions.cluster() = Some(copied.cluster);
            for (name, defined) in &copied.definitions {
                definitions.assume(name, defined.clone());
            }
        }
        definitions
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
        self.known.lock().expect("no panic while held")
    }

    fn cluster(&self) -> MutexGuard<'_, Option<[u8; 16]>> {
        self.cluster.lock().expect("no panic while held")
    }

    /// Whose store it is that was met. What is assumed of another is forgotten.
    pub fn know_cluster(&self, cluster: [u8; 16]) {
        let before = self.cluster().replace(cluster);
        if before.is_some_and(|before| before != cluster) {
            tracing::warn!("the limits in the state directory are of another store: forgotten");
            self.known().retain(|_, known| !known.is_assumed);
        }
    }

    /// Takes a definition to be in force until the store says otherwise, unless one is known.
    fn assume(&self, name: &Name, defined: Defined) {
        let mut all = self.known();
        if all.len() >= KNOWN_MAX && !all.contains_key(name) {
            return;
        }
        all.entry(name.clone()).or_insert_with(|| Known::new(defined, true, None));
    }

    /// Whether one is known. That isn't a use of it: it gets no fresher by this, nor is it taken for read again.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.known().contains_key(name)
    }

    /// What is known, and whether it should be read again.
    fn get(&self, name: &Name, at: Instant, now: impl Fn() -> WallTime) -> Option<(Current, Standing)> {
        let mut known = self.known();
        let known = known.get_mut(name)?;
        let is_stale = known.is_doubted || at.saturating_duration_since(known.read_at) > FRESH;
        if is_stale {
            // One reader is enough: others see it as fresh meanwhile.
            known.read_at = at;
            known.is_doubted = false;
        }
        if let Some(calendar) = &known.defined.definition.calendar {
            let now = now();
            if known.edges.is_none_or(|edges| !(edges[0]..edges[1]).contains(&now.0)) {
                known.edges = calendar.edges(now).or(known.edges);
            }
        }
        // By one that asks no store nothing is charged there.
        let must_be_read = known.is_assumed && !known.defined.definition.is_ever(Mechanism::Gossip);
        let standing = match (must_be_read, is_stale) {
            (true, _) => Standing::Assumed,
            (false, true) => Standing::Stale,
            (false, false) => Standing::Fresh,
        };
        Some((known.current(), standing))
    }

    /// Learns one, unless a newer one is known. Whether it takes the place of an older one.
    fn learn(&self, name: &Name, defined: Defined, now: WallTime) -> (Current, bool) {
        let mut all = self.known();
        if all.len() >= KNOWN_MAX && !all.contains_key(name) {
            all.clear();
        }
        let edges = defined.definition.calendar.as_ref().and_then(|calendar| calendar.edges(now));
        let is_news = all.get(name).is_none_or(|known| {
            // An assumed one may be of a file, or of before the store was restored.
            known.is_assumed || defined.version > known.defined.version
        });
        let mut is_newer = false;
        if is_news {
            let before = all.insert(name.clone(), Known::new(defined, false, edges));
            is_newer = before.is_some();
            let is_same = before.is_some_and(|before| before.defined == all[name].defined);
            if !is_same {
                self.changed.notify_one();
            }
        }
        let known = all.get_mut(name).expect("it was there, or is now");
        (known.read_at, known.is_doubted) = (Instant::now(), false);
        (known.current(), is_newer)
    }

    pub fn forget(&self, name: &Name) {
        if self.known().remove(name).is_some() {
            self.changed.notify_one();
        }
    }

    /// All that the store has said, to be written down.
    fn copied(&self) -> Copied {
        let cluster = self.cluster().unwrap_or_default();
        let known = self.known();
        let said = known.iter().filter(|(_, known)| !known.is_assumed);
        let definitions = said.map(|(name, known)| (name.clone(), Defined::clone(&known.defined)));
        Copied { cluster, definitions: definitions.collect() }
    }

    /// Hints were lost: what is known stays, since its policy may be needed when the store is gone, and is read again when it is next
    /// used.
    fn doubt_all(&self) {
        self.known().values_mut().for_each(|known| known.is_doubted = true);
    }
}

/// A record as a definition.
pub(super) fn defined(record: &Record) -> Result<Defined, Failure> {
    let definition = Definition::decode(&record.value).map_err(|_| {
        tracing::error!("a definition can't be read by this version");
        Failure::Internal
    })?;
    Ok(Defined { definition, version: record.revision })
}

impl Node {
    /// A limit's definition: what is known, or what the store says.
    pub(super) async fn definition(
        self: &Arc<Self>,
        name: &Name,
        until: Instant,
    ) -> Result<Current, LimitError> {
        self.definition_at(name, Instant::now(), until).await
    }

    /// The same, for who knows what time it is.
    pub(super) async fn definition_at(
        self: &Arc<Self>,
        name: &Name,
        at: Instant,
        until: Instant,
    ) -> Result<Current, LimitError> {
        match self.definitions.get(name, at, || self.now()) {
            Some((current, Standing::Fresh)) => Ok(current),
            Some((current, Standing::Stale)) => {
                let (node, name) = (self.clone(), name.clone());
                tokio::spawn(async move {
                    // A failure leaves what was known; the next check that finds it stale tries again.
                    drop(node.read_definition(&name, node.deadline()).await);
                });
                Ok(current)
            }
            Some((_, Standing::Assumed)) | None => self.read_definition(name, until).await,
        }
    }

    /// Learns one. If it is a change, what leases were given by the one before goes back.
    pub(super) fn learn_definition(
        self: &Arc<Self>,
        name: &Name,
        defined: Defined,
        now: WallTime,
    ) -> Current {
        let (current, is_changed) = self.definitions.learn(name, defined, now);
        if is_spread(&current) {
            self.gossip.want();
        }
        if is_changed {
            let (node, name, defined) = (self.clone(), name.clone(), current.defined.clone());
            tokio::spawn(async move { node.give_back_of(&name, &defined).await });
        }
        current
    }

    /// The limit is gone.
    pub(super) fn forget_definition(&self, name: &Name) {
        self.definitions.forget(name);
        self.limit_keys.forget(name);
    }

    /// What is known without asking anybody.
    pub(super) fn known_definition(&self, name: &Name) -> Option<Current> {
        self.definitions.get(name, Instant::now(), || self.now()).map(|(current, _)| current)
    }

    /// What the store says.
    pub(super) async fn read_definition(
        self: &Arc<Self>,
        name: &Name,
        until: Instant,
    ) -> Result<Current, LimitError> {
        let mut reading = self.read(vec![definition_key(name)], until).await?;
        match reading.records.pop().flatten() {
            Some(record) => Ok(self.learn_definition(name, defined(&record)?, reading.now)),
            None => {
                self.forget_definition(name);
                Err(LimitError::NotFound { limit: name.key().into() })
            }
        }
    }
}

impl Engine {
    /// Takes a definition to be in force until the store says otherwise: for policies only, and unless one is known.
    pub fn assume_limit(&self, name: &Name, definition: Definition) {
        let definition = Definition { changed_at: self.node.now(), ..definition };
        self.node.definitions.assume(name, Defined { definition, version: Revision::default() });
    }
}

/// Writes down what is known whenever it changes, until the node drains.
pub(crate) async fn keep_copy(node: Arc<Node>) {
    let Some(state) = node.config.state.clone() else { return };
    let mut is_told = false;
    loop {
        tokio::select! {
            biased;
            () = node.definitions.changed.notified() => {}
            () = node.draining.wait() => return,
        }
        tokio::select! {
            () = node.draining.wait() => {}
            () = tokio::time::sleep(COPY_PAUSE) => {}
        }
        let (copied, state, name) = (node.definitions.copied(), state.clone(), node.id.0);
        let written = tokio::task::spawn_blocking(move || state.copy(name, &copied)).await;
        if let Ok(Err(error)) = &written
            && !std::mem::replace(&mut is_told, true)
        {
            tracing::warn!(
                %error,
                "definitions of limits can't be kept in the state directory: a start without the store will not know them"
            );
        }
        is_told &= !matches!(written, Ok(Ok(())));
    }
}

/// Reads all definitions, so that their policies are known when the store is not there any more. As many as may be known at once.
async fn read_all(node: &Arc<Node>) -> Result<(), Failure> {
    let mut count = 0;
    for group in 0..=u8::MAX {
        let mut after = None;
        loop {
            let range = Range { group: Group(group), prefix: DEFINITION[..].into(), after };
            let page = node.asked(node.store.scan(range, PAGE), node.deadline()).await?;
            for record in &page.records {
                if let Some(name) = Name::of_record(DEFINITION, &record.key.name) {
                    node.learn_definition(&name, defined(record)?, page.now);
                    count += 1;
                }
            }
            after = page.records.last().map(|record| record.key.name.clone());
            if count >= KNOWN_MAX {
                return Ok(());
            }
            if !page.more {
                break;
            }
        }
    }
    Ok(())
}

/// Follows changes until the node drains.
pub(crate) async fn keep(node: Arc<Node>, mut changes: Watch) {
    if read_all(&node).await.is_err() {
        tracing::warn!("not all definitions of limits could be read; each is when it is first needed");
    }
    loop {
        let change = tokio::select! {
            biased;
            () = node.draining.wait() => return,
            change = changes.next() => change,
        };
        match change {
            None => return,
            Some(Change::Lost) => {
                node.definitions.doubt_all();
                node.absent_limits.forget_all();
            }
            Some(Change::Put { key, value, revision }) => {
                let Some(name) = Name::of_record(DEFINITION, &key.name) else { continue };
                match Definition::decode(&value) {
                    Ok(definition) => {
                        let defined = Defined { definition, version: revision };
                        node.learn_definition(&name, defined, node.now());
                    }
                    Err(_) => node.forget_definition(&name),
                }
            }
            Some(Change::Deleted { key, .. } | Change::Expired { key }) => {
                if let Some(name) = Name::of_record(DEFINITION, &key.name) {
                    node.forget_definition(&name);
                }
            }
        }
    }
}
