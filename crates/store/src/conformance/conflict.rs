//! A conflict shows every record checked or touched, as it is, in order; each kind of check means what it says.

use super::{Ground, Harness, put};
use baton_core::{Check, Revision, Write};

pub(super) async fn shows_what_is_there<H: Harness>(harness: &H) {
    let ground = Ground::new(harness, "conflict").await;
    let (a, b, none) = (ground.key("a"), ground.key("b"), ground.key("none"));
    let created = ground.put("a", "1").await;
    let changed = ground.put("a", "2").await;
    ground.put("b", "3").await;

    let wrong = [
        Check::Absent(a.clone()),
        Check::Created(a.clone(), changed),
        Check::Created(none.clone(), created),
        Check::At(a.clone(), created),
        Check::At(none.clone(), changed),
    ];
    for check in wrong {
        let found = ground.refused(vec![check.clone()], vec![put(a.clone(), "x")]).await;
        assert_eq!(found.len(), 1, "{check:?}");
        assert_eq!(&found[0].0, check.key(), "{check:?}");
    }
    let holds =
        vec![Check::Absent(none.clone()), Check::Created(a.clone(), created), Check::At(a.clone(), changed)];
    let touch = |key: &baton_core::Key| Write::Touch { key: key.clone(), ttl: ground.ttl().0 };
    let fails = vec![Check::At(b.clone(), Revision(1))];
    let found = ground.refused([holds.clone(), fails].concat(), vec![touch(&b), touch(&none)]).await;
    let keys: Vec<_> = found.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(keys, [none.clone(), a.clone(), a.clone(), b.clone(), b.clone(), none.clone()]);
    let record = found[1].1.as_ref().expect("a is there");
    assert_eq!((record.created, record.revision), (created, changed));
    assert_eq!((&record.key, &record.value[..], record.touches, record.expires_in), (&a, &b"2"[..], 0, None));
    assert_eq!(found[0].1, None);
    assert_eq!(found[5].1, None);
    assert_eq!(&found[3].1.as_ref().expect("b is there").value[..], b"3");

    let revision = ground.done(holds, vec![put(a, "4")]).await.revision;
    let record = ground.read("a").await.expect("a is there");
    assert_eq!((&record.value[..], record.created, record.revision), (&b"4"[..], created, revision));
}
