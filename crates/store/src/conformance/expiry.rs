//! An expired record is absent, for everybody, by the store's clock; not before its time, and also across ends.

use super::{Ending, Ground, Harness, put, put_for};
use baton_core::{Check, Write};

pub(super) async fn makes_absent<H: Harness>(harness: &H) {
    let mut ground = Ground::new(harness, "expiry").await;
    let (ttl, over) = ground.ttl();
    let first = ground.done(vec![], vec![put_for(ground.key("a"), "1", ttl * 2)]).await.revision;
    ground.done(vec![], vec![put_for(ground.key("b"), "1", ttl * 2), put(ground.key("c"), "1")]).await;
    let record = ground.read("a").await.expect("its time has not come");
    assert!(record.expires_in.is_some_and(|left| left <= ttl * 2 && left > ttl), "{record:?}");

    // A Put replaces the time to live, also by a shorter one or by none.
    ground.done(vec![], vec![put_for(ground.key("short"), "1", ttl * 20)]).await;
    ground
        .done(vec![], vec![put_for(ground.key("short"), "2", ttl), put_for(ground.key("kept"), "1", ttl)])
        .await;
    ground.done(vec![], vec![put(ground.key("kept"), "2")]).await;

    harness.pass(over * 2).await;
    let touch = vec![Write::Touch { key: ground.key("a"), ttl }];
    let found = ground.refused(vec![Check::Created(ground.key("a"), first)], touch).await;
    assert!(found.iter().all(|(_, record)| record.is_none()), "{found:?}");
    assert_eq!(ground.read("a").await, None);
    assert_eq!(ground.read("short").await, None);
    assert!(ground.read("kept").await.is_some());
    let page = ground.store.scan(ground.range(None), 10).await.expect("the store answers");
    let names: Vec<_> = page.records.iter().map(|record| record.key.clone()).collect();
    assert_eq!(names, [ground.key("c"), ground.key("kept")], "a scan shows what is expired");
    let deleted = ground.done(vec![], vec![Write::Delete { key: ground.key("b") }]).await;
    assert_eq!(deleted.witnessed, [None], "a delete saw what is expired");

    let absent = vec![Check::Absent(ground.key("a"))];
    let second = ground.done(absent, vec![put_for(ground.key("a"), "2", ttl * 1000)]).await.revision;
    let record = ground.read("a").await.expect("put again");
    assert_eq!((record.created, record.touches), (second, 0), "a new record, not the old one");

    ground.done(vec![], vec![put_for(ground.key("brief"), "1", ttl)]).await;
    harness.pass(over).await;
    assert_eq!(ground.read("brief").await, None);
    for ending in [Ending::Crash, Ending::Graceful] {
        ground.reopen(harness, ending).await;
        assert_eq!(ground.read("brief").await, None, "{ending:?}: what was seen expired has come back");
        let record = ground.read("a").await.expect("its time has not come");
        assert_eq!(record.created, second);
        assert!(record.expires_in.is_some_and(|left| left <= ttl * 1000), "{record:?}");
    }
}
