//! Who stands by, in the order of their turns, page by page.

use crate::engine::Engine;
use crate::lock::inspect::unreadable;
use crate::lock::{LockError, Refusal};
use baton_core::WallTime;
use baton_core::lock::election::priority;
use baton_core::lock::name::Kind;
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{GrantId, LockName, NodeId};
use baton_store::Range;
use std::sync::Arc;
use std::time::Duration;

/// Records read from the store at once.
const PAGE: usize = 256;

/// Someone who waits to lead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Who.
    pub id: Arc<str>,
    /// As it campaigned; none for a named successor, who comes before all others.
    pub priority: Option<i16>,
    /// Since when.
    pub since: WallTime,
    /// For how long.
    pub waited: Duration,
    /// Whether its call is still there.
    pub connected: bool,
}

/// A page of candidates, next first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Candidates {
    /// Who waits.
    pub candidates: Vec<Candidate>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

impl Engine {
    /// Who waits to lead, next first. The order is the store's own, so a page costs as much as it shows.
    pub async fn candidates(
        &self,
        election: &LockName,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Candidates, LockError> {
        let mut after = match cursor {
            None => None,
            Some(cursor) => {
                let place = u64::from_str_radix(cursor, 16);
                let place = place.map_err(|_| LockError::Refused(Refusal::BadCursor))?;
                Some(election.order(place).name)
            }
        };
        let prefix = election.prefix(Kind::Order);
        let mut found = Candidates::default();
        loop {
            let wanted = PAGE.min(limit - found.candidates.len());
            let range = Range { group: election.group(), prefix: prefix.clone(), after };
            let page = self.in_time(self.node.store.scan(range, wanted)).await?;
            let ids = page.records.iter().filter_map(|order| GrantId::from_suffix(&order.value));
            let reading = self.read(ids.map(|id| election.waiting(id)).collect()).await?;
            for record in reading.records.into_iter().flatten() {
                let waiting = Waiting::decode(&record.value).map_err(unreadable)?;
                found.candidates.push(self.candidate(waiting, reading.now));
            }
            let last = page.records.last().map(|record| record.key.name.clone());
            if !page.more || found.candidates.len() >= limit {
                if page.more {
                    let place = last.and_then(|name| name[prefix.len()..].try_into().ok());
                    found.next_cursor = place.map(|place| format!("{:x}", u64::from_be_bytes(place)));
                }
                return Ok(found);
            }
            after = last;
        }
    }

    fn candidate(&self, waiting: Waiting, now: WallTime) -> Candidate {
        let is_here = waiting.node == self.node.id;
        Candidate {
            priority: priority(waiting.place),
            since: waiting.since,
            waited: Duration::from_millis(now.0.saturating_sub(waiting.since.0)),
            connected: is_here || (self.node.is_shared && waiting.node != NodeId::NONE),
            id: waiting.terms.owner,
        }
    }
}
