//! What a node knows of definitions.
//!
//! A definition is read when it is first needed, and followed by the store's hints from then on. Hints get lost, so what was
//! last read some seconds ago is read again beside the next check that needs it. And a node that charges a meter by
//! an older definition than the meter follows is told so by the store: it never counts by an old one against a new one.

use super::calls::LimitError;
use crate::engine::Node;
use crate::failure::Failure;
use baton_core::limit::{DEFINITION, Defined, Definition, definition_key};
use baton_core::{Group, Name, Record, WallTime};
use baton_store::Range;
use baton_store::watch::{Change, Watch};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// After this long a definition is read again, in case a hint got lost.
const FRESH: Duration = Duration::from_secs(5);
/// Records read from the store at once.
const PAGE: usize = 256;
/// Definitions known at once. Beyond it all are forgotten, and read again when they are needed.
const KNOWN_MAX: usize = 10_000;

/// The definitions a node knows.
#[derive(Default)]
pub(crate) struct Definitions(Mutex<HashMap<Name, Known>>);

struct Known {
    defined: Arc<Defined>,
    read_at: Instant,
    is_doubted: bool,
    /// The windows of its calendar, as of the last look.
    edges: Option<[u64; 3]>,
}

/// A definition, and its calendar's windows.
#[derive(Clone)]
pub(super) struct Current {
    pub defined: Arc<Defined>,
    pub edges: Option<[u64; 3]>,
}

impl Definitions {
    fn known(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
        self.0.lock().expect("no panic while held")
    }

    /// Whether one is known. That isn't a use of it: it gets no fresher by this, nor is it taken for read again.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.known().contains_key(name)
    }

    /// What is known, and whether it should be read again.
    fn get(&self, name: &Name, now: WallTime) -> Option<(Current, bool)> {
        let mut known = self.known();
        let known = known.get_mut(name)?;
        let is_stale = known.is_doubted || known.read_at.elapsed() > FRESH;
        if is_stale {
            // One reader is enough: others see it as fresh meanwhile.
            known.read_at = Instant::now();
            known.is_doubted = false;
        }
        if let (Some(calendar), Some(edges)) = (&known.defined.definition.calendar, known.edges)
            && !(edges[0]..edges[1]).contains(&now.0)
        {
            known.edges = calendar.edges(now).or(known.edges);
        }
        Some((Current { defined: known.defined.clone(), edges: known.edges }, is_stale))
    }

    /// Learns one, unless a newer one is known. Whether it takes the place of an older one.
    fn learn(&self, name: &Name, defined: Defined, now: WallTime) -> (Current, bool) {
        let mut all = self.known();
        if all.len() >= KNOWN_MAX && !all.contains_key(name) {
            all.clear();
        }
        let edges = defined.definition.calendar.as_ref().and_then(|calendar| calendar.edges(now));
        let read_at = Instant::now();
        let known = all.entry(name.clone()).or_insert_with(|| Known {
            defined: Arc::new(defined.clone()),
            read_at,
            is_doubted: false,
            edges,
        });
        (known.read_at, known.is_doubted) = (read_at, false);
        let is_newer = defined.version > known.defined.version;
        if is_newer {
            *known = Known { defined: Arc::new(defined), read_at, is_doubted: false, edges };
        }
        (Current { defined: known.defined.clone(), edges: known.edges }, is_newer)
    }

    fn forget(&self, name: &Name) {
        self.known().remove(name);
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
        match self.definitions.get(name, self.now()) {
            Some((current, false)) => Ok(current),
            Some((current, true)) => {
                let (node, name) = (self.clone(), name.clone());
                tokio::spawn(async move {
                    // A failure leaves what was known; the next check that finds it stale tries again.
                    drop(node.read_definition(&name, node.deadline()).await);
                });
                Ok(current)
            }
            None => self.read_definition(name, until).await,
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
        if is_changed {
            let (node, name, version) = (self.clone(), name.clone(), current.defined.version);
            tokio::spawn(async move { node.give_back_of(&name, version).await });
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
        self.definitions.get(name, self.now()).map(|(current, _)| current)
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
