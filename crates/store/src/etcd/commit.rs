//! The commit: leases where they are needed, then one transaction; another one if a guess was wrong. Who else needs a
//! lease or has a transaction at the same time shares them: see `lease` and `group`.

use super::client::{CALL_MAX, Failure, LEASE_LEFT, TXN};
use super::lease::{Lease, now, seconds};
use super::plan::{Known, Plan, holds, looked_at, may_have_happened, plan, range, shown, touched};
use super::value::Stored;
use super::wire::{
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, Response, ResponseOp, TxnRequest, TxnResponse,
};
use super::{COMMITS_MAX, Etcd};
use crate::contract::{Reason, StoreError};
use crate::valid::validate;
use baton_core::{Commit, Key, Outcome, Revision, Ttl, Write};
use std::collections::HashMap;
use tokio::time::Instant;

impl Etcd {
    pub(super) async fn commit_once(&self, commit: Commit) -> Result<Outcome, StoreError> {
        validate(&commit)?;
        self.commit_anywhere(commit).await
    }

    /// etcd's transactions know no groups.
    pub(super) async fn commit_anywhere(&self, commit: Commit) -> Result<Outcome, StoreError> {
        let Ok(_under_way) = self.commits.try_acquire() else {
            let detail = format!("{COMMITS_MAX} commits are under way already");
            return Err(StoreError::NotApplied { reason: Reason::Busy, detail });
        };
        let until = Instant::now() + CALL_MAX;
        let touches = commit.writes.iter().any(|write| matches!(write, Write::Touch { .. }));
        // A Touch writes what is there: it must be read. The leases are granted meanwhile.
        let (known, exact) = tokio::join!(
            async { if touches { self.known(&commit, until).await } else { Ok(Known::new()) } },
            self.exact(&commit, until)
        );
        let (mut known, mut exact) = (known.map_err(Failure::of_read)?, exact.map_err(Failure::of_read)?);
        if touches && !holds(&commit, &known) {
            self.unused(&exact, &HashMap::new());
            return Ok(conflict(&commit, &known));
        }
        let mut marked = true;
        loop {
            if is_newer(&commit, &known, &exact) {
                self.unused(&exact, &HashMap::new());
                exact = self.exact(&commit, until).await.map_err(Failure::of_read)?;
            }
            let leases = self.leases(&commit, &known, &exact, until).await.map_err(Failure::of_read)?;
            let mut planned = plan(&self.keys, &commit, &known, &leases);
            let (txn, puts) = (std::mem::take(&mut planned.txn), planned.puts);
            let answer = if marked {
                self.group.decide(txn, puts, touched(&commit), until).await
            } else {
                self.client.once(TXN, &txn, until).await
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(Failure::LeaseGone) if Instant::now() < until => {
                    self.leases.forget();
                    exact = self.exact(&commit, until).await.map_err(Failure::of_read)?;
                    if touches {
                        known = self.known(&commit, until).await.map_err(Failure::of_read)?;
                        if !holds(&commit, &known) {
                            self.unused(&exact, &HashMap::new());
                            return Ok(conflict(&commit, &known));
                        }
                    }
                    continue;
                }
                // Deletes make room, if only they put no mark.
                Err(Failure::Refused(Reason::Full, _)) if marked && only_deletes(&commit) => {
                    marked = false;
                    continue;
                }
                // etcd says so also of the very transaction that crossed its quota, and that it has carried out.
                Err(Failure::Refused(Reason::Full, detail)) => {
                    let now = self.known(&commit, until).await;
                    if now.is_ok_and(|now| !may_have_happened(&commit, &known, &now, &leases)) {
                        self.unused(&exact, &HashMap::new());
                        return Err(StoreError::NotApplied { reason: Reason::Full, detail });
                    }
                    return Err(StoreError::Unknown { detail });
                }
                Err(failure) => return Err(failure.of_commit()),
            };
            if answer.succeeded {
                self.unused(&exact, &leases);
                return self.committed(&commit, &known, planned, answer);
            }
            known = self.found(looked_at(&commit), answer.responses)?;
            if !holds(&commit, &known) {
                self.unused(&exact, &HashMap::new());
                return Ok(conflict(&commit, &known));
            }
            if Instant::now() >= until {
                let detail = "others change the same records all the time".into();
                return Err(StoreError::NotApplied { reason: Reason::Unavailable, detail });
            }
        }
    }

    async fn known(&self, commit: &Commit, until: Instant) -> Result<Known, Failure> {
        let keys = looked_at(commit);
        let success = keys.iter().map(|key| range(&self.keys, key, 0)).collect();
        let asked = TxnRequest { success, ..TxnRequest::default() };
        let answer: TxnResponse = self.client.again(TXN, &asked, until).await?;
        let unreadable = |error: StoreError| Failure::Refused(Reason::Unavailable, error.to_string());
        self.found(keys, answer.responses).map_err(unreadable)
    }

    /// What the ranges of a transaction found, one for each key.
    pub(super) fn found(&self, keys: Vec<Key>, responses: Vec<ResponseOp>) -> Result<Known, StoreError> {
        let found = keys.into_iter().zip(responses).map(|(key, response)| {
            let Some(Response::Range(range)) = response.response else { return Ok((key, None)) };
            let stored = range.kvs.first().map(|kv| self.stored(kv)).transpose()?;
            Ok((key, stored))
        });
        found.collect()
    }

    /// One lease for each length that must be exact.
    async fn exact(&self, commit: &Commit, until: Instant) -> Result<HashMap<u32, Lease>, Failure> {
        let mut exact = HashMap::new();
        for write in &commit.writes {
            let length = match write {
                Write::Put { ttl: Ttl::Exactly(ttl), .. } | Write::Touch { ttl, .. } => seconds(*ttl),
                Write::Put { .. } | Write::Delete { .. } => continue,
            };
            if let Some(lease) = exact.get_mut(&length) {
                self.leases.begin_with(lease);
            } else {
                exact.insert(length, self.leases.begin(length, until).await?);
            }
        }
        Ok(exact)
    }

    /// The lease for each write that needs one. A Touch that would shorten gets none: it keeps what it has.
    async fn leases(
        &self,
        commit: &Commit,
        known: &Known,
        exact: &HashMap<u32, Lease>,
        until: Instant,
    ) -> Result<HashMap<Key, Lease>, Failure> {
        let mut leases = HashMap::new();
        for write in &commit.writes {
            let lease = match write {
                Write::Put { ttl: Ttl::Exactly(ttl), .. } => exact[&seconds(*ttl)],
                Write::Put { ttl: Ttl::AtLeast(ttl), .. } => self.leases.share(seconds(*ttl), until).await?,
                Write::Touch { key, ttl } => {
                    let present = known.get(key).and_then(Option::as_ref);
                    let lease = exact[&seconds(*ttl)];
                    match present {
                        Some(stored) if stored.lease != 0 && self.extends(lease, stored, until).await? => {
                            lease
                        }
                        _ => continue,
                    }
                }
                Write::Put { ttl: Ttl::Forever, .. } | Write::Delete { .. } => continue,
            };
            leases.insert(write.key().clone(), lease);
        }
        Ok(leases)
    }

    /// Whether `lease`, which is the newer one, ends after the one that the record is under. What is left of a lease is
    /// never more than what was granted: only a shorter one has to ask.
    async fn extends(&self, lease: Lease, stored: &Stored, until: Instant) -> Result<bool, Failure> {
        if lease.seconds >= stored.meta.seconds {
            return Ok(true);
        }
        let asked = LeaseTimeToLiveRequest { id: stored.lease };
        let left: LeaseTimeToLiveResponse = self.client.again(LEASE_LEFT, &asked, until).await?;
        Ok(i64::from(lease.seconds) > left.ttl)
    }

    /// Gives back what was granted and isn't used.
    fn unused(&self, exact: &HashMap<u32, Lease>, used: &HashMap<Key, Lease>) {
        for lease in exact.values().filter(|lease| !used.values().any(|used| used.id == lease.id)) {
            self.leases.end(lease.id, !lease.shared);
        }
    }

    fn committed(
        &self,
        commit: &Commit,
        known: &Known,
        mut planned: Plan,
        answer: TxnResponse,
    ) -> Result<Outcome, StoreError> {
        let now = now();
        let revision = answer.header.map_or(0, |header| header.revision.unsigned_abs());
        let mut witnessed = Vec::new();
        for (write, response) in commit.writes.iter().zip(answer.responses) {
            let before = match (write, response.response) {
                (Write::Delete { .. }, Some(Response::Delete(deleted))) => {
                    // It is done: what can't be read is as good as what isn't there.
                    let stored = deleted.prev_kvs.first().and_then(|kv| self.stored(kv).ok());
                    witnessed.push(stored.as_ref().map(|stored| stored.record(now)));
                    stored
                }
                (Write::Touch { key, .. }, _) => {
                    let touched = planned.touched.remove(key);
                    let before = known.get(key).cloned().flatten();
                    let moved = touched.as_ref().map(|stored| stored.lease)
                        != before.as_ref().map(|stored| stored.lease);
                    witnessed.push(touched.map(|stored| stored.record(now)));
                    before.filter(|_| moved)
                }
                _ => None,
            };
            if let Some(before) = before.filter(|before| before.lease != 0) {
                self.leases.end(before.lease, before.meta.own);
            }
        }
        Ok(Outcome::Committed { revision: Revision(revision), now, witnessed })
    }
}

/// Whether something that is touched was changed after our leases were granted: its own may be newer than ours, and end
/// later.
fn is_newer(commit: &Commit, known: &Known, exact: &HashMap<u32, Lease>) -> bool {
    commit.writes.iter().any(|write| {
        let Write::Touch { key, ttl } = write else { return false };
        let (stored, lease) = (known.get(key).and_then(Option::as_ref), exact.get(&seconds(*ttl)));
        stored.zip(lease).is_some_and(|(stored, lease)| stored.modified > lease.since)
    })
}

fn only_deletes(commit: &Commit) -> bool {
    commit.writes.iter().all(|write| matches!(write, Write::Delete { .. }))
}

fn conflict(commit: &Commit, known: &Known) -> Outcome {
    let now = now();
    let record = |key: &Key| known.get(key).and_then(Option::as_ref).map(|stored| stored.record(now));
    Outcome::Conflict { found: shown(commit).map(|key| (key.clone(), record(key))).collect(), now }
}
