//! What a node knows not to be limited, for callers that name limits which may not exist: a proxy asks about whatever it can tell apart,
//! and only some of that has a limit.
//!
//! Definitions are looked at first, and those are followed by hints. So one that is put is found at once; what is remembered here only
//! saves asking the store again and again, and answers while it can't be asked.

use super::calls::LimitError;
use crate::engine::Engine;
use baton_core::Name;
use baton_core::limit::Defined;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// After this long the store is asked again, in case a hint got lost.
const FRESH: Duration = Duration::from_secs(5);
/// Names remembered at once. Beyond it all are forgotten, and asked for again.
const NAMES_MAX: usize = 10_000;

/// Names without a definition, and when the store last said so.
#[derive(Default)]
pub(crate) struct Absent(Mutex<HashMap<Name, Instant>>);

impl Absent {
    fn names(&self) -> MutexGuard<'_, HashMap<Name, Instant>> {
        self.0.lock().expect("no panic while held")
    }

    fn since(&self, name: &Name) -> Option<Duration> {
        self.names().get(name).map(Instant::elapsed)
    }

    fn note(&self, name: &Name) {
        let mut names = self.names();
        if names.len() >= NAMES_MAX && !names.contains_key(name) {
            names.clear();
        }
        names.insert(name.clone(), Instant::now());
    }

    /// Hints were lost: any of them may have a definition by now.
    pub fn forget_all(&self) {
        self.names().clear();
    }
}

impl Engine {
    /// What is known of a limit; nothing if there is none.
    pub async fn known_limit(&self, name: &Name) -> Result<Option<Arc<Defined>>, LimitError> {
        if !self.has_limit(name).await? {
            return Ok(None);
        }
        match self.node.definition(name, self.node.deadline()).await {
            Ok(current) => Ok(Some(current.defined)),
            Err(LimitError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a limit of this name. Of one that wasn't there when the store was last asked, it is no, too, while the store
    /// can't be asked.
    pub async fn has_limit(&self, name: &Name) -> Result<bool, LimitError> {
        let node = &self.node;
        if node.definitions.has(name) {
            return Ok(true);
        }
        let since = node.absent_limits.since(name);
        if since.is_some_and(|since| since < FRESH) {
            return Ok(false);
        }
        match node.read_definition(name, node.deadline()).await {
            Ok(_) => Ok(true),
            Err(LimitError::NotFound { .. }) => {
                node.absent_limits.note(name);
                Ok(false)
            }
            Err(LimitError::Failed(_)) if since.is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
