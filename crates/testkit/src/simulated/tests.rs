use super::*;
use baton_core::{Check, Group, Ttl, Write};
use baton_store::conformance::{self, Ending, Harness};
use baton_store::{Store, StoreError};

struct Ground(Simulated);

impl Harness for Ground {
    async fn open(&self) -> Arc<dyn Store> {
        // Some laws wait for others without letting time pass, so that nothing may take time here.
        self.0.node(Faults { there_ms: (0, 0), back_ms: (0, 0), ..Faults::none() })
    }

    async fn reopen(&self, store: Arc<dyn Store>, _: Ending) -> Arc<dyn Store> {
        drop(store);
        self.open().await
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_law_of_the_contract_holds() {
    conformance::all(&Ground(Simulated::new(1))).await;
}

fn once(name: &str) -> Commit {
    let key = Key::new(Group(1), name.as_bytes());
    let put = Write::Put { key: key.clone(), value: b"1"[..].into(), ttl: Ttl::Forever };
    Commit { checks: vec![Check::Absent(key)], writes: vec![put] }
}

async fn tried(faults: Faults, name: &str) -> (Simulated, Result<Outcome, StoreError>) {
    let store = Simulated::new(1);
    let outcome = store.node(faults).commit(once(name)).await;
    (store, outcome)
}

#[tokio::test(start_paused = true)]
async fn a_fault_does_what_it_says() {
    let (store, refused) = tried(Faults { refused: 1000, ..Faults::none() }, "a").await;
    assert!(matches!(refused, Err(StoreError::NotApplied { .. })) && store.records().is_empty());

    let (store, lost) = tried(Faults { lost: 1000, ..Faults::none() }, "a").await;
    assert!(matches!(lost, Err(StoreError::Unknown { .. })));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(store.records().is_empty());

    let (store, unheard) = tried(Faults { answer_lost: 1000, ..Faults::none() }, "a").await;
    assert!(matches!(unheard, Err(StoreError::Unknown { .. })) && store.records().len() == 1);

    let late = Faults { late: 1000, late_ms: (500, 500), ..Faults::none() };
    let (store, unknown) = tried(late, "a").await;
    assert!(matches!(unknown, Err(StoreError::Unknown { .. })) && store.records().is_empty());
    let again = store.node(Faults::none()).commit(once("a")).await;
    assert!(matches!(again, Ok(Outcome::Committed { .. })));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let conflicts = store.take_history();
    let conflicts = conflicts.iter().filter(|happening| matches!(happening.what, What::Conflict { .. }));
    assert_eq!(conflicts.count(), 1, "the late one arrived, and met its own copy");
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_hears_nothing_and_what_it_sent_may_still_arrive() {
    let store = Simulated::new(1);
    let node = store.node(Faults { there_ms: (10, 10), lost_at_death: 0, ..Faults::none() });
    let sent = node.commit(once("a"));
    let heard = tokio::time::timeout(Duration::from_millis(5), sent).await;
    assert!(heard.is_err());
    node.kill();
    let heard = tokio::time::timeout(Duration::from_secs(60), node.read(Vec::new())).await;
    assert!(heard.is_err(), "a dead node was answered");
    assert_eq!(store.records().len(), 1);
}
