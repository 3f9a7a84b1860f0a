//! Nothing is sent or started once an attempt is over, however long it waited for that (J3).

use super::allow::Allowed;
use super::{TargetConfig, Targets};
use baton_core::Name;
use baton_core::job::{AttemptEnd, Definition, Guarantee, Http, Target};
use baton_engine::asleep::Asleep;
use baton_engine::job::{Attempt, Ran, Runner, Running};
use baton_engine::{Config, Engine, Random};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Hands an attempt to the test, and says that it succeeded.
struct Handing(Mutex<Option<oneshot::Sender<Attempt>>>);

impl Runner for Handing {
    fn run<'a>(&'a self, attempt: &'a Attempt) -> Running<'a> {
        if let Some(test) = self.0.lock().unwrap().take() {
            test.send(attempt.clone()).unwrap();
        }
        Box::pin(async { Ran::Ended(AttemptEnd::succeeded()) })
    }
}

/// An attempt at a target, as an engine makes them, and how long the machine has slept, in milliseconds.
async fn attempt(target: Target) -> (Attempt, Arc<AtomicU64>) {
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open("embedded:", directory.path()).await.unwrap();
    let slept_ms = Arc::new(AtomicU64::new(0));
    let config = Config { asleep: Asleep::Set(slept_ms.clone()), ..Config::default() };
    let engine = Engine::start(store, config, Random::system()).await.unwrap();
    let (test, handed) = oneshot::channel();
    engine.set_runner(Arc::new(Handing(Mutex::new(Some(test)))));
    let definition = Definition { guarantee: Guarantee::AtLeastOnce, ..Definition::plain(None, target) };
    let name = Name::new("default", "j");
    engine.put_job(&name, definition).await.unwrap();
    engine.run_job(&name, None).await.unwrap();
    (handed.await.unwrap(), slept_ms)
}

fn is_failed(ran: &Ran) -> bool {
    matches!(ran, Ran::Ended(end) if !end.succeeded)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_place_comes_too_late_is_not_started() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("started");
    let arguments = vec![marker.to_str().unwrap().to_owned()];
    let (mut attempt, _) = attempt(Target::Command { program: "touch".into(), arguments }).await;
    let targets = Targets::new(&TargetConfig { commands: true, ..TargetConfig::default() });
    let room = &targets.commands.as_ref().unwrap().room;
    let places = room.acquire_many(room.available_permits() as u32).await.unwrap();
    attempt.until = Instant::now();
    let mut running = targets.run(&attempt);
    let is_waiting = poll_fn(|context| Poll::Ready(running.as_mut().poll(context).is_pending())).await;
    assert!(is_waiting, "all places are taken");
    drop(places);
    let ran = running.await;
    assert!(!marker.exists(), "it was started after its attempt was over");
    assert!(is_failed(&ran), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_not_sent_too_late_on_a_connection_that_is_there_already() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, seen) = (format!("http://{}/", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let counted = seen.clone();
    // Answers whatever comes, one after the other, on each connection.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = counted.clone();
            tokio::spawn(async move {
                let mut piece = [0; 4096];
                while let Ok(1..) = stream.read(&mut piece).await {
                    counted.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                }
            });
        }
    });
    let http = Http { method: "GET".into(), url, headers: Vec::new(), body: String::new(), secret: None };
    let (attempt, slept_ms) = attempt(Target::Http(http)).await;
    let allow = vec!["127.0.0.0/8".parse::<Allowed>().unwrap()];
    let targets = Targets::new(&TargetConfig { allow, ..TargetConfig::default() });
    let first = targets.run(&attempt).await;
    assert!(!is_failed(&first), "{first:?}");
    // Timers and the clock stood still meanwhile.
    slept_ms.store(3_600_000, Ordering::Relaxed);
    let late = targets.run(&attempt).await;
    assert_eq!(seen.load(Ordering::SeqCst), 1, "it was sent after its attempt was over");
    assert!(is_failed(&late), "{late:?}");
}
