//! PostgreSQL's schema over its versions: what older ones left is kept, and nodes of two of them work side by side.

use super::postgres::{done, get, opened, put, recovered, server};
use baton_core::Revision;
use baton_testkit::servers::postgres::Postgres;

/// As it was before the newest.
const VERSION_3: [&str; 3] = [
    include_str!("../../src/postgres/schema-1.sql"),
    include_str!("../../src/postgres/schema-2.sql"),
    include_str!("../../src/postgres/schema-3.sql"),
];

fn make_version_3(server: &Postgres) {
    let migrations = VERSION_3.join("").replace("@schema@", "baton");
    let version = "CREATE TABLE baton.schema_version (version integer NOT NULL); INSERT INTO baton.schema_version VALUES (3)";
    server.sql(&format!("CREATE SCHEMA baton; {version}; {migrations}")).unwrap();
}

/// Puts a record as a node of that version does, to live for so many microseconds or for ever.
fn put_by_version_3(server: &Postgres, name: &str, ttl_us: Option<u64>) -> Revision {
    let ttl = ttl_us.map_or("NULL".into(), |ttl| ttl.to_string());
    let answer = server
        .sql(&format!(
            "SELECT revision FROM baton.commit_batch('{{1}}', '{{7}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{1}}', \
             ARRAY['{name}'::bytea], ARRAY['old'::bytea], ARRAY[{ttl}]::bigint[], '{{}}', '{{}}', '{{}}', '{{}}') \
             WHERE place = 0"
        ))
        .unwrap();
    Revision(answer.trim().parse().unwrap())
}

fn version(server: &Postgres) -> String {
    server.sql("SELECT version FROM baton.schema_version").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_version_before_left_is_kept_and_its_nodes_go_on_beside_those_of_this_one() {
    let server = server().await;
    make_version_3(&server);
    let kept = put_by_version_3(&server, "kept", None);
    put_by_version_3(&server, "leased", Some(600_000_000));
    put_by_version_3(&server, "expired", Some(1));
    let store = opened(&server).await;
    assert_eq!(version(&server), "4");
    let record = get(&store, "kept").await.expect("it is kept");
    assert_eq!((&record.value[..], record.created, record.revision), (&b"old"[..], kept, kept));
    assert_eq!((record.touches, record.expires_in), (0, None));
    let leased = get(&store, "leased").await.expect("it is kept");
    assert!(leased.expires_in.is_some_and(|left| left.as_secs() > 500), "{leased:?}");
    assert_eq!(get(&store, "expired").await, None);
    let mut last = kept;
    for round in 0..10 {
        let by_new = done(&store, vec![], vec![put("kept", &round.to_string())]).await;
        let by_old = put_by_version_3(&server, "kept", None);
        assert!(last < by_new && by_new < by_old, "{last:?}, {by_new:?}, {by_old:?}");
        last = by_old;
    }
    let record = get(&store, "kept").await.expect("it is kept");
    assert_eq!((&record.value[..], record.created, record.revision), (&b"old"[..], kept, last));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_the_version_before_that_is_restored_under_running_nodes_is_brought_up_to_date() {
    let server = server().await;
    make_version_3(&server);
    put_by_version_3(&server, "kept", None);
    let dump = server.dump("baton").unwrap();
    let store = opened(&server).await;
    let last = done(&store, vec![], vec![put("lost", "1")]).await;
    server.sql(&format!("DROP SCHEMA baton CASCADE; {dump}")).unwrap();
    let next = recovered(&store, put("a", "1")).await;
    assert!(next > last, "{next:?} after {last:?}");
    assert_eq!(version(&server), "4");
    assert!(get(&store, "kept").await.is_some());
    assert_eq!(get(&store, "lost").await, None);
}
