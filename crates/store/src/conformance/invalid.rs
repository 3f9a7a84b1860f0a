//! A commit that breaks the contract is refused and changes nothing; one at its limits is taken.

use super::{Ground, Harness, put};
use crate::contract::{Reason, StoreError};
use baton_core::{COMMIT_BYTES_MAX, COMMIT_OPERATIONS_MAX, Check, Commit, Group, Key, Ttl, Write};

pub(super) async fn changes_nothing<H: Harness>(harness: &H) {
    let ground = Ground::new(harness, "invalid").await;
    let a = || put(ground.key("a"), "1");
    let other = Key::new(Group(ground.group.0.wrapping_add(1)), ground.key("b").name);
    let large = |name: &str, bytes: usize| {
        let key = ground.key(name);
        let value = vec![b'x'; bytes - key.name.len()].into();
        Write::Put { key, value, ttl: Ttl::Forever }
    };
    let many =
        |count: usize| (0..count).map(|index| put(ground.key(&format!("many-{index:02}")), "")).collect();
    let none = Check::Absent(ground.key("none"));
    let invalid = [
        ("two groups", vec![], vec![a(), put(other.clone(), "")]),
        ("a check of another group", vec![Check::Absent(other)], vec![a()]),
        ("two writes for a key", vec![], vec![a(), Write::Delete { key: ground.key("a") }]),
        ("too many writes", vec![], many(COMMIT_OPERATIONS_MAX + 1)),
        ("too many operations", vec![none.clone()], many(COMMIT_OPERATIONS_MAX)),
        ("too many bytes", vec![], vec![large("a", COMMIT_BYTES_MAX + 1)]),
    ];
    for (what, checks, writes) in invalid {
        let answer = ground.store.commit(Commit { checks, writes }).await;
        let refused = matches!(&answer, Err(StoreError::NotApplied { reason: Reason::Invalid, .. }));
        assert!(refused, "{what}: {answer:?}");
        let page = ground.store.scan(ground.range(None), 1).await.expect("the store answers");
        assert_eq!(page.records, [], "{what}: something was written");
    }
    ground.done(vec![none], many(COMMIT_OPERATIONS_MAX - 1)).await;
    ground.done(vec![], vec![large("large", COMMIT_BYTES_MAX)]).await;
    let record = ground.read("large").await.expect("just put");
    assert_eq!(record.value.len() + record.key.name.len(), COMMIT_BYTES_MAX);
}
