//! etcd's leases: whole seconds, granted after the call arrived; what may end later shares one.

use super::client::{CALL_MAX, Client, Failure, LEASE_BEGIN, LEASE_REVOKE};
use super::wire::{LeaseBeginRequest, LeaseBeginResponse, LeaseRevokeRequest, LeaseRevokeResponse};
use baton_core::WallTime;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
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
    pub shared: bool,
}

struct Shared {
    lease: Lease,
    ends: Instant,
    sharers: u32,
}

/// Grants, shares and revokes.
pub(super) struct Leases {
    client: Arc<Client>,
    shared: Mutex<HashMap<u32, Shared>>,
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
        Self { client, shared: Mutex::default(), revoking }
    }

    /// A lease of its own, of `seconds` from a moment after this call began.
    pub async fn begin(&self, seconds: u32, until: Instant) -> Result<Lease, Failure> {
        let began = now();
        let asked = LeaseBeginRequest { ttl: seconds.into() };
        let begun: LeaseBeginResponse = self.client.again(LEASE_BEGIN, &asked, until).await?;
        let seconds = u32::try_from(begun.ttl).unwrap_or(u32::MAX);
        let ends_ms = began.after(Duration::from_secs(seconds.into())).0;
        Ok(Lease { id: begun.id, seconds, ends_ms, shared: false })
    }

    /// A lease that lasts for `seconds` and somewhat longer, perhaps with others under it.
    pub async fn share(&self, seconds: u32, until: Instant) -> Result<Lease, Failure> {
        if let Some(lease) = self.joined(seconds) {
            return Ok(lease);
        }
        let began = Instant::now();
        let longer = seconds.saturating_add((seconds / 4).max(10));
        let lease = Lease { shared: true, ..self.begin(longer, until).await? };
        let ends = began + Duration::from_secs(lease.seconds.into());
        let mut shared = self.shared.lock().expect("no panic while held");
        if shared.len() >= SHARED_MAX {
            shared.retain(|_, shared| shared.ends > began);
        }
        if shared.len() < SHARED_MAX || shared.contains_key(&seconds) {
            shared.insert(seconds, Shared { lease, ends, sharers: 1 });
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

    /// Gives back a lease that no record is under. If that can't be done it runs out by itself.
    pub fn revoke(&self, id: i64) {
        self.revoking.try_send(id).ok();
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
