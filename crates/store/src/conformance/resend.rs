//! A commit of unknown outcome that checks its own id record is sent again without harm: it takes effect once.
//! And once that id is poisoned, a late one stays out.

use super::{Ground, Harness, put};
use crate::contract::StoreError;
use baton_core::{Check, Commit, Outcome};
use std::sync::Arc;

/// In one round: a server may stand still for a moment.
const UNKNOWN_MAX: usize = 3;

pub(super) async fn takes_effect_once<H: Harness>(harness: &H) {
    let ground = Arc::new(Ground::new(harness, "resend").await);
    for round in 0..50 {
        let id = ground.key(&format!("id-{round}"));
        let effect = ground.key(&format!("effect-{round}"));
        let commit = Commit {
            checks: vec![Check::Absent(id.clone())],
            writes: vec![put(id.clone(), "mine"), put(effect, "once")],
        };
        // The answer is lost: at once, or with the commit on its way.
        let lost = tokio::spawn({
            let (ground, commit) = (ground.clone(), commit.clone());
            async move { ground.store.commit(commit).await }
        });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        lost.abort();
        // Aborted, or done.
        lost.await.ok();

        let (mut applied, mut unknown) = (Vec::new(), 0);
        while applied.len() < 3 {
            match ground.store.commit(commit.clone()).await {
                Ok(Outcome::Committed { revision, .. }) => applied.push(revision),
                Ok(Outcome::Conflict { found, .. }) => {
                    let record = found[0].1.as_ref().expect("only my id can be in the way");
                    assert_eq!(&record.value[..], b"mine");
                    applied.push(record.created);
                }
                // What the law is about; but a store that answers nothing else keeps no law.
                Err(StoreError::Unknown { .. }) if unknown < UNKNOWN_MAX => unknown += 1,
                Err(error) => panic!("the store answers: {error:?}"),
            }
        }
        assert!(applied.iter().all(|revision| *revision == applied[0]), "took effect twice: {applied:?}");
        let effect = ground.read(&format!("effect-{round}")).await.expect("it took effect");
        assert_eq!((effect.created, effect.revision), (applied[0], applied[0]));
    }

    let (id, effect) = (ground.key("id"), ground.key("effect"));
    ground.done(vec![Check::Absent(id.clone())], vec![put(id.clone(), "aborted")]).await;
    let found =
        ground.refused(vec![Check::Absent(id.clone())], vec![put(id, "mine"), put(effect, "late")]).await;
    assert_eq!(&found[0].1.as_ref().expect("poisoned").value[..], b"aborted");
    assert_eq!(ground.read("effect").await, None, "a late commit got in");
}
