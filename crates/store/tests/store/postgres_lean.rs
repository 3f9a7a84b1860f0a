//! PostgreSQL: that a commit asks no more of the server than it has to.

use super::postgres::{PATIENCE, done, key, opened, put};
use baton_core::{Check, Write};
use baton_testkit::servers::postgres::Postgres;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_looks_for_names_by_index_and_writes_where_they_lie() {
    let mut server = Postgres::new().unwrap();
    let explain = ["session_preload_libraries=auto_explain", "auto_explain.log_nested_statements=on"];
    server.start_with(&[&explain[..], &["auto_explain.log_min_duration=0"]].concat()).await.unwrap();
    let store = opened(&server).await;
    let first = done(&store, vec![], vec![put("a", "1"), put("b", "1"), put("c", "1")]).await;
    let writes = vec![
        put("a", "2"),
        Write::Touch { key: key("b"), ttl: PATIENCE },
        Write::Delete { key: key("c") },
        put("d", "1"),
    ];
    done(&store, vec![Check::At(key("a"), first)], writes).await;
    let log = server.log().unwrap();
    let plans: Vec<_> = log.split("Query Text: ").filter(|plan| plan.starts_with("WITH found AS")).collect();
    assert_eq!(plans.len(), 2, "{log}");
    for plan in plans {
        let plan = plan.split("LOG:").next().unwrap();
        let has = |text: &str| plan.matches(text).count();
        assert_eq!((has("Index Scan using records_pkey"), has("Tid Scan on records")), (1, 2), "{plan}");
        assert_eq!(has("Seq Scan on records"), 0, "{plan}");
    }
}

/// Messages that tell others of this schema more than that somebody is there; and how often that was said.
fn told(server: &Postgres) -> (Vec<String>, usize) {
    let log = server.log().unwrap();
    let messages = log.split("parameters: $1 = 'baton_baton', $2 = '{").skip(1);
    let messages = messages.flat_map(|rest| rest.split('}').next().unwrap_or_default().split(','));
    let (here, told): (Vec<_>, _) = messages.map(str::to_owned).partition(|message| message.len() <= 16);
    (told, here.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_alone_tells_nothing_and_whoever_comes_is_told_of_a_gap() {
    let mut server = Postgres::new().unwrap();
    server.start_with(&["log_statement=all"]).await.unwrap();
    let store = opened(&server).await;
    let until = Instant::now() + PATIENCE;
    let mut look = tokio::time::interval(Duration::from_millis(5));
    loop {
        let (before, here) = told(&server);
        done(&store, vec![], vec![put("a", "")]).await;
        // What is to be told is told before the next time that it says it is there.
        while told(&server).1 < here + 2 {
            look.tick().await;
            assert!(Instant::now() < until, "it doesn't say that it is there");
        }
        if told(&server).0.len() == before.len() {
            break;
        }
        assert!(Instant::now() < until, "it tells what nobody hears");
    }
    let before = told(&server).0.len();
    // A node of an older version says nothing by itself, but looks for what has expired.
    server.sql("SELECT * FROM baton.due_records(1)").unwrap();
    while told(&server).0.len() == before {
        look.tick().await;
        assert!(Instant::now() < until, "nobody says that something was left out");
    }
    assert_eq!(&told(&server).0[before][16..], "04", "what was left out is lost");
    done(&store, vec![], vec![put("b", "")]).await;
    while told(&server).0.len() == before + 1 {
        look.tick().await;
        assert!(Instant::now() < until, "it tells nothing though somebody is there");
    }
}
