//! A real process, killed with SIGKILL under load, many times over the same data.

use baton_core::{Check, Commit, Group, Key, Outcome, Ttl, Write};
use baton_store::{Range, Store, open};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const ROUNDS: usize = 12;
const CLIENTS: usize = 16;
const DIRECTORY: &str = "BATON_TEST_KILL_DIRECTORY";
const ROUND: &str = "BATON_TEST_KILL_ROUND";

fn pair(round: &str, client: usize, index: usize) -> [Key; 2] {
    ["left", "right"].map(|side| {
        Key::new(Group(client as u8), format!("{round}/{client:02}/{index:06}/{side}").into_bytes())
    })
}

/// What the killed process runs: not a test unless the one below starts it.
#[test]
fn child() {
    let (Ok(directory), Ok(round)) = (std::env::var(DIRECTORY), std::env::var(ROUND)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = open("embedded:", Path::new(&directory)).await.unwrap();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| tokio::spawn(commit_forever(store.clone(), round.clone(), client)))
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
}

async fn commit_forever(store: Arc<dyn Store>, round: String, client: usize) {
    for index in 0.. {
        let keys = pair(&round, client, index);
        let checks = keys.iter().cloned().map(Check::Absent).collect();
        let put = |key: &Key| Write::Put { key: key.clone(), value: b"1"[..].into(), ttl: Ttl::Forever };
        let writes = keys.iter().map(put).collect();
        let Ok(Outcome::Committed { revision, .. }) = store.commit(Commit { checks, writes }).await else {
            panic!("nothing is in the way")
        };
        let line = format!("acknowledged {client} {index} {}\n", revision.0);
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    }
}

/// Runs the child until `count` acknowledgements, kills it, and gives all that it had printed.
fn run_and_kill(directory: &Path, round: usize, count: usize) -> Vec<(usize, usize, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8(line.unwrap()).unwrap();
        // The test runner's own words may stand before the first.
        let Some((_, numbers)) = line.split_once("acknowledged ") else { continue };
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [client, index, revision] = numbers[..] else { panic!("{line}") };
        acknowledged.push((client as usize, index as usize, revision));
        if acknowledged.len() == count {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success(), "the child ended by itself");
    acknowledged
}

#[tokio::test]
async fn what_was_acknowledged_survives_being_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut revision_max = 0;
    let mut kept = 0;
    for round in 0..ROUNDS {
        let acknowledged = run_and_kill(directory.path(), round, 50 + round * 97);
        let store = open("embedded:", directory.path()).await.unwrap();
        let mut found = BTreeMap::new();
        for client in 0..CLIENTS {
            let range = Range {
                group: Group(client as u8),
                prefix: format!("{round}/").into_bytes().into(),
                after: None,
            };
            let page = store.scan(range, usize::MAX).await.unwrap();
            assert!(!page.more);
            found.extend(page.records.into_iter().map(|record| (record.key, record.revision.0)));
        }
        for (client, index, revision) in &acknowledged {
            for key in pair(&round.to_string(), *client, *index) {
                assert_eq!(found.get(&key), Some(revision), "round {round} lost {key:?}");
            }
        }
        let lefts = found.keys().filter(|key| key.name.ends_with(b"left"));
        let whole = |key: &Key| {
            let right = [&key.name[..key.name.len() - 4], b"right"].concat();
            found.contains_key(&Key::new(key.group, right))
        };
        assert!(
            lefts.clone().all(whole) && lefts.count() * 2 == found.len(),
            "half a commit in round {round}"
        );
        assert!(found.values().all(|revision| *revision > revision_max), "a revision was used again");
        revision_max = found.values().copied().max().unwrap();
        kept += found.len() as u64;
        assert_eq!(store.usage().records, kept, "an earlier round has lost something");
    }
}
