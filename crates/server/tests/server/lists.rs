//! Lists, page by page.

use crate::harness::Baton;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn keys(page: &Value) -> Vec<String> {
    let locks = page["locks"].as_array().unwrap().iter();
    locks.map(|lock| lock["lockKey"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_together_show_every_held_lock_once() {
    let baton = Baton::start().await;
    let mut client = baton.client().await;
    let body = json!({ "ownerId": "a", "ttlMillis": 60_000 }).to_string();
    for index in 0..25 {
        let kind = if index % 2 == 0 { "even" } else { "odd" };
        let path = format!("/v1/locks/{kind}%2F{index}/acquire?namespace=inventory");
        client.call("POST", &path, body.as_bytes()).await.ok();
    }
    for (prefix, wanted) in [("", 25), ("even%2F", 13), ("odd", 12), ("none", 0)] {
        let mut seen = BTreeSet::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/locks?namespace=inventory&prefix={prefix}&limit=4{cursor}");
            let page = client.call("GET", &path, b"").await.ok();
            let found = keys(&page);
            assert!(found.len() <= 4);
            for key in found {
                assert!(seen.insert(key));
            }
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), wanted, "{prefix}");
    }
    let whole = client.call("GET", "/v1/locks?namespace=inventory", b"").await;
    assert_eq!(keys(&whole.ok()).len(), 25);
    assert!(!whole.text.contains("lockToken"));
    let first = &whole.json()["locks"][0];
    for field in ["lockKey", "ownerId", "expiresAt", "fencingToken", "queueLength"] {
        assert!(!first[field].is_null(), "{field}");
    }
    assert_eq!(keys(&baton.get("/v1/locks").await.ok()).len(), 0, "another namespace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_cannot_be_asked_for_is_refused() {
    let baton = Baton::start().await;
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("limit=1.0", "limit"),
        ("cursor=", "cursor"),
        ("cursor=nonsense", "cursor"),
        ("prefix=%01", "prefix"),
        ("key=1", "key"),
    ] {
        assert_eq!(baton.get(&format!("/v1/locks?{query}")).await.field(), field, "{query}");
    }
}
