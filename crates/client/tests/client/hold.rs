//! Holding: renewing, losing, releasing.

use crate::scripted::{Act, Server, agree, eventually, granted, ms, refused};
use baton_client::{Baton, LossReason};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_lease_is_renewed_at_a_third_of_its_ttl_until_it_is_released() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lock = baton.lock("k").ttl(ms(600)).acquire().await.unwrap();
    eventually("three renewals", || server.seen("renew").len() >= 3).await;
    let (granted, renewed) = (server.seen("acquire")[0].at, server.seen("renew"));
    for (index, renewal) in renewed.iter().take(3).enumerate() {
        let due = ms(200) * (index as u32 + 1);
        assert!(renewal.at.duration_since(granted) + ms(5) >= due, "renewal {index} came early");
    }
    assert!(!lock.is_lost());
    lock.release().await.unwrap();
    let after = server.seen("renew").len();
    tokio::time::sleep(ms(500)).await;
    assert_eq!(server.seen("renew").len(), after, "what was released is not renewed");
}

#[tokio::test]
async fn the_lease_is_lost_before_the_server_could_end_it_when_renewals_hang() {
    let server = Server::start(|seen| if seen.operation == "renew" { Act::Hang } else { agree(seen) }).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let ttl = ms(500);
    let lock = baton.lock("k").ttl(ttl).acquire().await.unwrap();
    let lost = lock.lost().await;
    let told = Instant::now();
    // The server's lease began when it saw the acquire, at the earliest.
    let ends = server.seen("acquire")[0].at + ttl;
    assert!(told < ends, "told {:?} too late", told - ends);
    assert!(ends - told < ms(100), "told {:?} early", ends - told);
    assert_eq!(lost.reason(), LossReason::DeadlinePassed);
    assert!(lock.is_lost() && lock.lease().remaining().is_zero());
}

#[tokio::test]
async fn the_server_s_word_ends_a_lease_at_once() {
    for (code, status, reason) in [
        ("LOCK_EXPIRED", 409, LossReason::Expired),
        ("NOT_LOCK_OWNER", 403, LossReason::NotOwner),
        ("LOCK_NOT_FOUND", 404, LossReason::NotFound),
    ] {
        let server = Server::start(move |seen| match seen.operation.as_str() {
            "renew" => Act::Answer(status, refused(code)),
            _ => agree(seen),
        })
        .await;
        let baton = Baton::connect(server.url()).await.unwrap();
        let lock = baton.lock("k").ttl(ms(3_000)).acquire().await.unwrap();
        let lost = lock.lost().await;
        assert_eq!(lost.reason(), reason);
        assert!(server.seen("acquire")[0].at.elapsed() < ms(2_000), "at the renewal, not at the deadline");
    }
}

#[tokio::test]
async fn renewals_ride_out_a_server_that_is_away_for_less_than_the_lease() {
    let away = Arc::new(AtomicBool::new(false));
    let script_away = away.clone();
    let server = Server::start(move |seen| match script_away.load(Ordering::SeqCst) {
        true if seen.number % 2 == 0 => Act::Close,
        true => Act::Answer(503, refused("STORE_UNAVAILABLE")),
        false => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lock = baton.lock("k").ttl(ms(2_000)).acquire().await.unwrap();
    away.store(true, Ordering::SeqCst);
    eventually("renewals fail", || server.seen("renew").len() >= 3).await;
    away.store(false, Ordering::SeqCst);
    tokio::time::sleep(ms(2_100)).await;
    assert!(!lock.is_lost());
}

#[tokio::test]
async fn a_grant_that_took_long_is_renewed_before_anyone_sees_it() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.body["wait"] == true) {
        ("acquire", false) => Act::Answer(409, refused("LOCK_ALREADY_HELD")),
        // Longer than the lease itself: counted from the request, it would be over.
        ("acquire", true) => Act::After(ms(400), 200, granted(seen)),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lock = baton.lock("k").ttl(ms(300)).acquire().await.unwrap();
    assert_eq!(server.seen("renew").len(), 1);
    assert!(!lock.is_lost() && lock.lease().remaining() > ms(200), "{lock:?}");
}

#[tokio::test]
async fn a_grant_that_is_lost_before_it_was_seen_is_asked_for_anew() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("acquire", 1) => Act::After(ms(100), 200, granted(seen)),
        ("renew", 1) => Act::Answer(409, refused("LOCK_EXPIRED")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lock = baton.lock("k").ttl(ms(500)).acquire().await.unwrap();
    let acquires = server.seen("acquire");
    assert_eq!(acquires.len(), 2);
    assert_ne!(acquires[0].request_id(), acquires[1].request_id());
    assert!(!lock.is_lost());
}

#[tokio::test]
async fn dropping_a_lock_releases_it_and_a_lost_reply_to_that_is_asked_for_again() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("release", 1) => Act::Close,
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    drop(baton.lock("k").acquire().await.unwrap());
    eventually("the release was sent twice", || server.seen("release").len() == 2).await;
    let releases = server.seen("release");
    assert_eq!(releases[0].request_id(), releases[1].request_id());
    assert_eq!(releases[0].body["lockToken"], "secret-k");
}

#[tokio::test]
async fn a_release_that_is_cancelled_goes_on_in_the_background_under_the_same_request_id() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("release", 1) => Act::Hang,
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lock = baton.lock("k").acquire().await.unwrap();
    assert!(tokio::time::timeout(ms(100), lock.release()).await.is_err());
    eventually("it was released", || server.seen("release").len() == 2).await;
    let releases = server.seen("release");
    assert_eq!(releases[0].request_id(), releases[1].request_id());
}

#[tokio::test]
async fn run_gives_back_what_the_work_gives_and_releases() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let token = baton.lock("k").run(|held| async move { held.fencing_token().get() }).await.unwrap();
    assert_eq!((token, server.seen("release").len()), (34, 1));
}

#[tokio::test]
async fn run_drops_the_work_when_the_lease_is_lost() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let server = Server::start(|seen| match seen.operation.as_str() {
        "renew" => Act::Answer(409, refused("LOCK_EXPIRED")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = Dropped(dropped.clone());
    let work = |_held| async move {
        let _guard = guard;
        std::future::pending::<()>().await
    };
    let error = baton.lock("k").ttl(ms(300)).run(work).await.unwrap_err();
    assert_eq!(error.lease_lost().map(|lost| lost.reason()), Some(LossReason::Expired));
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn work_that_never_yields_is_not_continued_after_the_deadline() {
    let server = Server::start(|seen| if seen.operation == "renew" { Act::Hang } else { agree(seen) }).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let steps_after = Arc::new(AtomicBool::new(false));
    let seen = steps_after.clone();
    let work = |held: baton_client::Lease| async move {
        // Blocks the whole runtime over the deadline: no timer can have fired.
        std::thread::sleep(Duration::from_millis(250));
        assert!(held.is_lost());
        tokio::task::yield_now().await;
        seen.store(true, Ordering::SeqCst);
    };
    let error = baton.lock("k").ttl(ms(200)).run(work).await.unwrap_err();
    assert!(error.is_lease_lost() && !steps_after.load(Ordering::SeqCst));
}

#[tokio::test]
async fn nothing_that_is_printed_shows_the_lock_token() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lock = baton.lock("k").acquire().await.unwrap();
    let printed = format!("{lock:?} {:?} {:?} {baton:?}", lock.lock_token(), lock.lease());
    assert!(!printed.contains("secret"), "{printed}");
}
