//! Several locks at once: retries, waiting, renewing each, losing one, releasing all (L16).

use crate::scripted::{Act, Seen, Server, agree, eventually, granted_all, ms, refused};
use baton_client::{Baton, ErrorCode, TryAcquire};
use std::collections::HashSet;

fn keys(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|seen| seen.key.as_str()).collect()
}

#[tokio::test]
async fn each_lock_has_its_token_is_renewed_and_released_and_the_first_one_last() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let bundle = baton.bundle(["b", "a", "c"]).ttl(ms(300)).acquire().await.unwrap();
    assert_eq!(bundle.lock_keys().collect::<Vec<_>>(), ["b", "a", "c"]);
    let tokens = ["b", "a", "c", "d"].map(|key| bundle.fencing_token(key).map(|token| token.get()));
    assert_eq!(tokens, [Some(34), Some(35), Some(36), None]);
    let renewed = |key: &str| server.seen("renew").iter().any(|seen| seen.key == key);
    eventually("all are renewed", || ["a", "b", "c"].into_iter().all(renewed)).await;
    bundle.release().await.unwrap();
    let released = server.seen("release");
    assert_eq!(keys(&released).into_iter().collect::<HashSet<_>>().len(), 3);
    assert_eq!(keys(&released)[2], "a", "whoever waits stands in the first one's queue");
}

#[tokio::test]
async fn a_lost_reply_is_asked_for_again_with_the_same_request_id_and_the_same_locks() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("acquireAll", 1) => Act::Close,
        ("acquireAll", 2) => Act::Answer(503, refused("STORE_UNAVAILABLE")),
        ("acquireAll", 3) => Act::Answer(409, refused("STILL_WAITING")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    baton.bundle(["a", "b"]).acquire().await.unwrap();
    let seen = server.seen("acquireAll");
    let ids: HashSet<_> = seen.iter().map(|seen| seen.request_id().to_owned()).collect();
    assert_eq!((seen.len(), ids.len()), (4, 1));
    assert!(seen.iter().all(|seen| seen.body["wait"] == true && seen.body["lockKeys"][1] == "b"));
}

#[tokio::test]
async fn trying_says_which_lock_is_held_and_by_whom() {
    let server = Server::start(|_| {
        let mut refusal = refused("LOCK_ALREADY_HELD");
        refusal["lockKey"] = "b".into();
        Act::Answer(409, refusal)
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let tried = baton.bundle(["a", "b"]).try_acquire().await.unwrap();
    let TryAcquire::Held(held) = tried else { panic!("not granted") };
    assert_eq!((held.lock_key.as_deref(), held.owner.as_deref()), (Some("b"), Some("someone")));
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn when_one_is_lost_all_are_and_the_work_is_dropped() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.key.as_str()) {
        ("renew", "b") => Act::Answer(409, refused("LOCK_EXPIRED")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lost = baton.bundle(["a", "b"]).ttl(ms(300)).run(|_| std::future::pending::<()>()).await;
    let error = lost.unwrap_err();
    assert_eq!(error.lease_lost().unwrap().lock_key(), "b");
    eventually("the other one is given back", || keys(&server.seen("release")).contains(&"a")).await;
    let bundle = baton.bundle(["a", "b"]).ttl(ms(300)).acquire().await.unwrap();
    assert!(!bundle.is_lost());
    assert_eq!(bundle.lost().await.lock_key(), "b");
    assert!(bundle.is_lost() && bundle.lease().remaining().is_zero());
}

#[tokio::test]
async fn an_answer_that_took_long_is_renewed_before_anybody_sees_it_and_starts_anew_if_it_was_too_late() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("acquireAll", _) => Act::After(ms(60), 200, granted_all(seen)),
        ("renew", 1 | 2) => Act::Answer(409, refused("LOCK_EXPIRED")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let bundle = baton.bundle(["a", "b"]).ttl(ms(400)).acquire().await.unwrap();
    assert!(!bundle.is_lost());
    let seen = server.seen("acquireAll");
    assert!(seen.len() == 2 && seen[0].request_id() != seen[1].request_id());
    assert!(server.seen("renew").len() >= 4);
}

#[tokio::test]
async fn dropping_it_releases_all_in_the_background() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    drop(baton.bundle(["a", "b"]).acquire().await.unwrap());
    eventually("both are released", || server.seen("release").len() == 2).await;
}

#[tokio::test]
async fn dropping_the_wait_closes_its_connection() {
    let server = Server::start(|_| Act::Hang).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let waiting = tokio::spawn(baton.bundle(["a", "b"]).acquire());
    eventually("it waits", || server.requests() == 1).await;
    waiting.abort();
    eventually("it has left", || server.left() == 1).await;
}

#[tokio::test]
async fn bad_input_is_refused_without_a_call() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    for bundle in [
        baton.bundle(Vec::<String>::new()),
        baton.bundle(["a", "a"]),
        baton.bundle(["a"; 17]),
        baton.bundle(["a", ""]),
        baton.bundle(["a"]).ttl(ms(99)),
        baton.bundle(["a"]).namespace(""),
    ] {
        let error = bundle.try_acquire().await.unwrap_err();
        assert!(error.is_invalid() && error.code() == Some(ErrorCode::InvalidArgument), "{error}");
    }
    assert_eq!(server.requests(), 0);
}
