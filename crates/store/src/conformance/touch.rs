//! Touch keeps `created` and `revision`, never shortens, counts, leaves a record without a time to live without
//! one, and is a conflict where there is nothing.

use super::{Ground, Harness, put, put_for};
use baton_core::{Check, Write};

pub(super) async fn extends_and_counts<H: Harness>(harness: &H) {
    let ground = Ground::new(harness, "touch").await;
    let (ttl, over) = ground.ttl();
    let touch = |name: &str, ttl| vec![Write::Touch { key: ground.key(name), ttl }];

    let found = ground.refused(vec![], touch("nothing", ttl)).await;
    assert_eq!(found, [(ground.key("nothing"), None)]);

    let made = ground.done(vec![], vec![put_for(ground.key("held"), "1", ttl * 4)]).await.revision;
    let checks = vec![Check::Created(ground.key("held"), made)];
    ground.done(checks.clone(), touch("held", ttl)).await;
    let record = ground.read("held").await.expect("it is there");
    assert!(record.expires_in > Some(ttl * 2), "a touch has shortened it: {record:?}");
    assert_eq!((record.created, record.revision, record.touches), (made, made, 1));

    let touched = ground.done(checks, touch("held", ttl * 8)).await.revision;
    let record = ground.read("held").await.expect("it is there");
    assert!(record.expires_in > Some(ttl * 6), "a touch hasn't extended it: {record:?}");
    assert_eq!((record.created, record.revision, record.touches), (made, made, 2));
    ground.done(vec![Check::At(ground.key("held"), made)], vec![]).await;
    // The commit that touched it has a revision too, and hasn't put anything.
    ground.refused(vec![Check::At(ground.key("held"), touched)], vec![]).await;

    ground.done(vec![], vec![put(ground.key("forever"), "")]).await;
    let touched = ground.done(vec![], touch("forever", ttl)).await;
    let shown = touched.witnessed[0].as_ref().expect("a touch shows what it touched");
    assert_eq!((shown.expires_in, shown.touches), (None, 1), "a touch shows a time to live that isn't there");
    harness.pass(over).await;
    let record = ground.read("forever").await.expect("a touch has given it a time to live");
    assert_eq!((record.expires_in, record.touches), (None, 1));
}
