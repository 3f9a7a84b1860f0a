//! Sharing requests, connections and servers.

use crate::scripted::{Act, Server, agree, eventually, ms, refused};
use baton_client::Baton;
use std::collections::HashMap;

#[tokio::test]
async fn a_lone_call_goes_out_alone_on_one_connection() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    for _ in 0..5 {
        baton.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!((server.requests(), server.connections()), (10, 1));
}

#[tokio::test]
async fn calls_under_way_together_share_requests_and_each_gets_its_own_answer() {
    let server = Server::start(|seen| match agree(seen) {
        Act::Answer(status, value) => Act::After(ms(20), status, value),
        other => other,
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let calls: Vec<_> = (0..600)
        .map(|number| {
            let lock = baton.lock(format!("k{number}"));
            tokio::spawn(async move { (number, lock.try_acquire().await.unwrap().acquired().unwrap()) })
        })
        .collect();
    for call in calls {
        let (number, lock) = call.await.unwrap();
        assert_eq!(lock.lock_token().reveal(), format!("secret-k{number}"));
        std::mem::forget(lock);
    }
    let mut sizes = HashMap::new();
    for seen in server.seen("acquire") {
        *sizes.entry(seen.request).or_insert(0) += 1;
    }
    assert!(sizes.len() <= 12, "{sizes:?}");
    assert!(sizes.values().all(|size| *size <= 256), "{sizes:?}");
    assert!(server.connections() <= 5, "{}", server.connections());
}

#[tokio::test]
async fn one_refusal_in_a_batch_is_only_its_caller_s() {
    let server = Server::start(|seen| match seen.key.as_str() {
        "held" => Act::After(ms(10), 409, refused("LOCK_ALREADY_HELD")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let keys = ["a", "b", "c", "d", "e", "held", "f", "g"];
    let calls = keys.map(|key| tokio::spawn(baton.lock(key).try_acquire()));
    for (key, call) in keys.into_iter().zip(calls) {
        assert_eq!(call.await.unwrap().unwrap().acquired().is_some(), key != "held", "{key}");
    }
}

#[tokio::test]
async fn a_batch_whose_reply_is_lost_is_retried_call_by_call_under_the_same_ids() {
    let server = Server::start(|seen| match seen.request {
        1..=4 => Act::Close,
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let calls: Vec<_> = (0..50).map(|n| tokio::spawn(baton.lock(format!("k{n}")).try_acquire())).collect();
    for call in calls {
        assert!(call.await.unwrap().unwrap().acquired().is_some());
    }
    let mut ids: HashMap<String, String> = HashMap::new();
    for seen in server.seen("acquire") {
        let id = ids.entry(seen.key.clone()).or_insert_with(|| seen.request_id().to_owned());
        assert_eq!(id, seen.request_id());
    }
}

#[tokio::test]
async fn calls_are_not_stuck_behind_waiting_acquires() {
    let server = Server::start(|seen| match (seen.key.as_str(), seen.body["wait"] == true) {
        ("busy", true) => Act::Hang,
        ("busy", false) => Act::Answer(409, refused("LOCK_ALREADY_HELD")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let waiting: Vec<_> = (0..20).map(|_| tokio::spawn(baton.lock("busy").acquire())).collect();
    eventually("all wait", || server.seen("acquire").len() == 40).await;
    let free = tokio::time::timeout(ms(2_000), baton.lock("free").acquire()).await;
    assert!(free.unwrap().is_ok());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn calls_move_on_to_the_next_server_when_one_fails() {
    let first = Server::start(|_| Act::Answer(503, refused("STORE_UNAVAILABLE"))).await;
    let second = Server::start(agree).await;
    let baton = Baton::connect(format!("{},{}", first.url(), second.url())).await.unwrap();
    let lock = baton.lock("k").acquire().await.unwrap();
    assert_eq!(first.seen("acquire")[0].request_id(), second.seen("acquire")[0].request_id());
    lock.release().await.unwrap();
    assert_eq!((first.requests(), second.seen("release").len()), (1, 1), "and they stay there");
}

#[tokio::test]
async fn a_dead_address_in_the_list_does_not_matter() {
    let dead = Server::start(agree).await.url();
    let alive = Server::start(agree).await;
    let baton = Baton::connect(format!("{dead},{}", alive.url())).await.unwrap();
    baton.lock("k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn connections_that_a_restart_closed_are_replaced_without_an_error() {
    let server = Server::start(agree).await;
    let address = server.address;
    let baton = Baton::connect(server.url()).await.unwrap();
    baton.lock("k").acquire().await.unwrap().release().await.unwrap();
    drop(server);
    tokio::task::yield_now().await;
    let server = Server::start_at(address, agree).await;
    baton.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!((server.seen("acquire").len(), server.seen("release").len()), (1, 1));
}
