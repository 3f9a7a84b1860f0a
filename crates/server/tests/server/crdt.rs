//! Counters, sets, registers, maps and presence, from one node's replica (D1, D7, D9, D12).

use crate::client::{Answer, Client, PATIENCE};
use crate::harness::Baton;
use serde_json::{Value, json};

async fn send(baton: &Baton, method: &str, path: &str, body: Value) -> Answer {
    baton.client().await.call(method, path, body.to_string().as_bytes()).await
}

async fn count(baton: &Baton, path: &str) -> i64 {
    baton.get(path).await.ok()["value"].as_i64().unwrap()
}

async fn elements(baton: &Baton, path: &str) -> Vec<String> {
    serde_json::from_value(baton.get(path).await.ok()["elements"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_adds_up_and_one_that_only_grows_is_another() {
    let baton = Baton::start().await;
    assert_eq!(count(&baton, "/v1/counters/hits").await, 0, "what was never written counts nothing");
    let first = baton.post("/v1/counters/hits", json!({ "add": 5 })).await.ok();
    assert_eq!(
        (&first["counter"], &first["kind"], &first["value"]),
        (&json!("hits"), &json!("counter"), &json!(5))
    );
    assert_eq!(baton.post("/v1/counters/hits", json!({ "add": -7 })).await.ok()["value"], -2);
    let grow = "/v1/counters/hits?kind=grow-counter";
    assert_eq!(baton.post(grow, json!({ "add": 3.0 })).await.ok()["value"], 3);
    assert_eq!(baton.post(grow, json!({ "add": -1 })).await.field(), "add");
    baton.post("/v1/counters/hits?namespace=n", json!({ "add": 100 })).await.ok();
    let counts = (count(&baton, "/v1/counters/hits").await, count(&baton, grow).await);
    assert_eq!(counts, (-2, 3));
    assert_eq!(send(&baton, "DELETE", "/v1/counters/hits", json!({})).await.ok()["status"], "REMOVED");
    let counts = (count(&baton, "/v1/counters/hits").await, count(&baton, grow).await);
    assert_eq!(counts, (0, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_write_counts_once_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let baton = Baton::open(directory.path(), |_| {}).await;
    let write = json!({ "add": 5, "writer": "pod-1", "requestId": "r" });
    let first = baton.post("/v1/counters/hits", write.clone()).await.ok();
    assert!(first.get("replayed").is_none(), "{first}");
    let again = baton.post("/v1/counters/hits", write.clone()).await.ok();
    assert_eq!(
        (&again["value"], &again["replayed"], &again["context"]),
        (&json!(5), &json!(true), &first["context"])
    );
    let other =
        baton.post("/v1/counters/hits", json!({ "add": 6, "writer": "pod-1", "requestId": "r" })).await;
    assert_eq!(
        (other.code(422).as_str(), &other.json()["field"]),
        ("REQUEST_ID_REUSED", &json!("requestId"))
    );
    baton.post("/v1/counters/hits", json!({ "add": 5, "writer": "pod-2", "requestId": "r" })).await.ok();
    baton.stopped().await;
    let baton = Baton::open(directory.path(), |_| {}).await;
    assert_eq!(baton.post("/v1/counters/hits", write).await.ok()["replayed"], true);
    assert_eq!(count(&baton, "/v1/counters/hits").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_s_totals_count_once_however_they_come() {
    let baton = Baton::start().await;
    for (added, taken) in [(5, 0), (5, 0), (9, 2), (7, 1)] {
        let total = json!({ "total": { "added": added, "taken": taken }, "writer": "pod-1" });
        baton.post("/v1/counters/hits", total).await.ok();
    }
    baton.post("/v1/counters/hits", json!({ "add": 10 })).await.ok();
    let other = json!({ "total": { "added": 100 }, "writer": "pod-2" });
    assert_eq!(baton.post("/v1/counters/hits", other).await.ok()["value"], 117);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_is_read_page_by_page_and_a_removal_takes_only_what_was_seen() {
    let baton = Baton::start().await;
    baton.post("/v1/sets/tags", json!({ "add": ["d", "a", "b\n", "c", "a"] })).await.ok();
    let (mut found, mut path) = (Vec::new(), "/v1/sets/tags?limit=3".to_owned());
    let seen = loop {
        let page = baton.get(&path).await.ok();
        found.extend(page["elements"].as_array().unwrap().clone());
        let Some(cursor) = page["nextCursor"].as_str() else { break page["context"].clone() };
        path = format!("/v1/sets/tags?limit=3&cursor={cursor}");
    };
    assert_eq!(found, ["a", "b\n", "c", "d"]);
    assert_eq!(elements(&baton, "/v1/sets/tags?element=c").await, ["c"]);
    assert!(elements(&baton, "/v1/sets/tags?element=x").await.is_empty());
    // Added again after it was read: the removal hasn't seen that.
    baton.post("/v1/sets/tags", json!({ "add": ["a"] })).await.ok();
    baton.post("/v1/sets/tags", json!({ "remove": ["a", "c"], "context": seen })).await.ok();
    assert_eq!(elements(&baton, "/v1/sets/tags").await, ["a", "b\n", "d"]);
    baton.post("/v1/sets/tags", json!({ "add": ["e"], "remove": ["a", "b\n", "d"] })).await.ok();
    assert_eq!(elements(&baton, "/v1/sets/tags").await, ["e"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_register_gives_back_what_it_was_set_to_byte_for_byte() {
    let baton = Baton::start().await;
    let nothing = baton.get("/v1/registers/color").await.ok();
    assert!(nothing["exists"] == false && nothing.get("value").is_none(), "{nothing}");
    for text in ["null", "1.0", "12345678901234567890123", r#"{ "b":1, "a":[ ] }"#] {
        let body = format!(r#"{{"value":{text}}}"#);
        let put = baton.client().await.call("PUT", "/v1/registers/color", body.as_bytes()).await;
        assert!(put.text.contains(&format!(r#""exists":true,"value":{text},"#)), "{put:?}");
        let shown = baton.get("/v1/registers/color").await.text;
        assert!(shown.contains(&format!(r#""value":{text},"#)), "{shown}");
    }
    assert_eq!(send(&baton, "DELETE", "/v1/registers/color", json!({})).await.ok()["status"], "REMOVED");
    assert_eq!(baton.get("/v1/registers/color").await.ok()["exists"], false);
    let large = json!({ "value": "x".repeat(16 * 1024) });
    assert_eq!(send(&baton, "PUT", "/v1/registers/color", large).await.field(), "value");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multi_value_register_keeps_what_its_writers_had_not_seen() {
    let baton = Baton::start().await;
    let path = "/v1/registers/cart?kind=multi-value";
    let put = async |value: &str, context: &Value| {
        let mut body = json!({ "value": value });
        if !context.is_null() {
            body["context"] = context.clone();
        }
        send(&baton, "PUT", path, body).await.ok()
    };
    let empty = baton.get(path).await.ok()["context"].clone();
    put("one", &empty).await;
    // Somebody else had seen nothing either.
    let both = put("two", &empty).await;
    assert_eq!(both["values"], json!(["two", "one"]));
    let seen = baton.get(path).await.ok();
    assert_eq!((&seen["value"], &seen["values"]), (&json!("two"), &json!(["two", "one"])));
    assert_eq!(put("settled", &seen["context"]).await["values"], json!(["settled"]));
    assert_eq!(put("plainly", &Value::Null).await["values"], json!(["plainly"]));
    assert_eq!(
        baton.get("/v1/registers/cart").await.ok()["exists"],
        false,
        "another kind is another register"
    );
    let with_context = json!({ "value": 1, "context": seen["context"] });
    assert_eq!(send(&baton, "PUT", "/v1/registers/cart", with_context).await.field(), "context");
    for number in 0..63 {
        put(&number.to_string(), &empty).await;
    }
    let more = send(&baton, "PUT", path, json!({ "value": 1, "context": empty })).await;
    assert_eq!(more.code(409), "OBJECT_FULL");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_changes_in_one_step_and_its_fields_are_known_by_name_and_kind() {
    let baton = Baton::start().await;
    let write = json!({
        "counters": { "x": 2 }, "growCounters": { "x": 1 }, "sets": { "x": { "add": ["a", "b"] } },
        "registers": { "x": { "y": null } }, "multiValues": { "x": 1 }, "requestId": "r",
    });
    baton.post("/v1/maps/m", write.clone()).await.ok();
    assert_eq!(baton.post("/v1/maps/m", write).await.ok()["replayed"], true);
    let mut shown = baton.get("/v1/maps/m").await.ok();
    let context = shown.as_object_mut().unwrap().remove("context").unwrap();
    let all = json!({
        "map": "m", "counters": { "x": 2 }, "growCounters": { "x": 1 }, "sets": { "x": ["a", "b"] },
        "registers": { "x": { "y": null } }, "multiValues": { "x": [1] },
    });
    assert_eq!(shown, all);
    let wrong = json!({ "counters": { "x": 100 }, "growCounters": { "x": -1 } });
    assert_eq!(baton.post("/v1/maps/m", wrong).await.field(), "add");
    let remove = json!({ "remove": [{ "field": "x", "kind": "counter" }, { "field": "x", "kind": "register" }],
                         "sets": { "x": { "remove": ["a"] } }, "context": context });
    baton.post("/v1/maps/m", remove).await.ok();
    let (mut rows, mut path) = (Vec::new(), "/v1/maps/m?limit=1".to_owned());
    loop {
        let page = baton.get(&path).await.ok();
        rows.extend(
            ["counters", "growCounters", "multiValues", "registers", "sets"]
                .into_iter()
                .filter(|kind| page.get(kind).is_some()),
        );
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/maps/m?limit=1&cursor={cursor}");
    }
    assert_eq!(rows, ["growCounters", "multiValues", "sets"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_each_name_once_and_go_on_where_they_stopped() {
    let baton = Baton::start().await;
    for name in ["a", "b", "ba", "c"] {
        baton.post(&format!("/v1/counters/{name}"), json!({ "add": 1 })).await.ok();
        baton.post(&format!("/v1/sets/{name}"), json!({ "add": ["x", "y", "z"] })).await.ok();
        send(&baton, "PUT", &format!("/v1/registers/{name}"), json!({ "value": 1 })).await.ok();
        baton.post(&format!("/v1/maps/{name}"), json!({ "sets": { "f": { "add": ["x", "y"] } } })).await.ok();
    }
    baton.post("/v1/counters/b?kind=grow-counter", json!({ "add": 1 })).await.ok();
    baton.post("/v1/counters/other?namespace=n", json!({ "add": 1 })).await.ok();
    baton.post("/v1/presence/workers", json!({ "member": "m", "ttlMillis": 60_000 })).await.ok();
    for (collection, kinds) in [
        ("counters", json!(["counter", "counter", "grow-counter", "counter", "counter"])),
        ("sets", json!(["set", "set", "set", "set"])),
        ("registers", json!(["register", "register", "register", "register"])),
        ("maps", json!([null, null, null, null])),
    ] {
        for limit in [1, 2, 100] {
            let (mut names, mut path) = (Vec::new(), format!("/v1/{collection}?limit={limit}"));
            loop {
                let page = baton.get(&path).await.ok();
                names.extend(page["names"].as_array().unwrap().clone());
                let Some(cursor) = page["nextCursor"].as_str() else { break };
                path = format!("/v1/{collection}?limit={limit}&cursor={cursor}");
            }
            let found: Vec<_> = names.iter().map(|name| name["kind"].clone()).collect();
            assert_eq!(json!(found), kinds, "{collection}, {limit} at a time: {names:?}");
            let mut found: Vec<_> = names.iter().map(|name| name["name"].as_str().unwrap()).collect();
            found.dedup();
            assert_eq!(found, ["a", "b", "ba", "c"], "{collection}");
        }
        let page = baton.get(&format!("/v1/{collection}?prefix=b")).await.ok();
        let mut found: Vec<_> =
            page["names"].as_array().unwrap().iter().map(|name| name["name"].clone()).collect();
        found.dedup();
        assert_eq!(found, ["b", "ba"], "{collection}");
        assert_eq!(baton.get(&format!("/v1/{collection}?cursor=%21")).await.field(), "cursor");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_after_a_context_waits_until_it_was_seen_and_not_for_ever() {
    let baton = Baton::start().await;
    let written = baton.post("/v1/counters/hits", json!({ "add": 5 })).await.ok();
    let context = written["context"].as_str().unwrap();
    assert_eq!(count(&baton, &format!("/v1/counters/hits?after={context}")).await, 5);
    // Of another replica, which this one never hears of.
    let other = Baton::start().await;
    let elsewhere = other.post("/v1/sets/tags", json!({ "add": ["a"] })).await.ok();
    let elsewhere = elsewhere["context"].as_str().unwrap().to_owned();
    for path in ["counters/hits", "sets/tags", "registers/r", "maps/m", "presence/p"] {
        let behind = baton.get(&format!("/v1/{path}?after={elsewhere}&waitMillis=20")).await;
        assert_eq!(behind.code(503), "REPLICA_BEHIND", "{path}");
        assert!(behind.header("retry-after").is_some());
    }
    for (query, field) in [
        ("after=nonsense", "after"),
        ("after=", "after"),
        ("waitMillis=30001", "waitMillis"),
        ("seen=1", "seen"),
    ] {
        assert_eq!(baton.get(&format!("/v1/counters/hits?{query}")).await.field(), field, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_by_its_field_and_changes_nothing() {
    let baton = Baton::start().await;
    for (path, body, field) in [
        ("counters/x", json!({}), "add"),
        ("counters/x", json!({ "add": 1.5 }), "add"),
        ("counters/x", json!({ "add": 1_u64 << 53 }), "add"),
        ("counters/x", json!({ "add": 1, "total": { "added": 1 } }), "total"),
        ("counters/x", json!({ "total": { "added": 1 } }), "writer"),
        ("counters/x", json!({ "total": { "added": -1 }, "writer": "w" }), "total.added"),
        ("counters/x", json!({ "add": 1, "requestId": "" }), "requestId"),
        ("counters/x", json!({ "add": 1, "more": 1 }), "more"),
        ("counters/x?kind=set", json!({ "add": 1 }), "kind"),
        ("sets/x", json!({}), "add"),
        ("sets/x", json!({ "add": [""] }), "add"),
        ("sets/x", json!({ "add": ["x".repeat(1025)] }), "add"),
        ("sets/x", json!({ "add": ["a"], "remove": ["a"] }), "remove"),
        ("sets/x", json!({ "add": vec!["a"; 41] }), "add"),
        ("sets/x", json!({ "remove": ["a"], "context": "AAAA" }), "context"),
        ("maps/x", json!({ "counters": { "a": "1" } }), "counters.a"),
        ("maps/x", json!({ "remove": [{ "field": "a", "kind": "set" }] }), "remove"),
        ("maps/x", json!({ "remove": [{ "field": "a", "kind": "list" }] }), "remove[0].kind"),
        ("presence/x", json!({ "member": "m" }), "ttlMillis"),
        ("presence/x", json!({ "member": "m", "ttlMillis": 1 }), "ttlMillis"),
        ("presence/x/leave", json!({ "member": "" }), "member"),
        ("counters/%01x", json!({ "add": 1 }), "name"),
    ] {
        let refused = baton.post(&format!("/v1/{path}"), body.clone()).await;
        assert_eq!(refused.field(), field, "{path} {body}");
    }
    for collection in ["counters", "sets", "registers", "maps"] {
        assert_eq!(baton.get(&format!("/v1/{collection}")).await.ok()["names"], json!([]), "{collection}");
    }
}

async fn watch(baton: &Baton, path: &str) -> Client {
    let mut client = baton.client().await;
    client.request("GET", path, b"").await;
    assert!(client.head().await.unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(client.chunk().await.unwrap(), ": watching\n\n");
    client
}

async fn next(client: &mut Client) -> (String, Value) {
    let chunk = tokio::time::timeout(PATIENCE, client.chunk()).await.expect("an event in time").unwrap();
    let line = |name: &str| chunk.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    (line("event: "), serde_json::from_str(&line("data: ")).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_how_it_is_and_what_changes() {
    let baton = Baton::start().await;
    let mut counter = watch(&baton, "/v1/counters/hits/watch").await;
    let mut register = watch(&baton, "/v1/registers/color/watch").await;
    let mut set = watch(&baton, "/v1/sets/tags/watch").await;
    let mut map = watch(&baton, "/v1/maps/m/watch").await;
    assert_eq!(next(&mut counter).await.1["value"], 0);
    assert_eq!(next(&mut register).await.1["exists"], false);
    // Neither of another name or kind, nor of another namespace.
    baton.post("/v1/sets/hits", json!({ "add": ["x"] })).await.ok();
    baton.post("/v1/sets/tags2", json!({ "add": ["x"] })).await.ok();
    baton.post("/v1/counters/hits?namespace=n", json!({ "add": 1 })).await.ok();
    baton.post("/v1/counters/hits", json!({ "add": 5 })).await.ok();
    let (name, data) = next(&mut counter).await;
    assert_eq!((name.as_str(), &data["value"]), ("value", &json!(5)));
    send(&baton, "PUT", "/v1/registers/color", json!({ "value": "red" })).await.ok();
    assert_eq!(next(&mut register).await.1["value"], "red");
    baton.post("/v1/sets/tags", json!({ "add": ["a", "b"] })).await.ok();
    let (name, data) = next(&mut set).await;
    assert_eq!(
        (name.as_str(), &data["added"], &data["removed"]),
        ("changed", &json!(["a", "b"]), &json!([]))
    );
    baton.post("/v1/sets/tags", json!({ "remove": ["a"] })).await.ok();
    let data = next(&mut set).await.1;
    assert_eq!((&data["added"], &data["removed"]), (&json!([]), &json!(["a"])));
    baton
        .post("/v1/maps/m", json!({ "counters": { "x": 1 }, "sets": { "y": { "add": ["1", "2"] } } }))
        .await
        .ok();
    let fields = json!([{ "field": "x", "kind": "counter" }, { "field": "y", "kind": "set" }]);
    assert_eq!(next(&mut map).await.1["fields"], fields);
}

async fn members(baton: &Baton) -> Vec<String> {
    let list = baton.get("/v1/presence/workers").await.ok();
    let members = list["members"].as_array().unwrap().iter();
    members.map(|member| member["member"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_there_until_it_leaves_or_is_not_heard_of_any_more() {
    let baton = Baton::start().await;
    for (member, ttl) in [("stays", 60_000), ("leaves", 60_000), ("falls silent", 300)] {
        let refresh = json!({ "member": member, "ttlMillis": ttl });
        baton.post("/v1/presence/workers", refresh).await.ok();
    }
    let first = baton.get("/v1/presence/workers?limit=1").await.ok();
    assert!(first["members"].as_array().unwrap().len() <= 1 && first["nextCursor"].is_string(), "{first}");
    baton.post("/v1/presence/workers/leave", json!({ "member": "leaves" })).await.ok();
    baton.until(async || members(&baton).await == ["stays"]).await;
    baton.post("/v1/presence/workers", json!({ "member": "falls silent", "ttlMillis": 60_000 })).await.ok();
    assert_eq!(members(&baton).await, ["falls silent", "stays"]);
    assert!(baton.get("/v1/presence/other").await.ok()["members"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_made_when_it_is_used_and_measured_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let baton = Baton::open(directory.path(), |_| {}).await;
    let replica = directory.path().join("data/replica");
    baton.acquire("k", "o").await;
    assert!(!replica.exists(), "who doesn't use it has none");
    baton.post("/v1/sets/tags", json!({ "add": ["a", "b"] })).await.ok();
    assert!(replica.is_dir());
    let metrics = baton.get("/metrics").await.text;
    for line in ["baton_replica_rows 2", "baton_replica_held 0"] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    baton.stopped().await;
    let state = directory.path().join("state");
    let baton = Baton::open(directory.path(), |config| config.state = Some(state.clone())).await;
    baton.post("/v1/counters/x", json!({ "add": 1 })).await.ok();
    assert!(state.join("replica").is_dir(), "the node's own files are where it is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_replica_is_in_use_serves_all_else_until_it_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let first = Baton::with(|config| config.state = Some(state.clone())).await;
    first.post("/v1/counters/x", json!({ "add": 1 })).await.ok();
    let second = Baton::with(|config| config.state = Some(state.clone())).await;
    second.acquire("k", "o").await;
    let refused = second.post("/v1/counters/x", json!({ "add": 1 })).await;
    assert_eq!(refused.code(503), "REPLICA_UNAVAILABLE");
    assert!(refused.json().get("outcome").is_none(), "nothing was done");
    first.stopped().await;
    assert_eq!(second.post("/v1/counters/x", json!({ "add": 1 })).await.ok()["value"], 2);
}
