//! Following locks.

use crate::client::{Client, PATIENCE};
use crate::harness::Baton;
use serde_json::{Value, json};

async fn watch(baton: &Baton, path: &str) -> Client {
    let mut client = baton.client().await;
    client.request("GET", path, b"").await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    assert_eq!(client.chunk().await.unwrap(), ": watching\n\n");
    client
}

/// The next event's name, id and data.
async fn next(client: &mut Client) -> (String, String, Value) {
    let chunk = tokio::time::timeout(PATIENCE, client.chunk()).await.expect("an event in time").unwrap();
    let line = |name: &str| {
        let found = chunk.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {chunk}")).to_owned()
    };
    (line("event: "), line("id: "), serde_json::from_str(&line("data: ")).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_what_happens_as_it_happens() {
    let baton = Baton::start().await;
    let mut one = watch(&baton, "/v1/locks/a%2Fb/watch").await;
    let mut many = watch(&baton, "/v1/watch/locks?prefix=a%2F").await;
    let mut elsewhere = watch(&baton, "/v1/watch/locks?namespace=elsewhere").await;

    let mut wanted = Vec::new();
    let body = json!({ "ownerId": "o", "ttlMillis": 60_000 });
    let grant = baton.post("/v1/locks/a%2Fb/acquire", body.clone()).await.ok();
    wanted.push(("granted", grant["fencingToken"].clone()));
    let release = json!({ "ownerId": "o", "lockToken": grant["lockToken"] });
    baton.post("/v1/locks/a%2Fb/release", release).await.ok();
    wanted.push(("released", grant["fencingToken"].clone()));
    let again = baton.post("/v1/locks/a%2Fb/acquire", body.clone()).await.ok();
    wanted.push(("granted", again["fencingToken"].clone()));
    baton.post("/v1/locks/a%2Fb/force-release", json!({ "reason": "test" })).await.ok();
    wanted.push(("forced", again["fencingToken"].clone()));
    for client in [&mut one, &mut many] {
        for (event, token) in &wanted {
            let (name, id, data) = next(client).await;
            assert_eq!((name.as_str(), &id), (*event, &token.to_string()), "{data}");
            assert_eq!((&data["event"], &data["fencingToken"]), (&json!(event), token));
            assert_eq!((&data["lockKey"], &data["ownerId"]), (&json!("a/b"), &json!("o")));
            assert!(data["lockToken"].is_null());
        }
    }

    baton.post("/v1/locks/a%2Fc/acquire", json!({ "ownerId": "p", "ttlMillis": 100 })).await.ok();
    assert_eq!(next(&mut many).await.2["lockKey"], "a/c");
    let mut body = body;
    body["wait"] = true.into();
    baton.post("/v1/locks/a%2Fc/acquire", body.clone()).await.ok();
    // The end and the next grant are of one commit: the end is told first.
    let pair = [next(&mut many).await, next(&mut many).await];
    assert_eq!((pair[0].0.as_str(), &pair[0].2["ownerId"]), ("expired", &json!("p")));
    assert_eq!((pair[1].0.as_str(), &pair[1].2["ownerId"]), ("granted", &json!("o")));

    baton.post("/v1/locks/b/acquire?namespace=elsewhere", body).await.ok();
    assert_eq!(next(&mut elsewhere).await.2["lockKey"], "b", "nothing of other namespaces came before");
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_have_a_bound_and_give_their_place_back() {
    let baton = Baton::with(|config| config.max_watchers = 1).await;
    let first = watch(&baton, "/v1/locks/k/watch").await;
    let refused = baton.get("/v1/watch/locks").await;
    assert_eq!(refused.code(503), "OVERLOADED");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(first);
    baton
        .until(async || {
            let mut client = baton.client().await;
            client.request("GET", "/v1/locks/k/watch", b"").await;
            client.head().await.unwrap().starts_with("HTTP/1.1 200")
        })
        .await;
    assert_eq!(baton.get("/v1/locks/k/watch?prefix=a").await.field(), "prefix");
}
