//! `baton elect`, `baton elections`, and the SDK's leader: killed, stopped, cut off (E2, E3, E4, E6, E8, E10).

use crate::process::{Running, eventually, line_of};
use crate::server::{Server, quoted};
use baton_client::fence::{EpochGate, FencingToken};
use baton_client::wire::Metadata;
use baton_client::wire_election::ElectionEventKind;
use baton_client::{Baton, ElectionBuilder, ErrorCode, LossReason};
use baton_core::lock::LockName;
use baton_core::lock::name::Kind;
use baton_core::{Bytes, Commit, Key, Outcome, Write};
use baton_server::Config;
use baton_store::watch::Watch;
use baton_store::{Guarantees, Page, Range, Reading, Store, StoreFuture, Usage};
use baton_testkit::Dice;
use baton_testkit::proxy::Proxy;
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

impl Server {
    fn leader(&self, name: &str) -> Option<Value> {
        let output = self.run(&["elections", "show", name, "--output", "json"]);
        match output.code {
            0 => Some(serde_json::from_str(&output.stdout).unwrap()),
            69 => None,
            _ => panic!("{output:?}"),
        }
    }
}

/// Leads until its file is removed.
fn leads(server: &Server, name: &str, candidate: &str, more: &[&str]) -> (Running, PathBuf) {
    let file = server.file(&format!("{candidate}.leads"));
    let script = format!("echo $BATON_EPOCH > {0}; while [ -e {0} ]; do sleep 0.02; done", quoted(&file));
    let arguments = [&["elect", name, "--candidate", candidate], more, &["--", "sh", "-c", &script]].concat();
    (Running::start(&mut server.command(&arguments)), file)
}

#[test]
fn the_command_finds_its_epoch_and_its_exit_code_is_baton_s() {
    let server = Server::start();
    let epochs = [0; 2].map(|_| {
        let script = "echo $BATON_ELECTION $BATON_EPOCH $BATON_FENCING_TOKEN; exit 7";
        let output = server.run(&["elect", "e", "--", "sh", "-c", script]);
        assert_eq!(output.code, 7, "{}", output.stderr);
        let words: Vec<_> = output.stdout.split_whitespace().collect();
        assert_eq!((words[0], words[1]), ("e", words[2]));
        words[1].parse::<u64>().unwrap()
    });
    assert!(epochs[1] > epochs[0], "{epochs:?}");
    assert_eq!(server.leader("e"), None, "it has resigned");
    assert_eq!(server.run(&["elect", "e", "--value", "[]", "--", "true"]).code, 64);
    assert_eq!(server.run(&["elect", "e", "--priority", "1001", "--", "true"]).code, 64);
}

#[test]
fn candidates_stand_by_in_the_order_of_their_priorities_and_observers_hear_who_leads() {
    let server = Server::start();
    let (first, first_file) = leads(&server, "e", "first", &["--value", "{\"at\":\"here\"}"]);
    let first_epoch = line_of(&first_file);
    let observed = server.file("observed");
    let script = format!("exec \"$0\" --output json elections observe e > {}", quoted(&observed));
    let mut observe = Command::new("sh");
    observe.args(["-c", &script, env!("CARGO_BIN_EXE_baton")]).env("BATON_SERVER", &server.url);
    let observer = Running::start(&mut observe);
    let tried = server.run(&["elect", "e", "--try", "--", "true"]);
    assert_eq!(tried.code, 75);
    assert!(tried.stderr.contains("led by first"), "{}", tried.stderr);

    let (second, second_file) = leads(&server, "e", "second", &[]);
    eventually("one stands by", || server.leader("e").unwrap()["candidateCount"] == 1);
    let (third, third_file) = leads(&server, "e", "third", &["--priority", "5"]);
    eventually("two stand by", || server.leader("e").unwrap()["candidateCount"] == 2);
    let status = server.leader("e").unwrap();
    assert_eq!((&status["leader"], &status["value"]["at"]), (&"first".into(), &"here".into()));
    let listed = server.run(&["elections", "ls"]);
    assert!(listed.stdout.contains("first") && listed.stdout.contains(&first_epoch), "{}", listed.stdout);

    std::fs::remove_file(first_file).unwrap();
    assert_eq!(first.end().code, 0);
    let third_epoch = line_of(&third_file);
    std::fs::remove_file(third_file).unwrap();
    assert_eq!(third.end().code, 0);
    let second_epoch = line_of(&second_file);
    second.signal(Signal::TERM);
    assert_eq!(second.end().code, 143, "the command's own end");
    let expected = [("first", &first_epoch), ("third", &third_epoch), ("second", &second_epoch)];
    eventually("the observer has heard of all", || {
        let text = std::fs::read_to_string(&observed).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let leaders: Vec<_> = events.filter(|event| event["event"] == "leader").collect();
        leaders.len() >= 3
            && leaders.iter().zip(&expected).all(|(event, (leader, epoch))| {
                event["leader"] == *leader && event["epoch"].as_u64() == epoch.parse().ok()
            })
    });
    observer.signal(Signal::TERM);
}

#[test]
fn again_campaigns_after_every_end_until_it_is_asked_to_stop() {
    let server = Server::start();
    let (epochs, go) = (server.file("epochs"), server.file("go"));
    let script = format!(
        "echo $BATON_EPOCH >> {}; while [ ! -e {} ]; do sleep 0.02; done",
        quoted(&epochs),
        quoted(&go)
    );
    let arguments = ["elect", "e", "--again", "--ttl", "1s", "--", "sh", "-c", &script];
    let running = Running::start(&mut server.command(&arguments));
    let count = || std::fs::read_to_string(&epochs).unwrap_or_default().lines().count();
    eventually("it leads", || count() == 1);
    server.pause();
    // Longer than its lease: the command is stopped, and the next campaign waits for the server.
    std::thread::sleep(Duration::from_millis(1_500));
    server.resume();
    eventually("it leads again after the loss", || count() == 2);
    std::fs::write(&go, "").unwrap();
    eventually("it leads again after an end", || count() == 3);
    running.signal(Signal::TERM);
    let output = running.end();
    assert!(output.code == 143 || output.code == 0, "{output:?}");
    assert!(output.stderr.contains("campaigning again"), "{}", output.stderr);
}

/// What the leader in the next test does: writes with its epoch whatever it believes, and says how its scope ended.
async fn be_a_leader(url: &str, directory: &Path) {
    let log = {
        let path = directory.join("log");
        move |line: &str| {
            let mut file = std::fs::File::options().create(true).append(true).open(&path).unwrap();
            writeln!(file, "{line}").unwrap();
        }
    };
    let written = log.clone();
    let baton = Baton::connect(url).await.unwrap();
    let gate = EpochGate::open(directory.join("gate")).unwrap();
    let (wrote, go) = (directory.join("wrote"), directory.join("go"));
    let (kept, keep) = std::sync::mpsc::sync_channel(1);
    let scope =
        baton.election("e").candidate("stopped").ttl(Duration::from_secs(1)).lead(|leader| async move {
            kept.send(leader.clone()).unwrap();
            // A thread that asks nobody: what a process that is stopped in the middle of a step does next.
            std::thread::spawn(move || {
                gate.admit(leader.fencing_token()).unwrap();
                // It is stopped between two writes: in one, it would keep the gate's file locked for everybody.
                std::fs::write(wrote, "").unwrap();
                while !go.exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                gate.admit(leader.fencing_token()).unwrap_err();
                written("write refused");
            });
            std::future::pending::<()>().await
        });
    log("campaigning");
    let lost = scope.await.unwrap_err();
    assert_eq!(lost.lease_lost().unwrap().reason(), LossReason::DeadlinePassed, "{lost}");
    log("cancelled");
    let leader = keep.recv().unwrap();
    let call = leader.proclaim(Default::default()).await.unwrap_err();
    assert!(call.is_lease_lost() && leader.stamp(()).is_err(), "{call}");
    log("call refused");
    std::thread::sleep(Duration::from_secs(20));
}

#[test]
fn a_leader_that_was_stopped_past_its_ttl_finds_its_scope_cancelled_and_its_write_is_refused() {
    if let (Ok(url), Some(directory)) = (std::env::var("LEADER_URL"), std::env::var_os("LEADER_DIRECTORY")) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(be_a_leader(&url, Path::new(&directory)));
    }
    let server = Server::start();
    let directory = server.file("leader");
    std::fs::create_dir(&directory).unwrap();
    let this =
        "elect::a_leader_that_was_stopped_past_its_ttl_finds_its_scope_cancelled_and_its_write_is_refused";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([this, "--exact", "--nocapture"]);
    command.env("LEADER_URL", &server.url).env("LEADER_DIRECTORY", &directory);
    let stopped = Running::start(&mut command);
    let gate = EpochGate::open(directory.join("gate")).unwrap();
    eventually("it writes", || directory.join("wrote").exists());
    let old = gate.highest().unwrap().unwrap();

    stopped.signal(Signal::STOP);
    let (next, file) = leads(&server, "e", "next", &[]);
    let epoch: u64 = line_of(&file).parse().unwrap();
    assert!(epoch > old.get());
    gate.admit(FencingToken::new(epoch)).unwrap();
    let log = || std::fs::read_to_string(directory.join("log")).unwrap();
    assert_eq!(log(), "campaigning\n", "it stands still");

    std::fs::write(directory.join("go"), "").unwrap();
    stopped.signal(Signal::CONT);
    eventually("its write is refused", || log().contains("write refused"));
    eventually("its scope is cancelled", || log().contains("cancelled"));
    eventually("its next call is refused", || log().contains("call refused"));
    assert_eq!(gate.highest().unwrap().unwrap().get(), epoch, "nothing of it got through");
    std::fs::remove_file(file).unwrap();
    assert_eq!(next.end().code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_resigns_to_whom_it_likes_and_observers_outlive_the_server() {
    let mut server = Server::start_on_a_fixed_port();
    let baton = Baton::connect(&server.url).await.unwrap();
    let election = |candidate: &str| baton.election("e").candidate(candidate).ttl(Duration::from_secs(30));
    let mut observer = baton.elections().observe("e").unwrap();
    assert_eq!(observer.next().await.unwrap().event, ElectionEventKind::Vacant);
    let mut first = election("first").campaign().await.unwrap();
    let held = election("other").try_campaign().await.unwrap_err();
    assert!(held.is_not_leader() && held.body().unwrap().leader.as_deref() == Some("first"), "{held}");
    let event = observer.next().await.unwrap();
    assert_eq!((event.leader.as_deref(), event.epoch), (Some("first"), Some(first.epoch().get())));

    let refused = first.resign_to("second").await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::SuccessorNotWaiting));
    assert!(!first.is_deposed(), "it leads on");
    let urgent = tokio::spawn(election("urgent").priority(9).campaign());
    let second = tokio::spawn(election("second").campaign());
    let elections = baton.elections();
    while elections.status("e").await.unwrap().unwrap().candidate_count < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut value = Metadata::new();
    value.insert("at".into(), "there".into());
    first.proclaim(value.clone()).await.unwrap();
    let event = observer.next().await.unwrap();
    assert_eq!((event.epoch, event.value), (Some(first.epoch().get()), Some(value)));
    first.resign_to("second").await.unwrap();
    assert!(first.is_deposed() && first.leader().confirm().is_err());
    let second = second.await.unwrap().unwrap();
    assert!(second.epoch() > first.epoch() && !urgent.is_finished());
    assert_eq!(observer.next().await.unwrap().leader.as_deref(), Some("second"));

    // The server is gone and comes back; the leader and the observer find it again.
    server.kill();
    server.restart();
    second.resign().await.unwrap();
    let urgent = tokio::time::timeout(Duration::from_secs(40), urgent).await.unwrap().unwrap().unwrap();
    let heard = async {
        loop {
            let event = observer.next().await.unwrap();
            if event.event == ElectionEventKind::Leader {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(Duration::from_secs(20), heard).await.unwrap();
    assert_eq!((event.leader.as_deref(), event.epoch), (Some("urgent"), Some(urgent.epoch().get())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_leader_that_is_cut_off_steps_down_by_its_own_clock_before_another_is_elected() {
    const RUNS: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open("embedded:", directory.path()).await.unwrap();
    let store = Arc::new(Noting { store, elected: Mutex::default() });
    let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
    let server = baton_server::Server::on(config, store.clone()).await.unwrap();
    let address = server.address();
    let serving = tokio::spawn(server.serve(std::future::pending()));
    let proxy = Proxy::start(address).await.unwrap();
    let cut_off = Baton::connect(format!("http://{}", proxy.address())).await.unwrap();
    let direct = Baton::connect(format!("http://{address}")).await.unwrap();
    let election = |baton: &Baton, seed: u64, candidate: &str| -> ElectionBuilder {
        // Their renewals are in all phases of their leases when the cut comes.
        let ttl = Dice::new(seed).millis((2_000, 6_000));
        baton.election(format!("isolated {seed}")).candidate(candidate).ttl(ttl)
    };
    let mut runs = Vec::new();
    for seed in 0..RUNS {
        let guard = election(&cut_off, seed, "old").try_campaign().await.unwrap();
        let leader = guard.leader();
        // When it believed last: it looks again and again, and notes when each look began.
        let looks = tokio::spawn(async move {
            let mut believed = Instant::now();
            loop {
                let began = Instant::now();
                match leader.confirm() {
                    Ok(_) => believed = began,
                    Err(lost) => return (believed, lost),
                }
                // The nearer the end, the closer it looks.
                let pause = leader.lease().remaining() / 4;
                tokio::time::sleep(pause.clamp(Duration::from_millis(1), Duration::from_millis(100))).await;
            }
        });
        let standing_by =
            tokio::spawn(election(&direct, seed, "new").ttl(Duration::from_secs(60)).campaign());
        runs.push((seed, guard, looks, standing_by));
    }
    assert!(runs.iter().all(|(_, guard, ..)| !guard.is_deposed()), "nobody is deposed before the cut");
    proxy.refuse();
    proxy.cut();
    for (seed, guard, looks, standing_by) in runs {
        let new = standing_by.await.unwrap().unwrap();
        assert!(new.epoch() > guard.epoch(), "seed {seed}");
        let (believed, lost) = looks.await.unwrap();
        assert_eq!(lost.reason(), LossReason::DeadlinePassed, "seed {seed}");
        let elected = store.elected(&format!("isolated {seed}"));
        assert!(believed < elected, "seed {seed}: it believed {:?} after the election", believed - elected);
    }
    serving.abort();
}

/// A store that notes when it was asked to make a leader: its clock has ended the lease before by then.
struct Noting {
    store: Arc<dyn Store>,
    elected: Mutex<Vec<(String, Instant)>>,
}

impl Noting {
    /// When the last leader of an election was made, at the earliest.
    fn elected(&self, election: &str) -> Instant {
        let elected = self.elected.lock().unwrap();
        elected.iter().rev().find(|(name, _)| name == election).unwrap().1
    }
}

impl Store for Noting {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        let asked = Instant::now();
        let made = commit.writes.iter().filter_map(|write| match write {
            Write::Put { key, .. } => LockName::of_record(Kind::Grant, &key.name),
            _ => None,
        });
        let made: Vec<_> = made.map(|(election, _)| (election.key().to_owned(), asked)).collect();
        let committing = self.store.commit(commit);
        Box::pin(async move {
            let outcome = committing.await;
            if matches!(outcome, Ok(Outcome::Committed { .. })) {
                self.elected.lock().unwrap().extend(made);
            }
            outcome
        })
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        self.store.read(keys)
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        self.store.scan(range, limit)
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.store.watch(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.store.expirations(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }
}
