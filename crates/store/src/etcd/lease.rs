//! etcd's leases: whole seconds, granted after the calls that need them arrived.
//!
//! While one is being granted, those who need one of the same length wait, and are given the next one together: they
//! end together, each no earlier than it asked for. Who comes alone has one of its own, which ends with its record.
//! One of several is counted, and given back when no record is under it any more; what isn't counted runs out.

use super::client::{CALL_MAX, Client, Failure, LEASE_BEGIN, LEASE_REVOKE};
use super::tally::Tally;
use super::wire::{LeaseBeginRequest, LeaseBeginResponse, LeaseRevokeRequest, LeaseRevokeResponse};
use baton_core::WallTime;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How many lengths of shared leases are remembered.
const SHARED_MAX: usize = 64;
/// How many records share a lease: etcd removes them in one step.
const SHARERS_MAX: u32 = 1000;
/// How many leases wait to be revoked; more are left to run out.
const REVOKING_MAX: usize = 1024;

/// A lease for one or more records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lease {
    pub id: i64,
    pub seconds: u32,
    /// When it ends, at the earliest, by this node's wall clock: for display.
    pub ends_ms: u64,
    /// Perhaps other records are under it.
    pub shared: bool,
    /// etcd's revision when it was granted.
    pub since: u64,
}

struct Shared {
    lease: Lease,
    ends: Instant,
    sharers: u32,
}

/// Whether who is given a lease may pass it on to later ones: then nobody counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Use {
    Counted,
    PassedOn,
}

type Taker = oneshot::Sender<Result<Lease, Failure>>;

/// Grants, shares and revokes.
pub(super) struct Leases {
    client: Arc<Client>,
    shared: Mutex<HashMap<u32, Shared>>,
    /// For each length of which one is being granted: who waits for the next one. Commits under way bound it.
    beginning: Mutex<HashMap<(u32, Use), Vec<Taker>>>,
    tally: Mutex<Tally>,
    revoking: mpsc::Sender<i64>,
}

impl Leases {
    pub fn new(client: Arc<Client>) -> Self {
        let (revoking, mut revoked) = mpsc::channel(REVOKING_MAX);
        tokio::spawn({
            let client = client.clone();
            // Ends with the store.
            async move {
                while let Some(id) = revoked.recv().await {
                    let (asked, until) = (LeaseRevokeRequest { id }, Instant::now() + CALL_MAX);
                    let revoked: Result<LeaseRevokeResponse, _> =
                        client.again(LEASE_REVOKE, &asked, until).await;
                    if let Err(error) = revoked {
                        tracing::debug!(?error, "a lease that isn't needed is left to run out");
                    }
                }
            }
        });
        let (shared, beginning, tally) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { client, shared, beginning, tally, revoking }
    }

    /// A lease of `seconds` from a moment after this call began, for one record.
    pub async fn begin(self: &Arc<Self>, seconds: u32, until: Instant) -> Result<Lease, Failure> {
        self.taken(seconds, Use::Counted, until).await
    }

    /// The same lease is for one record more.
    pub fn begin_with(&self, lease: &mut Lease) {
        lease.shared = true;
        self.tally.lock().expect("no panic while held").add(lease.id);
    }

    async fn taken(self: &Arc<Self>, seconds: u32, of: Use, until: Instant) -> Result<Lease, Failure> {
        let (taker, taken) = oneshot::channel();
        let alone = {
            let mut beginning = self.beginning.lock().expect("no panic while held");
            if let Some(waiting) = beginning.get_mut(&(seconds, of)) {
                waiting.push(taker);
                None
            } else {
                beginning.insert((seconds, of), Vec::new());
                Some(taker)
            }
        };
        if let Some(taker) = alone {
            tokio::spawn(self.clone().serve(seconds, of, vec![taker]));
        }
        match tokio::time::timeout_at(until, taken).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(_)) => Err(Failure::Unsent("the store was closed".into())),
            Err(_) => Err(Failure::Unsent("etcd didn't grant a lease in time".into())),
        }
    }

    /// One lease after the other, each for all who came before it was asked for.
    async fn serve(self: Arc<Self>, seconds: u32, of: Use, mut takers: Vec<Taker>) {
        loop {
            let began = Instant::now();
            let granted = self.granted(seconds).await;
            let granted = granted.map(|lease| Lease { shared: takers.len() > 1, ..lease });
            if let Ok(lease) = &granted
                && lease.shared
                && of == Use::Counted
            {
                let ends = began + Duration::from_secs(lease.seconds.into());
                self.tally.lock().expect("no panic while held").begin(lease.id, takers.len(), ends);
            }
            for taker in takers {
                if taker.send(granted.clone()).is_err()
                    && let Ok(lease) = &granted
                {
                    // Its caller has gone, and uses it for nothing.
                    self.end(lease.id, !lease.shared);
                }
            }
            let mut beginning = self.beginning.lock().expect("no panic while held");
            takers = beginning.get_mut(&(seconds, of)).map(std::mem::take).unwrap_or_default();
            takers.retain(|taker| !taker.is_closed());
            if takers.is_empty() {
                beginning.remove(&(seconds, of));
                return;
            }
        }
    }

    async fn granted(&self, seconds: u32) -> Result<Lease, Failure> {
        let began = now();
        let asked = LeaseBeginRequest { ttl: seconds.into() };
        let begun: LeaseBeginResponse =
            self.client.again(LEASE_BEGIN, &asked, Instant::now() + CALL_MAX).await?;
        let seconds = u32::try_from(begun.ttl).unwrap_or(u32::MAX);
        let ends_ms = began.after(Duration::from_secs(seconds.into())).0;
        let since = begun.header.map_or(0, |header| header.revision.unsigned_abs());
        Ok(Lease { id: begun.id, seconds, ends_ms, shared: false, since })
    }

    /// A lease that lasts for `seconds` and somewhat longer, perhaps with others under it.
    pub async fn share(self: &Arc<Self>, seconds: u32, until: Instant) -> Result<Lease, Failure> {
        if let Some(lease) = self.joined(seconds) {
            return Ok(lease);
        }
        let began = Instant::now();
        let longer = seconds.saturating_add((seconds / 4).max(10));
        let lease = Lease { shared: true, ..self.taken(longer, Use::PassedOn, until).await? };
        let ends = began + Duration::from_secs(lease.seconds.into());
        let mut shared = self.shared.lock().expect("no panic while held");
        if shared.len() >= SHARED_MAX {
            shared.retain(|_, shared| shared.ends > began);
        }
        let has_room = shared.len() < SHARED_MAX;
        match shared.get_mut(&seconds) {
            Some(same) if same.lease.id == lease.id => same.sharers += 1,
            None if !has_room => {}
            _ => drop(shared.insert(seconds, Shared { lease, ends, sharers: 1 })),
        }
        Ok(lease)
    }

    /// The shared lease for that length, if it still lasts long enough by both clocks: one may have stood still.
    fn joined(&self, seconds: u32) -> Option<Lease> {
        let mut shared = self.shared.lock().expect("no panic while held");
        let found = shared.get_mut(&seconds)?;
        let needed = Duration::from_secs(seconds.into()) + CALL_MAX;
        let lasts = found.ends > Instant::now() + needed && found.lease.ends_ms > now().after(needed).0;
        if !lasts || found.sharers >= SHARERS_MAX {
            shared.remove(&seconds);
            return None;
        }
        found.sharers += 1;
        Some(found.lease)
    }

    /// etcd doesn't know a lease any more: none of the shared ones is trusted.
    pub fn forget(&self) {
        self.shared.lock().expect("no panic while held").clear();
    }

    /// A record isn't under a lease any more, or was never put there and won't be. The lease is given back if it was the
    /// only one that could; if that can't be done it runs out by itself.
    pub fn end(&self, id: i64, own: bool) {
        if own || self.tally.lock().expect("no panic while held").end(id) {
            self.revoking.try_send(id).ok();
        }
    }
}

/// A length in whole seconds, never shorter.
pub(super) fn seconds(ttl: Duration) -> u32 {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(u32::MAX).max(1)
}

/// This node's wall clock: etcd's answers carry none.
pub(super) fn now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
