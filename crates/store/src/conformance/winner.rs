//! Of commits that compete for one record, exactly one wins each turn.

use super::{Ground, Harness, put};
use baton_core::{Check, Commit, Outcome};
use std::sync::Arc;

const CLIENTS: u64 = 8;
const TURNS: u64 = 25;

pub(super) async fn is_one<H: Harness>(harness: &H) {
    let ground = Arc::new(Ground::new(harness, "winner").await);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let ground = ground.clone();
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    add_one(&ground).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("the client ends well");
    }
    let record = ground.read("count").await.expect("it was made");
    let count: u64 = std::str::from_utf8(&record.value).expect("a number").parse().expect("a number");
    assert_eq!(count, CLIENTS * TURNS, "some turns had no winner of their own");
}

/// A counter that only checks protect.
async fn add_one(ground: &Ground) {
    let key = ground.key("count");
    let (mut check, mut count) = (Check::Absent(key.clone()), 0);
    loop {
        let writes = vec![put(key.clone(), &(count + 1).to_string())];
        match ground.store.commit(Commit { checks: vec![check], writes }).await.expect("the store answers") {
            Outcome::Committed { .. } => return,
            Outcome::Conflict { found, .. } => {
                let record = found[0].1.as_ref().expect("nobody deletes it");
                count = std::str::from_utf8(&record.value).expect("a number").parse().expect("a number");
                check = Check::At(key.clone(), record.revision);
            }
        }
    }
}
