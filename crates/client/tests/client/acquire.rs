//! Acquiring: retries, refusals, time-outs, waiting and leaving.

use crate::scripted::{Act, Server, agree, eventually, granted, ms, refused};
use baton_client::{Baton, ErrorCode, TryAcquire};
use std::collections::HashSet;
use std::time::Instant;

#[tokio::test]
async fn a_lost_reply_is_asked_for_again_with_the_same_request_id() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("acquire", 1) => Act::Close,
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lock = baton.lock("k").acquire().await.unwrap();
    assert_eq!(lock.fencing_token().get(), 34);
    let ids: HashSet<_> = server.seen("acquire").iter().map(|seen| seen.request_id().to_owned()).collect();
    assert_eq!((server.seen("acquire").len(), ids.len()), (2, 1));
}

#[tokio::test]
async fn a_503_is_retried_under_one_request_id_and_other_calls_have_their_own() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("acquire", 1 | 2) => Act::Answer(503, refused("STORE_UNAVAILABLE")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    baton.lock("k").acquire().await.unwrap().release().await.unwrap();
    baton.lock("k").acquire().await.unwrap();
    let ids: Vec<_> = server.seen("acquire").iter().map(|seen| seen.request_id().to_owned()).collect();
    assert_eq!(ids.len(), 4);
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
}

#[tokio::test]
async fn no_answer_is_unknown_and_never_no() {
    let server = Server::start(|_| Act::Hang).await;
    let baton = Baton::builder().call_timeout(ms(200)).connect(server.url()).await.unwrap();
    let began = Instant::now();
    let error = baton.lock("k").try_acquire().await.unwrap_err();
    assert!(error.is_unknown() && !error.is_not_acquired() && error.code().is_none(), "{error}");
    assert!(error.to_string().contains("unknown"), "{error}");
    assert!(began.elapsed() < ms(2_000), "the deadline holds");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable_and_nothing_was_applied() {
    let gone = Server::start(agree).await.url();
    let error = Baton::connect(&gone).await.unwrap_err();
    assert!(error.is_unreachable() && !error.is_unknown(), "{error}");
}

#[tokio::test]
async fn a_held_lock_is_an_outcome_that_says_who_has_it() {
    let server = Server::start(|_| Act::Answer(409, refused("LOCK_ALREADY_HELD"))).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let TryAcquire::Held(held) = baton.lock("k").try_acquire().await.unwrap() else { panic!("not granted") };
    assert_eq!((held.owner.as_deref(), held.queue_length), (Some("someone"), 2));
    assert_eq!(server.requests(), 1, "a refusal is an answer, not a reason to ask again");
}

#[tokio::test]
async fn bad_input_is_refused_without_a_call() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    for lock in [
        baton.lock(""),
        baton.lock("k").ttl(ms(99)),
        baton.lock("k").owner(""),
        baton.lock("k").namespace(""),
    ] {
        let error = lock.try_acquire().await.unwrap_err();
        assert!(error.is_invalid() && error.code() == Some(ErrorCode::InvalidArgument), "{error}");
    }
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_wait_goes_on_with_the_request_id_that_still_waiting_returns() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("acquire", 1) => Act::Answer(409, refused("LOCK_ALREADY_HELD")),
        ("acquire", 2) => {
            let mut body = refused("STILL_WAITING");
            body["requestId"] = "the-server-s".into();
            Act::Answer(409, body)
        }
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    baton.lock("k").acquire().await.unwrap();
    let seen = server.seen("acquire");
    assert_eq!(seen.iter().map(|seen| seen.body["wait"] == true).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(seen[0].request_id(), seen[1].request_id());
    assert_eq!(seen[2].request_id(), "the-server-s");
}

#[tokio::test]
async fn the_wait_limit_is_sent_and_shrinks() {
    let server = Server::start(|seen| match seen.number {
        1 => Act::Answer(409, refused("LOCK_ALREADY_HELD")),
        2 => Act::After(ms(50), 503, refused("OVERLOADED")),
        _ => Act::Answer(409, refused("WAIT_TIMEOUT")),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let error = baton.lock("k").wait_max(ms(10_000)).acquire().await.unwrap_err();
    assert!(error.is_wait_timeout() && error.is_not_acquired(), "{error}");
    let waits: Vec<_> =
        server.seen("acquire").iter().map(|seen| seen.body["waitTimeoutMillis"].as_u64()).collect();
    assert!(
        waits[0].is_none() && waits[1] <= Some(10_000) && waits[2] <= waits[1].map(|wait| wait - 50),
        "{waits:?}"
    );
}

#[tokio::test]
async fn dropping_a_waiting_acquire_closes_its_connection() {
    let server = Server::start(|seen| match seen.body["wait"] == true {
        true => Act::Hang,
        false => Act::Answer(409, refused("LOCK_ALREADY_HELD")),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let waiting = tokio::spawn(baton.lock("k").acquire());
    eventually("the waiter is in the queue", || server.seen("acquire").len() == 2).await;
    assert_eq!(server.left(), 0);
    waiting.abort();
    eventually("the server notices", || server.left() == 1).await;
}

#[tokio::test]
async fn a_grant_that_comes_for_a_caller_who_left_goes_back() {
    let server = Server::start(|seen| match seen.operation.as_str() {
        "acquire" => Act::After(ms(30), 200, granted(seen)),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let asking = tokio::spawn(baton.lock("k").try_acquire());
    eventually("the call is under way", || server.seen("acquire").len() == 1).await;
    asking.abort();
    eventually("it went back or its connection closed", || {
        server.left() == 1 || server.seen("release").len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_spent_request_id_is_replaced_if_the_sdk_made_it() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("acquire", 1) => Act::Close,
        ("acquire", 2) => Act::Answer(409, refused("LOCK_EXPIRED")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    baton.lock("k").acquire().await.unwrap();
    let ids: Vec<_> = server.seen("acquire").iter().map(|seen| seen.request_id().to_owned()).collect();
    assert!(ids.len() == 3 && ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
}
