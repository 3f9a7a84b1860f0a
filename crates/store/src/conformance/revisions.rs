//! Revisions only grow: over puts, touches, deletes, a close and a crash.

use super::{Ending, Ground, Harness};
use baton_core::{Revision, Write};

pub(super) async fn only_grow<H: Harness>(harness: &H) {
    let mut ground = Ground::new(harness, "revisions").await;
    let mut last = Revision(0);
    let mut grows = |revision: Revision, what: &str| {
        assert!(revision > last, "{what}: {revision:?} after {last:?}");
        assert!(revision <= Revision::MAX, "{what}: {revision:?}");
        last = revision;
    };
    for ending in [Ending::Graceful, Ending::Crash] {
        for round in 0..20 {
            grows(ground.put("a", &round.to_string()).await, "put");
            let found = ground.read("a").await.expect("just put");
            grows(ground.put("b", "").await, "put of another key");
            assert!(found.created <= found.revision, "{found:?}");
            let delete = vec![Write::Delete { key: ground.key("a") }];
            grows(ground.done(vec![], delete.clone()).await.revision, "delete");
            grows(ground.done(vec![], delete).await.revision, "delete of nothing");
            grows(ground.done(vec![], vec![]).await.revision, "an empty commit");
        }
        ground.reopen(harness, ending).await;
        grows(ground.put("a", "").await, "put after opening again");
    }
}
