//! A commit happens as a whole or not at all, also for who looks at the same time.

use super::{Ground, Harness, put};
use baton_core::{Check, Write};
use std::sync::Arc;

const ROUNDS: u32 = 100;

pub(super) async fn all_or_none<H: Harness>(harness: &H) {
    let ground = Arc::new(Ground::new(harness, "atomic").await);
    ground.put("there", "1").await;
    let writes = vec![put(ground.key("new"), ""), Write::Delete { key: ground.key("there") }];
    let checks = vec![Check::Absent(ground.key("nothing")), Check::Absent(ground.key("there"))];
    ground.refused(checks, writes.clone()).await;
    let touch = Write::Touch { key: ground.key("nothing"), ttl: ground.ttl().0 };
    ground.refused(vec![], [writes, vec![touch]].concat()).await;
    assert_eq!(ground.read("new").await, None, "a refused commit has put something");
    assert!(ground.read("there").await.is_some(), "a refused commit has deleted something");

    ground.done(vec![], vec![put(ground.key("left"), "0"), put(ground.key("right"), "0")]).await;
    let writer = tokio::spawn({
        let ground = ground.clone();
        async move {
            for round in 1..=ROUNDS {
                let value = round.to_string();
                ground
                    .done(vec![], vec![put(ground.key("left"), &value), put(ground.key("right"), &value)])
                    .await;
            }
        }
    });
    while !writer.is_finished() {
        let keys = vec![ground.key("left"), ground.key("right")];
        let records = ground.store.read(keys).await.expect("the store answers").records;
        let [Some(left), Some(right)] = &records[..] else { panic!("both are there: {records:?}") };
        assert_eq!((&left.value, left.revision), (&right.value, right.revision), "half a commit was seen");
    }
    writer.await.expect("the writer ends well");
}
