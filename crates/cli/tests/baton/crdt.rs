//! Counters, sets, registers and maps on real processes: what was answered survives `kill -9`, a retry counts once, and the SDK sends it to the
//! node that may have done it (D2, D9).

use crate::http::{get, post};
use crate::process::eventually;
use crate::server::Server;
use baton_client::{Baton, ListQuery};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn count(url: &str) -> i64 {
    get(url, "/v1/counters/hits", PATIENCE).unwrap().body["value"].as_i64().unwrap()
}

#[test]
fn what_was_answered_survives_a_kill_and_a_retry_counts_once() {
    let mut server = Server::start_on_a_fixed_port();
    let (sent, answered) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let add = |url: &str, number: i64| {
        let body = json!({ "add": 1, "writer": "w", "requestId": format!("r{number}") });
        post(url, "/v1/counters/hits", &body, PATIENCE)
    };
    let writer = {
        let (url, sent, answered) = (server.url.clone(), sent.clone(), answered.clone());
        std::thread::spawn(move || {
            loop {
                let number = sent.fetch_add(1, Ordering::SeqCst);
                match add(&url, number) {
                    Ok(answer) => assert_eq!(answer.status, 200, "{answer:?}"),
                    Err(_) => return,
                }
                answered.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    eventually("writes are answered", || answered.load(Ordering::SeqCst) >= 20);
    server.kill();
    writer.join().unwrap();
    server.restart();
    let (sent, answered) = (sent.load(Ordering::SeqCst), answered.load(Ordering::SeqCst));
    let kept = count(&server.url);
    assert!(answered <= kept && kept <= sent, "{answered} answered, {kept} kept, {sent} sent");
    for number in 0..sent {
        let again = add(&server.url, number).unwrap();
        assert_eq!(again.body["replayed"] == true, number < kept, "{number}: {again:?}");
    }
    assert_eq!(count(&server.url), sent);
}

/// A node that takes requests and dies of each: nobody knows what it did. Gives where it is, and what was asked of it.
fn fatal_node() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let log = asked.clone();
    // Ends with the test's process; each connection is of a client that waits for at most its time-out.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let log = log.clone();
            std::thread::spawn(move || {
                let (mut text, mut buffer) = (String::new(), [0; 4096]);
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    text.push_str(&String::from_utf8_lossy(&buffer[..read]));
                    if text.contains("requestId") && text.ends_with('}') {
                        log.lock().unwrap().push(text);
                        return;
                    }
                }
            });
        }
    });
    (url, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_may_have_been_done_is_not_sent_to_another_node() {
    let ((first, asked), second) = (fatal_node(), Server::start());
    let builder = Baton::builder().call_timeout(Duration::from_millis(1500));
    let baton = builder.connect(format!("{first},{}", second.url)).await.unwrap();
    let error = baton.counter("hits").add(10).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(count(&second.url), 0, "another node would count it again");
    let asked = asked.lock().unwrap();
    let ids: BTreeSet<_> = asked.iter().map(|text| text.rsplit("requestId").next().unwrap()).collect();
    assert!(asked.len() > 1 && ids.len() == 1, "sent again as it was: {asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_left_goes_to_another_node_and_a_tally_is_exact_at_any() {
    let (mut first, second) = (Server::start(), Server::start());
    let both = format!("{},{}", first.url, second.url);
    let baton = Baton::connect(&both).await.unwrap();
    let tally = baton.counter("hits").tally("writer-1");
    assert_eq!(tally.add(5).await.unwrap().value, 5);
    first.kill();
    assert_eq!(tally.add(-2).await.unwrap().value, 3, "the other node hears of all of it");
    assert_eq!(tally.tell().await.unwrap().value, 3);
    assert_eq!(baton.counter("others").add(1).await.unwrap().value, 1);
    assert_eq!((tally.total().added, tally.total().taken), (5, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_writes_reads_and_removes_what_was_seen() {
    let server = Server::start();
    let baton = Baton::builder().namespace("n").connect(&server.url).await.unwrap();
    let written = baton.counter("views").grow_only().add(3).await.unwrap();
    let views = baton.counter("views").grow_only().after(written.context);
    assert_eq!((views.value().await.unwrap(), baton.counter("views").value().await.unwrap()), (3, 0));

    let tags = baton.set("tags");
    tags.add(["a", "b"]).await.unwrap();
    let seen = tags.page(10, None).await.unwrap();
    tags.add(["a"]).await.unwrap();
    tags.clone().seen(seen.context).remove(["a", "b"]).await.unwrap();
    assert_eq!(tags.members().await.unwrap(), ["a"]);
    assert!(tags.contains("a").await.unwrap() && !tags.contains("b").await.unwrap());
    tags.change(["c"], ["a"]).await.unwrap();
    assert_eq!(tags.members().await.unwrap(), ["c"]);

    let theme = baton.register("theme");
    assert_eq!(theme.get::<String>().await.unwrap(), None);
    theme.put(&"dark").await.unwrap();
    assert_eq!(theme.get::<String>().await.unwrap().as_deref(), Some("dark"));
    theme.put(&Value::Null).await.unwrap();
    assert_eq!(theme.get::<Option<String>>().await.unwrap(), Some(None), "null is a value");
    theme.remove().await.unwrap();
    assert_eq!(theme.get::<Value>().await.unwrap(), None);
    let cart = baton.register("cart").multi_value();
    let empty = cart.read().await.unwrap().context;
    for value in [1, 2] {
        cart.clone().seen(empty.clone()).put(&value).await.unwrap();
    }
    assert_eq!(cart.values::<u8>().await.unwrap(), [2, 1]);

    let map = baton.map("page");
    map.clone()
        .add("views", 2)
        .grow("views", 1)
        .insert("tags", ["x"])
        .put("theme", &1.5)
        .write()
        .await
        .unwrap();
    let page = map.read().await.unwrap();
    assert_eq!((page.counters["views"], page.grow_counters["views"]), (2, 1));
    assert_eq!((page.sets["tags"].as_slice(), page.registers["theme"].get()), (&["x".to_owned()][..], "1.5"));

    let workers = baton.presence("workers");
    workers.refresh("pod-1", Duration::from_secs(60)).await.unwrap();
    workers.refresh("pod-2", Duration::from_secs(60)).await.unwrap();
    workers.leave("pod-1").await.unwrap();
    let members = workers.members().await.unwrap();
    assert_eq!(members.iter().map(|member| member.member.as_str()).collect::<Vec<_>>(), ["pod-2"]);
    assert_eq!(baton.sets(&ListQuery::default()).await.unwrap().names[0].name, "tags");
    assert!(baton.set("tags").add([""]).await.unwrap_err().is_invalid());
}

#[test]
fn the_shell_counts_collects_and_sets() {
    let server = Server::start();
    let said = |arguments: &[&str]| {
        let output = server.run(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
        output.stdout
    };
    assert_eq!(said(&["counter", "get", "views"]), "0\n");
    assert_eq!(said(&["counter", "add", "views", "5"]), "5\n");
    assert_eq!(said(&["counter", "add", "views", "-7"]), "-2\n");
    assert_eq!(said(&["counter", "add", "views", "1", "--grow-only"]), "1\n");
    assert!(said(&["counter", "ls"]).contains("grow-counter"));
    said(&["counter", "rm", "views"]);
    assert_eq!(said(&["counter", "get", "views"]), "0\n");
    said(&["set", "add", "tags", "new", "sale"]);
    said(&["set", "rm", "tags", "sale"]);
    assert_eq!(said(&["set", "get", "tags"]), "new\n");
    assert_eq!(
        (server.run(&["set", "has", "tags", "new"]).code, server.run(&["set", "has", "tags", "x"]).code),
        (0, 1)
    );
    let page: Value = serde_json::from_str(&said(&["set", "get", "tags", "--output", "json"])).unwrap();
    assert_eq!(page["elements"], json!(["new"]));
    assert_eq!(server.run(&["register", "get", "theme"]).code, 69);
    assert_eq!(server.run(&["register", "put", "theme", "dark"]).code, 64, "it isn't JSON");
    said(&["register", "put", "theme", "\"dark\""]);
    assert_eq!(said(&["register", "get", "theme"]), "\"dark\"\n");
    said(&[
        "map",
        "put",
        "page",
        "--counter",
        "views=1",
        "--add",
        "tags=a",
        "--add",
        "tags=b",
        "--register",
        "theme=[1]",
    ]);
    let map = said(&["map", "get", "page"]);
    for row in ["views  counter   1", "tags   set       a, b", "theme  register  [1]"] {
        let wanted: Vec<_> = row.split_whitespace().collect();
        assert!(
            map.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == wanted),
            "{row} in\n{map}"
        );
    }
    assert!(said(&["map", "ls"]).contains("page"));
    let advice = said(&["advise", "--operation", "is the user name taken?"]);
    assert!(advice.contains("yes") && advice.contains("once"), "{advice}");
}
