//! What nodes say to each other. Fields that a newer version adds are passed over by an older one.

use baton_core::Name;
use baton_core::limit::Identity;
use baton_core::lock::NodeId;
use baton_engine::limit::{CheckCall, Denial};
use baton_engine::peers::{self, PeerVerdict};
use serde::{Deserialize, Serialize};

/// Forwarded checks.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checks {
    /// The revision of the ring by which the one that is asked is the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ring: Option<u64>,
    pub(crate) checks: Vec<Check>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Check {
    namespace: String,
    limit: String,
    key: String,
    cost: u64,
    /// Whether it is of somebody who isn't known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    anonymous: bool,
}

impl Checks {
    pub(crate) fn of(ring: u64, calls: &[CheckCall]) -> Self {
        let check = |call: &CheckCall| Check {
            namespace: call.limit.namespace().into(),
            limit: call.limit.key().into(),
            key: call.key.clone(),
            cost: call.cost,
            anonymous: call.identity == Identity::Anonymous,
        };
        Self { ring: Some(ring), checks: calls.iter().map(check).collect() }
    }

    pub(crate) fn into_calls(self) -> Vec<CheckCall> {
        let call = |check: Check| CheckCall {
            limit: Name::new(&check.namespace, &check.limit),
            key: check.key,
            cost: check.cost,
            identity: if check.anonymous { Identity::Anonymous } else { Identity::Authenticated },
        };
        self.checks.into_iter().map(call).collect()
    }
}

/// What came of them, in their order.
#[derive(Serialize, Deserialize)]
pub(crate) struct Verdicts {
    pub(crate) verdicts: Vec<Verdict>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verdict {
    #[serde(rename_all = "camelCase")]
    Allowed {
        capacity: u64,
        remaining: u64,
        reset_millis: u64,
        by_store: bool,
        #[serde(default, rename = "delegated")]
        is_hot: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remained: Option<Remained>,
    },
    #[serde(rename_all = "camelCase")]
    Refused {
        capacity: u64,
        remaining: u64,
        reset_millis: u64,
        by_store: bool,
        retry_after_millis: Option<u64>,
        is_local: bool,
        #[serde(default, rename = "delegated")]
        is_hot: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remained: Option<Remained>,
    },
    #[serde(rename_all = "camelCase")]
    NotOwner {
        owner: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ring: Option<u64>,
    },
    Undecided,
}

/// What remained at the store when the owner heard of it; an older version says nothing of it.
#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Remained {
    amount: u64,
    ago_millis: u64,
}

impl From<peers::Remained> for Remained {
    fn from(said: peers::Remained) -> Self {
        Self { amount: said.amount, ago_millis: said.ago_ms }
    }
}

impl From<Remained> for peers::Remained {
    fn from(said: Remained) -> Self {
        Self { amount: said.amount, ago_ms: said.ago_millis }
    }
}

const BY_STORE: &str = "budget_exhausted";
const LOCAL: &str = "local_budget_exhausted";

impl From<PeerVerdict> for Verdict {
    fn from(verdict: PeerVerdict) -> Self {
        match verdict {
            PeerVerdict::Decided { denial, capacity, remaining, reset_ms, by_store, is_hot, remained } => {
                let (reset_millis, remained) = (reset_ms, remained.map(Remained::from));
                match denial {
                    None => Self::Allowed { capacity, remaining, reset_millis, by_store, is_hot, remained },
                    Some(denial) => Self::Refused {
                        capacity,
                        remaining,
                        reset_millis,
                        by_store,
                        retry_after_millis: denial.retry_after_ms,
                        is_local: denial.reason == LOCAL,
                        is_hot,
                        remained,
                    },
                }
            }
            PeerVerdict::NotOwner { owner, ring } => {
                Self::NotOwner { owner: owner.map(|owner| owner.0), ring }
            }
            PeerVerdict::Undecided => Self::Undecided,
        }
    }
}

impl From<Verdict> for PeerVerdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allowed { capacity, remaining, reset_millis, by_store, is_hot, remained } => {
                let (denial, remained) = (None, remained.map(Into::into));
                Self::Decided {
                    denial,
                    capacity,
                    remaining,
                    reset_ms: reset_millis,
                    by_store,
                    is_hot,
                    remained,
                }
            }
            Verdict::Refused {
                capacity,
                remaining,
                reset_millis,
                by_store,
                retry_after_millis,
                is_local,
                is_hot,
                remained,
            } => {
                let reason = if is_local { LOCAL } else { BY_STORE };
                let denial = Some(Denial { reason, retry_after_ms: retry_after_millis });
                let remained = remained.map(Into::into);
                Self::Decided {
                    denial,
                    capacity,
                    remaining,
                    reset_ms: reset_millis,
                    by_store,
                    is_hot,
                    remained,
                }
            }
            Verdict::NotOwner { owner, ring } => Self::NotOwner { owner: owner.map(NodeId), ring },
            Verdict::Undecided => Self::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_arrives_as_it_was_sent_and_one_of_an_older_version_is_of_somebody_known() {
        let call = |identity| CheckCall { limit: Name::new("n", "l"), key: "k".into(), cost: 3, identity };
        let calls = [call(Identity::Anonymous), call(Identity::Authenticated)];
        let text = serde_json::to_string(&Checks::of(u64::MAX, &calls)).unwrap();
        let read: Checks = serde_json::from_str(&text).unwrap();
        assert_eq!((read.ring, read.into_calls()), (Some(u64::MAX), calls.to_vec()), "{text}");
        let older = r#"{"checks":[{"namespace":"n","limit":"l","key":"k","cost":3}]}"#;
        let read: Checks = serde_json::from_str(older).unwrap();
        assert_eq!((read.ring, read.into_calls()), (None, calls[1..].to_vec()));
    }

    /// As the version before knew them.
    #[derive(Deserialize)]
    struct OlderChecks {
        checks: Vec<Check>,
    }

    #[derive(Deserialize, Debug, PartialEq, Eq)]
    #[serde(rename_all = "camelCase")]
    enum OlderVerdict {
        NotOwner { owner: Option<u64> },
    }

    #[test]
    fn versions_that_dont_say_their_ring_and_those_that_do_understand_each_other() {
        let call =
            CheckCall { limit: Name::new("n", "l"), key: "k".into(), cost: 3, identity: Identity::default() };
        let text = serde_json::to_string(&Checks::of(7, &[call])).unwrap();
        assert_eq!(serde_json::from_str::<OlderChecks>(&text).unwrap().checks.len(), 1, "{text}");
        let newer = PeerVerdict::NotOwner { owner: Some(NodeId(5)), ring: Some(7) };
        let text = serde_json::to_string(&Verdict::from(newer)).unwrap();
        let read: OlderVerdict = serde_json::from_str(&text).unwrap();
        assert_eq!(read, OlderVerdict::NotOwner { owner: Some(5) }, "{text}");
        let read: Verdict = serde_json::from_str(r#"{"notOwner":{"owner":5}}"#).unwrap();
        assert_eq!(PeerVerdict::from(read), PeerVerdict::NotOwner { owner: Some(NodeId(5)), ring: None });
    }

    #[test]
    fn every_verdict_arrives_as_it_was_given() {
        let decided = |denial, remained| PeerVerdict::Decided {
            denial,
            capacity: 100,
            remaining: 7,
            reset_ms: 1_300,
            by_store: true,
            is_hot: true,
            remained,
        };
        let remained = Some(peers::Remained { amount: 5, ago_ms: 40 });
        for verdict in [
            decided(None, None),
            decided(None, remained),
            decided(Some(Denial { reason: BY_STORE, retry_after_ms: None }), remained),
            decided(Some(Denial { reason: LOCAL, retry_after_ms: Some(250) }), None),
            PeerVerdict::NotOwner { owner: Some(NodeId(u64::MAX)), ring: Some(u64::MAX) },
            PeerVerdict::NotOwner { owner: None, ring: None },
            PeerVerdict::Undecided,
        ] {
            let text = serde_json::to_string(&Verdict::from(verdict.clone())).unwrap();
            let read: Verdict = serde_json::from_str(&text).unwrap();
            assert_eq!(PeerVerdict::from(read), verdict, "{text}");
        }
    }
}
