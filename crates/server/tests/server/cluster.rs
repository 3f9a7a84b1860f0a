//! Nodes, who owns what, and what only nodes may ask (M3).

use crate::harness::Baton;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_itself_and_that_it_owns_something() {
    let baton = Baton::start().await;
    let status = baton.get("/v1/status").await.ok();
    let nodes = baton.get("/v1/nodes").await.ok();
    let mine = nodes["nodes"].as_array().unwrap().iter().find(|node| node["this"] == true).unwrap();
    assert_eq!((&mine["nodeId"], &mine["version"]), (&status["nodeId"], &status["version"]));
    assert!(mine["owns"].as_u64() > Some(0) && mine["leaving"] == false, "{mine}");
    let ring = baton.get("/v1/ring").await.ok();
    let place = ring["nodes"].as_array().unwrap().iter().position(|node| node["nodeId"] == status["nodeId"]);
    let owned = ring["owners"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|owner| owner.as_u64() == Some(place.unwrap() as u64));
    assert_eq!((Some(owned.count() as u64), ring["partitions"].as_u64()), (mine["owns"].as_u64(), Some(256)));
    assert_eq!(baton.get("/v1/ring?all=true").await.code(400), "INVALID_ARGUMENT");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_can_not_forward_checks() {
    let baton = Baton::start().await;
    let body = json!({ "checks": [{ "namespace": "default", "limit": "l", "key": "k", "cost": 1 }] });
    assert_eq!(baton.post("/v1/peers/check", body.clone()).await.code(403), "FORBIDDEN");
    let (mut client, body) = (baton.client().await, body.to_string());
    let head = "POST /v1/peers/check HTTP/1.1\r\nhost: test\r\nbaton-peer: c3RyYW5nZXI\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    client.send(request.as_bytes()).await.unwrap();
    assert_eq!(client.answer("POST").await.unwrap().code(403), "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owned_limit_is_decided_by_its_owner_and_says_so() {
    let baton = Baton::start().await;
    let definition = json!({ "limit": 1000, "windowMillis": 86_400_000, "mechanism": "owned" });
    let put = baton.client().await.call("PUT", "/v1/limits/l", definition.to_string().as_bytes()).await.ok();
    assert_eq!(put["definition"]["mechanism"], "owned");
    let mut sources = Vec::new();
    for _ in 0..5 {
        let checked = baton.post("/v1/limits/l/check", json!({ "key": "k" })).await.ok();
        sources.push(checked["source"].as_str().unwrap().to_owned());
    }
    assert!(sources[2..].iter().all(|source| source == "owner"), "{sources:?}");
    let in_flight = json!({ "limit": 10, "algorithm": "in_flight", "mechanism": "owned" });
    let refused = baton.client().await.call("PUT", "/v1/limits/f", in_flight.to_string().as_bytes()).await;
    assert_eq!(refused.code(400), "INVALID_ARGUMENT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_checked_far_more_than_others_is_listed() {
    let baton = Baton::start().await;
    let definition = json!({ "limit": 1_000_000, "windowMillis": 86_400_000, "mechanism": "leased" });
    baton.client().await.call("PUT", "/v1/limits/l", definition.to_string().as_bytes()).await.ok();
    assert_eq!(baton.get("/v1/hotkeys").await.ok(), json!({ "hotKeys": [] }));
    let mut client = baton.client().await;
    for round in 0..3_000 {
        let key = if round % 10 == 0 { format!("quiet-{round}") } else { "busy".into() };
        client.call("POST", "/v1/limits/l/check", json!({ "key": key }).to_string().as_bytes()).await.ok();
    }
    let mut hot = json!(null);
    baton
        .until(async || {
            hot = baton.get("/v1/hotkeys").await.ok();
            hot["hotKeys"][0]["key"] == "busy"
        })
        .await;
    assert_eq!(hot["hotKeys"].as_array().unwrap().len(), 1, "{hot}");
    assert!(hot["hotKeys"][0]["perMille"].as_u64() > Some(600) && hot["hotKeys"][0]["limit"] == "l", "{hot}");
}
