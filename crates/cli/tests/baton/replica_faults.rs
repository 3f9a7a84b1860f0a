//! Three servers that share no store: cut off in every way, put back to an old copy, with a clock that is wrong, and asked at one of them
//! for what was written at another (D2, D3, D8, D9, D12).

use crate::clocks;
use crate::http::{Answer, get, post, put, text};
use crate::process::eventually;
use crate::replicas::{Cluster, PATIENCE, REPLICAS, SOON, elements, insist};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

const SYNC: &str = "200ms";

fn counted(url: &str) -> Value {
    get(url, "/v1/counters/hits", SOON).unwrap().body["value"].clone()
}

fn color(url: &str) -> Value {
    get(url, "/v1/registers/color", SOON).unwrap().body["value"].clone()
}

fn set_color(url: &str, color: &str) -> Answer {
    put(url, "/v1/registers/color", &json!({ "value": color }), SOON).unwrap()
}

fn set_tags(url: &str, add: &[&str], remove: &[&str]) {
    insist(url, "/v1/sets/tags", &json!({ "add": add, "remove": remove }));
}

/// Whether each peer of a server is reachable.
fn reached(cluster: &Cluster, at: usize) -> Vec<bool> {
    let status = &cluster.statuses()[at];
    status["peers"].as_array().unwrap().iter().map(|peer| peer["reachable"] == true).collect()
}

/// A write of each kind is taken at once: an answer may be late on a busy machine, and is asked for again; a refusal may not be.
fn writes_promptly(url: &str, what: &str) {
    let writes: [&dyn Fn() -> std::io::Result<Answer>; 3] = [
        &|| post(url, "/v1/counters/hits", &json!({ "add": 1, "writer": url, "requestId": what }), PATIENCE),
        &|| post(url, "/v1/sets/tags", &json!({ "add": [format!("{what} {url}")] }), PATIENCE),
        &|| put(url, "/v1/registers/color", &json!({ "value": what }), PATIENCE),
    ];
    for write in writes {
        let mut answers = (0..5).filter_map(|_| write().ok());
        let answer = answers.next().unwrap_or_else(|| panic!("{what}: no answer within {PATIENCE:?}"));
        assert_eq!(answer.status, 200, "{what}: {}", answer.body);
    }
}

#[test]
fn writes_go_on_while_any_two_or_all_are_cut_off() {
    let cluster = Cluster::start(SYNC);
    let urls = cluster.urls();
    let mut rounds = 0;
    let mut tell = |what: &str| {
        urls.iter().for_each(|url| writes_promptly(url, what));
        rounds += 1;
    };
    cluster.cut(|_, _| true);
    tell("all");
    eventually("nobody reaches anybody", || (0..REPLICAS).all(|at| reached(&cluster, at) == [false, false]));
    tell("all, and it is known");
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        cluster.heal();
        cluster.cut(|from, to| [(one, other), (other, one)].contains(&(from, to)));
        tell(&format!("{one} and {other}"));
        let reach = |at| reached(&cluster, at).iter().filter(|reached| **reached).count();
        eventually("those two don't reach each other", || reach(one) == 1 && reach(other) == 1);
        tell(&format!("{one} and {other}, and it is known"));
    }
    cluster.heal();
    cluster.equal(0);
    for url in &urls {
        assert_eq!(counted(url), rounds * REPLICAS, "each once");
        assert_eq!(elements(url).len(), rounds * REPLICAS);
        assert_eq!(color(url), color(&urls[0]));
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_server_that_is_put_back_to_an_old_copy_brings_nothing_back_and_loses_nothing() {
    let mut cluster = Cluster::start(SYNC);
    let urls = cluster.urls();
    for (at, url) in urls.iter().enumerate() {
        insist(url, "/v1/counters/hits", &json!({ "add": 10 }));
        set_tags(url, &[&format!("stays {at}"), &format!("goes {at}")], &[]);
    }
    set_color(&urls[2], "red");
    cluster.equal(0);
    cluster.servers[2].stop();
    let (data, old) = (cluster.servers[2].file("data"), cluster.servers[2].file("old"));
    copy(&data, &old);
    cluster.servers[2].restart();
    let put_back = |cluster: &mut Cluster| {
        cluster.servers[2].kill();
        std::fs::remove_dir_all(&data).unwrap();
        copy(&old, &data);
        cluster.servers[2].restart();
    };
    let mut expected: Vec<_> = (0..REPLICAS).map(|at| format!("stays {at}")).collect();
    // What it wrote after the copy is written at others too.
    for (at, url) in urls.iter().enumerate() {
        insist(url, "/v1/counters/hits", &json!({ "add": 100 }));
        set_tags(url, &[&format!("new {at}")], &[&format!("goes {}", (at + 1) % REPLICAS)]);
        expected.push(format!("new {at}"));
    }
    cluster.equal(1);
    set_color(&urls[0], "blue");
    cluster.equal(2);
    let has_all = |cluster: &Cluster, expected: &mut Vec<String>, count: u64| {
        expected.sort();
        for url in cluster.urls() {
            assert_eq!((counted(&url), color(&url)), (json!(count), json!("blue")));
            assert_eq!(elements(&url).into_iter().collect::<Vec<_>>(), *expected);
        }
    };
    has_all(&cluster, &mut expected, 330);
    put_back(&mut cluster);
    cluster.equal(3);
    has_all(&cluster, &mut expected, 330);
    // And once more, and now it writes before it has heard of anything.
    cluster.cut(|from, to| from == 2 || to == 2);
    put_back(&mut cluster);
    assert_eq!((counted(&urls[2]), color(&urls[2])), (json!(30), json!("red")), "it is the old copy");
    assert!(elements(&urls[2]).contains("goes 0"));
    insist(&urls[2], "/v1/counters/hits", &json!({ "add": 1000 }));
    set_tags(&urls[2], &["late"], &[]);
    expected.push("late".into());
    cluster.heal();
    cluster.equal(4);
    has_all(&cluster, &mut expected, 1330);
}

#[test]
fn a_writer_s_total_counts_once_wherever_it_is_said() {
    let cluster = Cluster::start(SYNC);
    let urls = cluster.urls();
    let total = |url: &str, added: u64| {
        insist(url, "/v1/counters/hits", &json!({ "total": { "added": added }, "writer": "the one" }));
    };
    total(&urls[0], 5);
    cluster.equal(0);
    cluster.cut(|_, _| true);
    total(&urls[1], 7);
    // Said again where it was said before, and not known to be more.
    total(&urls[0], 5);
    assert_eq!((counted(&urls[0]), counted(&urls[1])), (json!(5), json!(7)));
    cluster.heal();
    cluster.equal(0);
    assert_eq!(urls.iter().map(|url| counted(url)).collect::<Vec<_>>(), [7, 7, 7]);
}

/// Follows a counter until it counts that much.
fn follow(url: &str, count: u64, begun: impl FnOnce()) {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"GET /v1/counters/hits/watch HTTP/1.1\r\nhost: baton\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.find(|line| line.contains("\"value\":0")).expect("it says how it is at first");
    begun();
    lines.find(|line| line.contains(&format!("\"value\":{count}"))).expect("it says what it becomes");
}

#[test]
fn whoever_asks_elsewhere_after_a_write_waits_until_it_is_there_and_who_watches_sees_it() {
    let cluster = Cluster::start(SYNC);
    let urls = cluster.urls();
    assert_eq!(counted(&urls[1]), 0);
    cluster.cut(|_, _| true);
    let written = post(&urls[0], "/v1/counters/hits", &json!({ "add": 5 }), SOON).unwrap().body;
    let context = written["context"].as_str().unwrap();
    let after =
        |millis: u64| get(&urls[1], &format!("/v1/counters/hits?after={context}&waitMillis={millis}"), SOON);
    let behind = after(0).unwrap();
    assert_eq!((behind.status, behind.code()), (503, "REPLICA_BEHIND"));
    std::thread::scope(|scope| {
        follow(&urls[1], 5, || {
            let waiting = scope.spawn(|| after(30_000).unwrap());
            cluster.heal();
            let read = waiting.join().unwrap();
            assert_eq!((read.status, &read.body["value"]), (200, &json!(5)), "{}", read.body);
        });
    });
}

#[test]
fn a_clock_that_is_wrong_holds_up_registers_and_nothing_else() {
    let mut cluster = Cluster::start(SYNC);
    let urls = cluster.urls();
    assert_eq!(set_color(&urls[2], "red").status, 200);
    cluster.equal(0);
    let restart = |cluster: &mut Cluster, offset: &str| {
        let mut variables = cluster.variables(2, SYNC);
        variables.extend(clocks::variables(offset));
        cluster.servers[2].stop();
        cluster.servers[2].set_variables(variables);
        cluster.servers[2].restart();
    };
    // It fell back: it can't say any more which write is the last.
    restart(&mut cluster, "-5m");
    let refused = set_color(&urls[2], "blue");
    assert_eq!((refused.status, refused.code()), (503, "CLOCK_SKEW"), "{}", refused.body);
    insist(&urls[2], "/v1/counters/hits", &json!({ "add": 1 }));
    cluster.equal(1);
    assert_eq!(color(&urls[0]), "red");
    // It is ahead: the others wait with what it says, and go on with all else.
    restart(&mut cluster, "+5m");
    assert_eq!(set_color(&urls[2], "of the future").status, 200);
    insist(&urls[2], "/v1/counters/hits", &json!({ "add": 1 }));
    for url in &urls[..2] {
        let held = || get(url, "/v1/replication", SOON).unwrap().body["replica"]["held"].clone();
        eventually("it is held, and counted", || held() == 1 && counted(url) == 2);
        assert!(text(url, "/metrics", SOON).contains("\nbaton_replica_held 1"));
        assert_eq!(color(url), "red");
    }
    assert_eq!(set_color(&urls[0], "green").status, 200);
    eventually("the others agree on what they have", || color(&urls[1]) == "green");
    assert_eq!(color(&urls[0]), "green");
}
