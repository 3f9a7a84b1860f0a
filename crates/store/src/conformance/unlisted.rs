//! A record that no list shows is read, checked, touched, deleted and expires like any other.

use super::{Ground, Harness};
use baton_core::{Check, Key, Ttl, Write};

pub(super) async fn is_a_record_all_the_same<H: Harness>(harness: &H) {
    let ground = Ground::new(harness, "unlisted").await;
    let (ttl, over) = ground.ttl();
    let read = async |key: &Key| {
        let reading = ground.store.read(vec![key.clone()]).await.expect("the store answers");
        reading.records.into_iter().next().expect("one answer for one key")
    };
    // As grants and memos of locks are called.
    let names = [("Lg", "short", Ttl::Exactly(ttl)), ("Le", "short", Ttl::AtLeast(ttl))];
    let touched = [("Lg", "touched", Ttl::Exactly(ttl)), ("Le", "touched", Ttl::AtLeast(ttl))];
    let lasting = [("Lg", "long", Ttl::Forever), ("Le", "long", Ttl::AtLeast(ttl * 60))];
    let key =
        |kind: &str, name: &str| Key::new(ground.group, [kind, &ground.tag, "/", name].concat().into_bytes());
    let put =
        |key: &Key, value: &str, ttl| Write::Put { key: key.clone(), value: value.as_bytes().into(), ttl };

    for (kind, name, ttl) in names.iter().chain(&touched).chain(&lasting) {
        let key = key(kind, name);
        let made = ground.done(vec![Check::Absent(key.clone())], vec![put(&key, "1", *ttl)]).await.revision;
        let put_again =
            ground.done(vec![Check::At(key.clone(), made)], vec![put(&key, "2", *ttl)]).await.revision;
        let found = ground.refused(vec![Check::Absent(key.clone())], vec![put(&key, "3", *ttl)]).await;
        let record = read(&key).await.expect("it is there");
        assert_eq!((&record.value[..], record.created, record.revision), (&b"2"[..], made, put_again));
        assert_eq!(found[0].1.as_ref().map(|found| found.revision), Some(put_again));
        assert_eq!(record.expires_in.is_some(), *ttl != Ttl::Forever);
    }
    for (kind, name, _) in &touched {
        let write = Write::Touch { key: key(kind, name), ttl: ttl * 60 };
        ground.done(vec![], vec![write]).await;
    }
    harness.pass(over).await;
    for (kind, name, _) in &names {
        // Whoever promises no more than "at least" may be later.
        let record = read(&key(kind, name)).await;
        assert!(record.is_none() || *kind == "Le", "it should have expired: {record:?}");
    }
    for (kind, name, ttl) in touched.iter().chain(&lasting) {
        let key = key(kind, name);
        assert!(read(&key).await.is_some(), "{key:?} has gone too early");
        // What replaces it lasts as long as it says itself, whatever was there before.
        ground.done(vec![], vec![put(&key, "4", Ttl::Forever)]).await;
        assert_eq!(read(&key).await.and_then(|record| record.expires_in), None);
        ground.done(vec![], vec![put(&key, "5", *ttl)]).await;
        let witnessed = ground.done(vec![], vec![Write::Delete { key: key.clone() }]).await.witnessed;
        assert_eq!(witnessed[0].as_ref().map(|record| &record.value[..]), Some(&b"5"[..]));
        assert_eq!(read(&key).await, None);
    }
}
