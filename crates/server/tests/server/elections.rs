//! `/v1/elections` as its clients see it.

use crate::client::{Client, PATIENCE};
use crate::harness::Baton;
use serde_json::{Value, json};

async fn campaign(baton: &Baton, candidate: &str) -> Value {
    let body = json!({ "candidateId": candidate, "wait": false, "value": { "at": candidate } });
    baton.post("/v1/elections/e/campaign", body).await.ok()
}

/// A connection on which a campaign waits, standing by by now.
async fn stands_by(baton: &Baton, candidate: &str, priority: i64) -> Client {
    let count = async || baton.get("/v1/elections/e").await.ok()["candidateCount"].as_u64().unwrap();
    let before = count().await;
    let mut client = baton.client().await;
    let body = json!({ "candidateId": candidate, "priority": priority });
    client.request("POST", "/v1/elections/e/campaign", body.to_string().as_bytes()).await;
    baton.until(async || count().await > before).await;
    client
}

fn proof(leader: &Value) -> Value {
    json!({ "leaderToken": leader["leaderToken"], "candidateId": leader["candidateId"] })
}

async fn act(baton: &Baton, what: &str, leader: &Value, more: Value) -> crate::client::Answer {
    let mut body = proof(leader);
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    baton.post(&format!("/v1/elections/e/{what}"), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_candidate_leads_the_others_stand_by_and_follow_with_higher_epochs() {
    let baton = Baton::start().await;
    assert_eq!(baton.get("/v1/elections/e").await.code(404), "NO_LEADER");
    let first = campaign(&baton, "first").await;
    assert_eq!((&first["leader"], &first["election"]), (&json!(true), &json!("e")));
    assert_eq!(first["ttlMillis"], 10_000, "unless it says otherwise");

    let refused = baton.post("/v1/elections/e/campaign", json!({ "candidateId": "x", "wait": false })).await;
    assert_eq!(refused.code(409), "NOT_LEADER");
    let body = refused.json();
    assert_eq!((&body["leader"], &body["epoch"]), (&json!("first"), &first["epoch"]));

    let mut second = stands_by(&baton, "second", 0).await;
    let mut third = stands_by(&baton, "third", 5).await;
    let status = baton.get("/v1/elections/e").await.ok();
    assert_eq!((&status["leader"], &status["epoch"]), (&json!("first"), &first["epoch"]));
    assert_eq!(status["value"], json!({ "at": "first" }));
    let ids: Vec<_> =
        status["candidates"].as_array().unwrap().iter().map(|one| &one["candidateId"]).collect();
    assert_eq!(ids, ["third", "second"]);
    assert!(!status.to_string().contains("oken"), "no token is shown: {status}");
    let page = baton.get("/v1/elections/e?limit=1").await.ok();
    let rest = format!("/v1/elections/e?limit=1&cursor={}", page["nextCursor"].as_str().unwrap());
    assert_eq!(baton.get(&rest).await.ok()["candidates"][0]["candidateId"], "second");

    let renewed = act(&baton, "renew", &first, json!({ "ttlMillis": 60_000 })).await.ok();
    assert_eq!(renewed["epoch"], first["epoch"]);
    assert!(renewed["expiresAt"].as_u64() > first["expiresAt"].as_u64());
    let proclaimed = act(&baton, "proclaim", &first, json!({ "value": { "at": "there" } })).await.ok();
    assert_eq!(proclaimed["status"], "PROCLAIMED");
    assert_eq!(baton.get("/v1/elections/e").await.ok()["value"], json!({ "at": "there" }));

    let nobody = act(&baton, "resign", &first, json!({ "successor": "nobody" })).await;
    assert_eq!(nobody.code(409), "SUCCESSOR_NOT_WAITING");
    assert_eq!(baton.get("/v1/elections/e").await.ok()["leader"], "first");
    for _ in 0..2 {
        let resigned = act(&baton, "resign", &first, json!({ "successor": "second" })).await.ok();
        assert_eq!(resigned["status"], "RESIGNED", "also once more");
    }
    let second = second.answer("POST").await.unwrap().ok();
    assert!(second["epoch"].as_u64() > first["epoch"].as_u64());
    let lost = act(&baton, "renew", &first, json!({})).await;
    assert_eq!(lost.code(409), "LEADERSHIP_LOST");
    assert_eq!(lost.json()["leader"], "second");
    assert_eq!(act(&baton, "proclaim", &first, json!({ "value": {} })).await.code(409), "LEADERSHIP_LOST");
    let wrong = json!({ "leaderToken": second["leaderToken"], "candidateId": "other" });
    assert_eq!(act(&baton, "resign", &wrong, json!({})).await.code(409), "NOT_LEADER");
    act(&baton, "resign", &second, json!({})).await.ok();
    let third = third.answer("POST").await.unwrap().ok();
    act(&baton, "resign", &third, json!({})).await.ok();
    assert_eq!(act(&baton, "resign", &wrong, json!({})).await.code(404), "NO_LEADER");
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_are_listed_by_themselves() {
    let baton = Baton::start().await;
    for name in ["x/1", "x/2", "y"] {
        let path = format!("/v1/elections/{}/campaign?namespace=listed", name.replace('/', "%2F"));
        baton.post(&path, json!({ "candidateId": "c" })).await.ok();
        let path = format!("/v1/locks/{}/acquire?namespace=listed", name.replace('/', "%2F"));
        baton.post(&path, json!({ "ownerId": "o", "ttlMillis": 60_000 })).await.ok();
    }
    let mut found = Vec::new();
    let mut query = String::from("/v1/elections?namespace=listed&prefix=x%2F&limit=1");
    loop {
        let page = baton.get(&query).await.ok();
        let elections = page["elections"].as_array().unwrap().iter();
        found.extend(
            elections.map(|one| (one["election"].as_str().unwrap().to_owned(), one["leader"].clone())),
        );
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        let cursor: String = cursor.bytes().map(|byte| format!("%{byte:02X}")).collect();
        query = format!("/v1/elections?namespace=listed&prefix=x%2F&limit=1&cursor={cursor}");
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, [("x/1".to_owned(), json!("c")), ("x/2".to_owned(), json!("c"))]);
    let locks = baton.get("/v1/locks?namespace=listed&prefix=y").await.ok();
    assert_eq!(locks["locks"][0]["ownerId"], "o", "and so are locks");
}

async fn observe(baton: &Baton, query: &str, last_event: Option<u64>) -> Client {
    let mut client = baton.client().await;
    let last = last_event.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
    let head = format!("GET /v1/elections/e/observe{query} HTTP/1.1\r\nhost: test\r\n{last}\r\n");
    client.send(head.as_bytes()).await.unwrap();
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    assert_eq!(client.chunk().await.unwrap(), ": watching\n\n");
    client
}

/// The next event's name and data; its id is the epoch.
async fn next(client: &mut Client) -> (String, Value) {
    let chunk = tokio::time::timeout(PATIENCE, client.chunk()).await.expect("an event in time").unwrap();
    let line = |name: &str| chunk.lines().find_map(|line| line.strip_prefix(name));
    let data: Value = serde_json::from_str(line("data: ").unwrap()).unwrap();
    assert_eq!(line("id: ").map(str::to_owned), data["epoch"].as_u64().map(|epoch| epoch.to_string()));
    (line("event: ").unwrap().to_owned(), data)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_hears_who_leads_and_every_change_and_goes_on_where_it_was() {
    let baton = Baton::start().await;
    let mut watcher = observe(&baton, "", None).await;
    assert_eq!(next(&mut watcher).await.0, "vacant");
    let mut epochs = Vec::new();
    for candidate in ["a", "b", "c"] {
        let leader = campaign(&baton, candidate).await;
        let (event, data) = next(&mut watcher).await;
        assert_eq!((event.as_str(), &data["leader"]), ("leader", &json!(candidate)));
        assert_eq!((&data["epoch"], &data["value"]), (&leader["epoch"], &json!({ "at": candidate })));
        epochs.push(leader["epoch"].as_u64().unwrap());
        if candidate != "c" {
            act(&baton, "resign", &leader, json!({})).await.ok();
            assert_eq!(next(&mut watcher).await.0, "vacant");
        }
    }
    assert!(epochs.is_sorted());
    // Resumed by a query, and as a browser does it by itself.
    let after = format!("?afterEpoch={}", epochs[0]);
    for (query, header) in [(after.as_str(), None), ("", Some(epochs[0]))] {
        let mut resumed = observe(&baton, query, header).await;
        let (event, data) = next(&mut resumed).await;
        assert_eq!((event.as_str(), &data["epoch"]), ("past", &json!(epochs[1])));
        let (event, data) = next(&mut resumed).await;
        assert_eq!((event.as_str(), &data["epoch"]), ("leader", &json!(epochs[2])));
    }
    assert_eq!(baton.get("/v1/elections/e/observe?afterEpoch=x").await.field(), "afterEpoch");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_out_of_bounds_is_refused_with_its_field() {
    let baton = Baton::start().await;
    for (path, body, field) in [
        ("e/campaign", json!({}), "candidateId"),
        ("e/campaign", json!({ "candidateId": "" }), "candidateId"),
        ("e/campaign", json!({ "candidateId": "c", "ttlMillis": 99 }), "ttlMillis"),
        ("e/campaign", json!({ "candidateId": "c", "priority": 1001 }), "priority"),
        ("e/campaign", json!({ "candidateId": "c", "priority": 100_000 }), "priority"),
        ("e/campaign", json!({ "candidateId": "c", "value": [] }), "value"),
        ("e/campaign", json!({ "candidateId": "c", "ownerId": "c" }), "ownerId"),
        ("e/campaign", json!({ "candidateId": "c", "value": { "x": "y".repeat(4096) } }), "value"),
        ("e/renew", json!({ "candidateId": "c" }), "leaderToken"),
        ("e/renew", json!({ "candidateId": "c", "leaderToken": "t", "ttlMillis": 0 }), "ttlMillis"),
        ("e/proclaim", json!({ "candidateId": "c", "leaderToken": "t" }), "value"),
        ("e/resign", json!({ "candidateId": "c", "leaderToken": "t", "successor": "" }), "successor"),
        ("%2E/campaign", json!({ "candidateId": "c" }), "name"),
        ("e/campaign?prefix=x", json!({ "candidateId": "c" }), "prefix"),
    ] {
        assert_eq!(
            baton.post(&format!("/v1/elections/{path}"), body.clone()).await.field(),
            field,
            "{path} {body}"
        );
    }
    assert_eq!(baton.get("/v1/elections/e?limit=0").await.field(), "limit");
    campaign(&baton, "c").await;
    assert_eq!(baton.get("/v1/elections/e?cursor=xyz").await.field(), "cursor");
    let busy = json!({ "candidateId": "d", "waitTimeoutMillis": 1 });
    let refused = baton.post("/v1/elections/e/campaign", busy).await;
    assert_eq!((refused.code(409), &refused.json()["leader"]), ("WAIT_TIMEOUT".into(), &json!("c")));
}
