//! What one node shows another: that it belongs to the same cluster. Nobody else knows the cluster's key.

use crate::lock::{ClusterKey, NodeId};
use alloc::string::String;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::Mac;

/// What no other code is made over.
const PURPOSE: &str = "peer call";

/// For calls to `node` and to no other. It is good until that node stops: its id is never used again.
pub fn prove(cluster: &ClusterKey, node: NodeId) -> String {
    URL_SAFE_NO_PAD.encode(cluster.seal(&node.0.to_be_bytes(), &[PURPOSE]).finalize().into_bytes())
}

/// Whether a proof is one for `node`. Compared in constant time.
pub fn is_proved(cluster: &ClusterKey, node: NodeId, proof: &str) -> bool {
    let Ok(found) = URL_SAFE_NO_PAD.decode(proof) else { return false };
    cluster.seal(&node.0.to_be_bytes(), &[PURPOSE]).verify_slice(&found).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_node_of_one_cluster() {
        let (ours, theirs) = (ClusterKey([1; 32]), ClusterKey([2; 32]));
        let proof = prove(&ours, NodeId(7));
        assert!(is_proved(&ours, NodeId(7), &proof));
        assert!(!is_proved(&ours, NodeId(8), &proof));
        assert!(!is_proved(&theirs, NodeId(7), &proof));
        for wrong in ["", "no base64!", &proof[1..], &proof[..22]] {
            assert!(!is_proved(&ours, NodeId(7), wrong), "{wrong}");
        }
    }
}
