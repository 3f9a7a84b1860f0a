//! What the limiter says about its leases, and when: what it must not lose, whoever goes away meanwhile.

use crate::scripted::{Act, Seen, Server, eventually, ms};
use baton_client::Baton;
use baton_client::limit::Checked;
use baton_client::limiter::Limiter;
use baton_client::wire_limit::Identity;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Lends what is wanted, under a name of the server's own.
fn lent(seen: &Seen) -> Value {
    let number = |name: &str| seen.body[name].as_u64().unwrap();
    json!({
        "leaseId": "as-the-server-calls-it", "granted": number("kept") + number("want"), "ttlMillis": 10_000, "size": 100,
        "limit": 1_000_000, "remaining": 900_000, "resetMillis": 1_000, "version": 1,
    })
}

fn passed() -> Act {
    Act::Answer(
        200,
        json!({"allowed": true, "limit": 1_000_000, "remaining": 900_000, "resetMillis": 1_000, "source": "central"}),
    )
}

async fn source(limiter: &Limiter) -> String {
    match limiter.check("acme", 1).await.unwrap() {
        Checked::Allowed(allowed) => allowed.source,
        Checked::Refused(refused) => panic!("{refused:?}"),
    }
}

#[tokio::test]
async fn closing_waits_for_a_lease_that_is_on_its_way_and_gives_it_back() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("lease", 1) => Act::After(ms(150), 200, lent(seen)),
        ("lease", _) => Act::Answer(200, lent(seen)),
        _ => passed(),
    })
    .await;
    let limiter = Baton::connect(server.url()).await.unwrap().limiter("api");
    assert_eq!(source(&limiter).await, "central");
    assert_eq!(limiter.check_now("acme", 1), None, "it is asked for, and nobody waits for it");
    limiter.close().await;
    let said: Vec<_> = server.seen("lease").into_iter().map(|seen| seen.body).collect();
    let numbers =
        |body: &Value| ["sequence", "want", "spent", "kept"].map(|name| body[name].as_u64().unwrap());
    assert_eq!(said.iter().map(numbers).collect::<Vec<_>>(), [[1, 100, 0, 0], [2, 0, 0, 0]]);
    assert_eq!(said[1]["leaseId"], "as-the-server-calls-it", "from its answer on");
}

#[tokio::test]
async fn a_limiter_for_those_who_are_not_known_says_so_and_holds_no_more_than_it_is_told_to() {
    let server = Server::start(|seen| match seen.operation.as_str() {
        "lease" => {
            let mut body = lent(seen);
            body["slack"] =
                json!({ "maxTtlMillis": 60_000, "syncMillis": 60_000, "low": 0, "left": 900_000, "maxSize": 7 });
            Act::Answer(200, body)
        }
        _ => passed(),
    })
    .await;
    let known = Baton::connect(server.url()).await.unwrap().limiter("api");
    let strangers = known.identity(Identity::Anonymous);
    for limiter in [&strangers, &known] {
        assert_eq!(source(limiter).await, "central");
        assert_eq!(source(limiter).await, "renewed");
    }
    let identities = |operation| {
        let seen = server.seen(operation);
        seen.iter().map(|seen| seen.body["identity"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(identities("check"), [json!("anonymous"), json!(null)]);
    assert_eq!(identities("lease"), [json!("anonymous"), json!(null)]);
    // It asked for as much as one asks for first, and for no more than it may have from then on.
    for _ in 0..99 {
        assert_eq!(strangers.check_now("acme", 1), Some(true));
    }
    eventually("it asks for more", || server.seen("lease").len() > 2).await;
    let said = server.seen("lease")[2].body.clone();
    let number = |name: &str| said[name].as_u64().unwrap();
    assert!(number("kept") + number("want") <= 7, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_although_somebody_goes_on_checking() {
    let server = Server::start(|seen| match seen.operation.as_str() {
        "lease" => Act::After(ms(5), 200, lent(seen)),
        _ => passed(),
    })
    .await;
    let baton = Baton::builder().call_timeout(ms(300)).connect(server.url()).await.unwrap();
    let limiter = baton.limiter("api");
    let mut busy = JoinSet::new();
    for key in 0..16_u64 {
        let limiter = limiter.clone();
        busy.spawn(async move {
            loop {
                // Nearly all that a lease has, so that one is always asked for.
                assert!(limiter.check(key, 90).await.unwrap().is_allowed());
            }
        });
    }
    eventually("it is busy", || server.seen("lease").len() > 100).await;
    let closing = tokio::spawn(async move { limiter.close().await });
    let is_over = tokio::time::timeout(ms(10_000), closing).await;
    busy.shutdown().await;
    is_over.expect("it ends").unwrap();
}

#[tokio::test]
async fn what_a_runtime_asked_for_that_was_shut_down_is_asked_for_again() {
    let server = Server::start(|seen| match seen.operation.as_str() {
        "lease" => Act::Answer(200, lent(seen)),
        _ => passed(),
    })
    .await;
    let limiter = Baton::connect(server.url()).await.unwrap().limiter("api");
    assert_eq!(source(&limiter).await, "central");
    // Nobody drives this one, so what is asked for within it doesn't leave.
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    {
        let _within = other.enter();
        assert_eq!(limiter.check_now("acme", 1), None);
    }
    assert!(server.seen("lease").is_empty());
    other.shutdown_background();
    assert_eq!(source(&limiter).await, "renewed", "nobody waits for an answer to what was never said");
    limiter.close().await;
}
