//! Nothing is left behind: when everybody has finished there is no roster, no grant, no waiter and no place, and the
//! node has no desk and no parked call.

use super::Evidence;
use baton_core::lock::name::Kind;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for record in evidence.left {
        let kind = Kind::of_name(&record.key.name);
        if let Some(kind @ (Kind::Roster | Kind::Grant | Kind::Waiting | Kind::Order | Kind::Delay)) = kind {
            found.push(format!("{kind:?} {:?} of revision {}", record.key, record.revision.0));
        }
    }
    if evidence.desks != (0, 0) {
        let (desks, parked) = evidence.desks;
        found.push(format!("{desks} desks and {parked} parked calls at the last node"));
    }
    found
}
