//! A commit that was given up arrives later: it makes no second holder, and no ghost (L2, L7, O10).

use crate::http::{Answer, get, post};
use crate::nodes::Nodes;
use crate::process::eventually;
use crate::stores::{on_etcd, on_postgresql, on_redis};
use baton_testkit::proxy::Direction::Requests;
use serde_json::json;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// Two nodes, and a commit of the first one that is under way: its caller has been told that nobody knows.
struct Late(Nodes);

impl Late {
    fn begin(url: &str) -> Self {
        let late = Self(Nodes::start(url, 2));
        let proxy = &late.0.proxies[0];
        proxy.hold(Requests);
        let given_up = late.acquire(0, "late");
        assert_eq!((given_up.status, given_up.code()), (503, "STORE_UNAVAILABLE"), "{}", given_up.body);
        assert!(proxy.held_bytes(Requests) > 0, "nothing is under way");
        late
    }

    /// Everybody asks with one requestId, however often.
    fn acquire(&self, node: usize, owner: &str) -> Answer {
        let body = json!({ "ownerId": owner, "ttlMillis": 60_000, "requestId": format!("of {owner}") });
        post(&self.0.nodes[node].url, "/v1/locks/late/acquire", &body, PATIENCE).unwrap()
    }

    /// It arrives, and the node works again.
    fn arrives(&self) {
        let proxy = &self.0.proxies[0];
        let all = proxy.passed_bytes(Requests) + proxy.held_bytes(Requests) as u64;
        proxy.pass();
        eventually("all that was held has been delivered", || proxy.passed_bytes(Requests) >= all);
        eventually("the node works again", || self.0.nodes[0].get_status("/readyz") == 200);
    }

    fn renew(&self, node: usize, owner: &str, granted: &Answer) -> Answer {
        let token = &granted.body["lockToken"];
        let renew = json!({ "ownerId": owner, "lockToken": token, "ttlMillis": 60_000 });
        post(&self.0.nodes[node].url, "/v1/locks/late/renew", &renew, PATIENCE).unwrap()
    }

    fn release(&self, node: usize, owner: &str, granted: &Answer) {
        let release = json!({ "ownerId": owner, "lockToken": granted.body["lockToken"] });
        let released = post(&self.0.nodes[node].url, "/v1/locks/late/release", &release, PATIENCE).unwrap();
        assert_eq!(released.status, 200, "{}", released.body);
    }
}

/// Somebody else has the lock by then: it comes to nothing.
fn keeps_a_late_commit_out(url: &str) {
    let late = Late::begin(url);
    let granted = late.acquire(1, "punctual");
    assert_eq!(granted.status, 200, "{}", granted.body);
    late.arrives();
    eventually("the node says who has it", || late.acquire(0, "another").status == 409);
    let again = late.acquire(0, "late");
    assert_eq!(again.code(), "LOCK_ALREADY_HELD", "{}", again.body);
    for node in 0..2 {
        let renewed = late.renew(node, "punctual", &granted);
        assert_eq!(renewed.status, 200, "the holder lost it: {}", renewed.body);
    }
    late.release(1, "punctual", &granted);
    let taken = late.acquire(0, "late");
    assert_eq!(taken.status, 200, "a ghost holds it: {}", taken.body);
    assert!(taken.fencing_token() > granted.fencing_token());
}

/// The lock is free when it arrives. Whether it is granted by that is the store's affair: it may have seen that nobody listens any more.
/// Then there is one grant, which its caller gets who asks again; and in no case two.
fn is_one_grant_if_it_comes_to_a_free_lock(url: &str) {
    let late = Late::begin(url);
    late.arrives();
    let other = late.acquire(1, "other");
    let before = match other.status {
        200 => {
            let refused = late.acquire(0, "late");
            assert_eq!(refused.code(), "LOCK_ALREADY_HELD", "two have it: {}", refused.body);
            assert_eq!(late.renew(0, "other", &other).status, 200, "the holder lost it");
            late.release(1, "other", &other);
            other.fencing_token()
        }
        _ => {
            assert_eq!(other.code(), "LOCK_ALREADY_HELD", "{}", other.body);
            let shown = get(&late.0.nodes[1].url, "/v1/locks/late", PATIENCE).unwrap();
            assert_eq!(shown.body["ownerId"], "late", "{}", shown.body);
            shown.fencing_token() - 1
        }
    };
    let granted = late.acquire(0, "late");
    assert_eq!(granted.status, 200, "{}", granted.body);
    assert!(granted.fencing_token() > before);
    if other.status != 200 {
        assert_eq!(granted.fencing_token(), before + 1, "another grant than the one that was shown");
    }
    for node in [1, 0] {
        let again = late.acquire(node, "late");
        assert_eq!((again.status, again.fencing_token()), (200, granted.fencing_token()), "{}", again.body);
        let refused = late.acquire(node, "another");
        assert_eq!(refused.code(), "LOCK_ALREADY_HELD", "two have it: {}", refused.body);
    }
    late.release(1, "late", &granted);
    let next = late.acquire(0, "another");
    assert_eq!(next.status, 200, "a ghost holds it: {}", next.body);
    assert!(next.fencing_token() > granted.fencing_token());
}

#[test]
fn a_commit_that_arrives_late_makes_no_second_holder_and_no_ghost() {
    on_etcd(keeps_a_late_commit_out);
    on_postgresql(keeps_a_late_commit_out);
    on_redis(keeps_a_late_commit_out);
}

#[test]
fn a_commit_that_arrives_late_at_a_free_lock_is_its_requests_one_grant_or_none() {
    on_etcd(is_one_grant_if_it_comes_to_a_free_lock);
    on_postgresql(is_one_grant_if_it_comes_to_a_free_lock);
    on_redis(is_one_grant_if_it_comes_to_a_free_lock);
}
