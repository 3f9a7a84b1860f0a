//! A commit shows each record it touched as it is now and each one it deleted as it was, in the writes' order.

use super::{Ground, Harness, put, put_for};
use baton_core::Write;

pub(super) async fn shows_what_was_touched_and_deleted<H: Harness>(harness: &H) {
    let ground = Ground::new(harness, "witness").await;
    let (ttl, _) = ground.ttl();
    let made =
        ground.done(vec![], vec![put(ground.key("old"), "1"), put_for(ground.key("held"), "2", ttl)]).await;
    assert_eq!(made.witnessed, [], "a put witnesses nothing");

    let writes = vec![
        Write::Delete { key: ground.key("nothing") },
        put(ground.key("new"), "3"),
        Write::Touch { key: ground.key("held"), ttl: ttl * 4 },
        Write::Delete { key: ground.key("old") },
    ];
    let done = ground.done(vec![], writes).await;
    let [None, Some(held), Some(old)] = &done.witnessed[..] else { panic!("{:?}", done.witnessed) };
    assert_eq!((&held.key, &held.value[..], held.touches), (&ground.key("held"), &b"2"[..], 1));
    assert!(held.expires_in > Some(ttl * 2), "as it is now: {held:?}");
    assert_eq!((held.created, held.revision), (made.revision, made.revision));
    assert_eq!((&old.key, &old.value[..]), (&ground.key("old"), &b"1"[..]));
    assert_eq!((old.created, old.revision, old.expires_in), (made.revision, made.revision, None));
    assert_eq!(ground.read("old").await, None);
}
