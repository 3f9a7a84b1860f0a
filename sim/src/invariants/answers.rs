//! What a client was told makes sense to it: counts of nested acquires, answers to repeated requests.

use super::Evidence;
use crate::world::Told;
use baton_engine::lock::Failure;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let internal = evidence.records.calls.iter().filter_map(|call| {
        let is_internal = matches!(call.told, Some(Told::Failed(Failure::Internal)));
        is_internal.then(|| format!("client {} was told of an internal error at {:?}", call.client, call.end))
    });
    internal.chain(evidence.records.absurdities.iter().cloned()).collect()
}
