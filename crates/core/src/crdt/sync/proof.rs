//! That a question and its answer come from replicas of the same cluster: nobody else knows its key (D6).
//!
//! A question's proof is over all of it, and no two questions are the same. An answer's is over the answer and the question's proof: it can't
//! be said again to another question, and nobody who only stands where a replica is expected can make one.

use crate::lock::ClusterKey;
use alloc::string::String;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// The shortest secret that is taken, in bytes: what is shorter can be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// The key that a configured secret stands for; nothing if it is too short.
pub fn key_of(secret: &[u8]) -> Option<ClusterKey> {
    let digest = Sha256::new().chain_update(b"baton cluster secret\0").chain_update(secret).finalize();
    (secret.len() >= SECRET_BYTES_MIN).then(|| ClusterKey(digest.into()))
}

/// What a question is shown with.
pub fn of_request(key: &ClusterKey, request: &[u8]) -> String {
    written(request_code(key, request))
}

/// Whether a question comes from the cluster. Compared in constant time.
pub fn is_of_request(key: &ClusterKey, request: &[u8], proof: &str) -> bool {
    is_same(request_code(key, request), proof)
}

/// What the answer to the question with this proof is shown with.
pub fn of_answer(key: &ClusterKey, request_proof: &str, answer: &[u8]) -> String {
    written(answer_code(key, request_proof, answer))
}

/// Whether an answer comes from the cluster and belongs to the question. Compared in constant time.
pub fn is_of_answer(key: &ClusterKey, request_proof: &str, answer: &[u8], proof: &str) -> bool {
    is_same(answer_code(key, request_proof, answer), proof)
}

fn request_code(key: &ClusterKey, request: &[u8]) -> Hmac<Sha256> {
    key.seal(request, &["replica question"])
}

fn answer_code(key: &ClusterKey, request_proof: &str, answer: &[u8]) -> Hmac<Sha256> {
    key.seal(answer, &["replica answer", request_proof])
}

fn written(code: Hmac<Sha256>) -> String {
    URL_SAFE_NO_PAD.encode(code.finalize().into_bytes())
}

fn is_same(code: Hmac<Sha256>, proof: &str) -> bool {
    URL_SAFE_NO_PAD.decode(proof).is_ok_and(|found| code.verify_slice(&found).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_message_of_one_cluster() {
        let (ours, theirs) =
            (key_of(b"a secret of 20 bytes").unwrap(), key_of(b"another long secret!").unwrap());
        let asked = of_request(&ours, b"question");
        assert!(is_of_request(&ours, b"question", &asked));
        let answered = of_answer(&ours, &asked, b"answer");
        assert!(is_of_answer(&ours, &asked, b"answer", &answered));
        assert!(!is_of_request(&theirs, b"question", &asked) && !is_of_request(&ours, b"questions", &asked));
        assert!(!is_of_answer(&theirs, &asked, b"answer", &answered));
        assert!(!is_of_answer(&ours, &asked, b"answers", &answered));
        assert!(!is_of_answer(&ours, &of_request(&ours, b"other"), b"answer", &answered));
        // A question is no answer, whatever it says.
        assert!(!is_of_answer(&ours, "", b"question", &asked) && !is_of_request(&ours, b"question", ""));
        assert!(key_of(b"fifteen bytes!!").is_none());
    }
}
