//! The SDK's limiter, which decides in its own process, against a real server.

use crate::server::Server;
use baton_client::limit::{Checked, LogQuery};
use baton_client::limiter::Limiter;
use baton_client::wire_limit::{Algorithm, Mechanism};
use baton_client::{Baton, LimitDefinition};
use std::time::{Duration, Instant};

const DAY_MS: u64 = 86_400_000;

/// So many a day, of which parts are leased.
fn leased(limit: u64) -> LimitDefinition {
    LimitDefinition {
        algorithm: Some(Algorithm::SlidingWindow),
        mechanism: Some(Mechanism::Leased),
        lease_ttl_millis: Some(2_000),
        staggered: Some(false),
        ..LimitDefinition::new(limit, DAY_MS)
    }
}

async fn source(limiter: &Limiter, key: &str) -> String {
    match limiter.check(key, 1).await.unwrap() {
        Checked::Allowed(allowed) => allowed.source,
        Checked::Refused(refused) => panic!("{refused:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn most_checks_are_decided_in_this_process_and_all_are_counted() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    baton.limits().put("api", &leased(1_000_000)).await.unwrap();
    let limiter = baton.limiter("api");
    assert_eq!(source(&limiter, "acme").await, "central", "a key that comes once needs no lease");
    assert_eq!(source(&limiter, "acme").await, "renewed");
    let mut here = 0;
    for _ in 0..2_000 {
        here += u32::from(source(&limiter, "acme").await == "local");
    }
    assert!(here >= 1_900, "{here} of 2000");
    assert_eq!(limiter.check_now("acme", 1), Some(true));
    assert_eq!(limiter.check_now("stranger", 1), None);
    assert_eq!(baton.limit("api").leases().await.unwrap().leases.len(), 1);
    limiter.close().await;
    let usage = baton.limit("api").usage("acme").await.unwrap();
    assert_eq!((usage.used, usage.outstanding), (2_003, 0), "what was not spent went back");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approximate_limit_is_decided_in_this_process_until_little_is_left() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    let approximate = LimitDefinition {
        algorithm: Some(Algorithm::FixedWindow),
        mechanism: Some(Mechanism::Approximate),
        staggered: Some(false),
        ..LimitDefinition::new(2_000, DAY_MS)
    };
    baton.limits().put("api", &approximate).await.unwrap();
    let limiter = baton.limiter("api");
    let (mut here, mut there, mut refused) = (0_u64, 0_u64, 0);
    while refused < 5 {
        match limiter.check("acme", 1).await.unwrap() {
            Checked::Allowed(allowed) if allowed.source == "local" => here += 1,
            Checked::Allowed(_) => there += 1,
            Checked::Refused(_) => {
                refused += 1;
                tokio::time::sleep(Duration::from_millis(120)).await;
            }
        }
    }
    // A hundredth more, of which half is for each of two windows; the last fifth is the store's, and somewhat more if that is late.
    assert!((2_000..=2_010).contains(&(here + there)), "{here} here, {there} there");
    assert!(here > 1_000 && there > 200, "{here} here, {there} there");
    limiter.close().await;
    let usage = baton.limit("api").usage("acme").await.unwrap();
    // Its node may still have some that it was asked for.
    assert!(usage.used <= here + there && usage.used + usage.outstanding >= here + there, "{usage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_vanish_admit_nothing_on_top_of_the_limit() {
    let server = Server::start();
    let limit = 3_000_u64;
    let author = Baton::connect(&server.url).await.unwrap();
    author.limits().put("api", &leased(limit)).await.unwrap();
    let askers: Vec<_> = (0..6)
        .map(|asker| {
            let url = server.url.clone();
            tokio::spawn(async move {
                let baton = Baton::connect(&url).await.unwrap();
                let limiter = baton.limiter("api");
                let (mut admitted, until) = (0_u64, Instant::now() + Duration::from_secs(20));
                let mut refused = 0;
                while refused < 3 && Instant::now() < until {
                    match limiter.check("acme", 1).await.unwrap() {
                        Checked::Allowed(_) => admitted += 1,
                        Checked::Refused(_) => {
                            refused += 1;
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    }
                    // Two of them are gone without a word, with what they had.
                    if asker < 2 && admitted == 100 {
                        return admitted;
                    }
                }
                limiter.close().await;
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for asker in askers {
        admitted += asker.await.unwrap();
    }
    let usage = author.limit("api").usage("acme").await.unwrap();
    assert!(admitted <= limit, "{admitted} of {limit}");
    assert!(usage.used + usage.outstanding >= admitted, "{usage:?}, {admitted} admitted");
    // What the vanished had counts as spent when their leases are over: nobody else gets it.
    let deadline = Instant::now() + Duration::from_secs(20);
    while author.limit("api").usage("acme").await.unwrap().outstanding > 0 {
        assert!(Instant::now() < deadline, "leases of the vanished stay");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let limiter = author.limiter("api");
    let mut rest = 0;
    while limiter.check("acme", 1).await.unwrap().is_allowed() {
        rest += 1;
    }
    assert!(admitted + rest <= limit, "{admitted} and {rest} of {limit}");
    assert!(admitted + rest >= limit * 8 / 10, "{admitted} and {rest} of {limit}: too much is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_not_leased_is_asked_for_every_check_and_a_change_is_noticed() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    let central = LimitDefinition { mechanism: Some(Mechanism::Central), ..leased(100_000) };
    baton.limits().put("api", &central).await.unwrap();
    let limiter = baton.limiter("api");
    for _ in 0..5 {
        assert_eq!(source(&limiter, "acme").await, "central");
    }
    baton.limits().put("other", &leased(100_000)).await.unwrap();
    let limiter = baton.limiter("other");
    source(&limiter, "acme").await;
    assert_eq!(source(&limiter, "acme").await, "renewed");
    // Lowered below what was spent: when the lease has to be renewed, there is nothing more.
    baton.limits().put("other", &leased(100)).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut spent = 2;
    while limiter.check("acme", 1).await.unwrap().is_allowed() {
        spent += 1;
        assert!(spent <= 100_000 && Instant::now() < deadline, "{spent} after the limit was lowered to 100");
    }
    let most = 5_000 + 100;
    assert!(spent <= most, "{spent}: what was leased before, and the new limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_changed_definition_had_lent_goes_back_when_the_lease_is_renewed() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    let lent = LimitDefinition { lease_ttl_millis: Some(3_600_000), lease_size: Some(40), ..leased(10_000) };
    for (name, changed) in [
        ("central", LimitDefinition { mechanism: Some(Mechanism::Central), ..lent.clone() }),
        ("raised", LimitDefinition { limit: 20_000, ..lent.clone() }),
    ] {
        baton.limits().put(name, &lent).await.unwrap();
        let limiter = baton.limiter(name);
        let mut used = 0;
        while source(&limiter, "acme").await == "central" {
            used += 1;
        }
        baton.limits().put(name, &changed).await.unwrap();
        // Spent until more has to be asked for: then it is heard that it was lent by another definition.
        for _ in 0..60 {
            used += 1;
            source(&limiter, "acme").await;
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let log = baton.limit(name).lease_log(&LogQuery::default()).await.unwrap().lines;
            if log.iter().any(|line| line.event == "returned" && line.by.is_some()) {
                break;
            }
            assert!(Instant::now() < deadline, "{log:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        limiter.close().await;
        let usage = baton.limit(name).usage("acme").await.unwrap();
        assert_eq!((usage.used, usage.outstanding), (used + 1, 0), "{name}");
    }
}
