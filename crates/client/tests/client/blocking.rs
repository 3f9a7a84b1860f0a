//! The SDK without async.

use crate::scripted::{Act, Server, agree, ms, refused};
use baton_client::blocking::{Baton, TryAcquire};
use std::time::{Duration, Instant};

/// A scripted server in a runtime of its own, and a client in no runtime at all.
fn with_server<T>(
    script: impl Fn(&crate::scripted::Seen) -> Act + Send + Sync + 'static,
    test: impl FnOnce(&Server, Baton) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(Server::start(script));
    let baton = Baton::connect(server.url()).unwrap();
    test(&server, baton)
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(5), "never came true: {what}");
        std::thread::sleep(ms(2));
    }
}

#[test]
fn a_lock_is_acquired_renewed_and_released_without_a_runtime() {
    with_server(agree, |server, baton| {
        let lock = baton.lock("k").ttl(ms(600)).acquire().unwrap();
        assert_eq!(lock.fencing_token().get(), 34);
        eventually("it is renewed while this thread does something else", || server.seen("renew").len() > 1);
        assert!(!lock.is_lost());
        lock.release().unwrap();
        assert_eq!(server.seen("release").len(), 1);
    });
}

#[test]
fn a_dropped_lock_is_released_also_when_its_client_is_dropped_too() {
    with_server(agree, |server, baton| {
        let lock = baton.lock("k").acquire().unwrap();
        drop(baton);
        drop(lock);
        eventually("it was released", || server.seen("release").len() == 1);
    });
}

#[test]
fn a_held_lock_says_who_has_it() {
    with_server(
        |_| Act::Answer(409, refused("LOCK_ALREADY_HELD")),
        |_, baton| {
            let TryAcquire::Held(held) = baton.lock("k").try_acquire().unwrap() else { panic!("granted") };
            assert_eq!(held.owner.as_deref(), Some("someone"));
        },
    );
}

#[test]
fn work_whose_lease_was_lost_is_reported_as_such() {
    with_server(
        |seen| match seen.operation.as_str() {
            "renew" => Act::Answer(409, refused("LOCK_EXPIRED")),
            _ => agree(seen),
        },
        |_, baton| {
            let lost = baton.lock("k").ttl(ms(600)).run(|held| {
                eventually("the work can see it", || held.is_lost());
            });
            assert!(lost.unwrap_err().lease_lost().is_some());
        },
    );
    with_server(agree, |server, baton| {
        assert_eq!(baton.lock("k").run(|held| held.fencing_token().get()).unwrap(), 34);
        assert_eq!(server.seen("release").len(), 1);
    });
}
