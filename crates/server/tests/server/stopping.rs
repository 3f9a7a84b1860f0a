//! A graceful stop (O11).

use crate::harness::Baton;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_told_to_call_again_and_find_their_place_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut baton = Baton::open(directory.path(), |_| {}).await;
    let grant = baton.acquire("k", "holder").await;
    let mut first = baton.waiter("k", "w1", Some("r1")).await;
    let mut second = baton.waiter("k", "w2", None).await;
    let mut watch = baton.client().await;
    watch.request("GET", "/v1/locks/k/watch", b"").await;
    watch.head().await.unwrap();
    watch.chunk().await.unwrap();
    let mut idle = baton.client().await;
    idle.call("GET", "/healthz", b"").await.ok();

    baton.stop();
    let answer = first.answer("POST").await.unwrap();
    assert_eq!(answer.code(409), "STILL_WAITING");
    assert_eq!(answer.json()["requestId"], "r1");
    let answer = second.answer("POST").await.unwrap();
    assert_eq!(answer.code(409), "STILL_WAITING");
    let second_id = answer.json()["requestId"].as_str().unwrap().to_owned();
    assert!(watch.chunk().await.is_none(), "a watch ends");
    assert!(idle.answer("GET").await.is_none(), "an idle connection is closed");
    baton.stopped().await;

    let baton = Baton::open(directory.path(), |_| {}).await;
    assert_eq!(baton.get("/v1/locks/k").await.ok()["fencingToken"], grant["fencingToken"]);
    // The one that was second comes back first: its place is still the second.
    let mut again = Vec::new();
    for (owner, id) in [("w2", second_id.as_str()), ("w1", "r1")] {
        let mut client = baton.client().await;
        let body = json!({ "ownerId": owner, "ttlMillis": 60_000, "wait": true, "requestId": id });
        client.request("POST", "/v1/locks/k/acquire", body.to_string().as_bytes()).await;
        again.push(client);
        let path = "/v1/locks/k/queue";
        let connected = async || {
            let queue = baton.get(path).await.ok();
            let entries = queue["waiting"].as_array().unwrap().clone();
            entries.iter().any(|entry| entry["ownerId"] == owner && entry["connected"] == true)
        };
        baton.until(connected).await;
    }
    assert_eq!(baton.queue("k").await, ["w1", "w2"]);
    baton.release(&grant).await.ok();
    assert_eq!(again[1].answer("POST").await.unwrap().ok()["ownerId"], "w1");
    drop(again);
    baton.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_finishes_does_not_keep_the_server() {
    let mut baton = Baton::with(|config| config.drain = std::time::Duration::from_millis(200)).await;
    let mut slow = baton.client().await;
    slow.send(b"POST /v1/locks/k/acquire HTTP/1.1\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    baton.get("/healthz").await.ok();
    baton.stop();
    baton.stopped().await;
}
