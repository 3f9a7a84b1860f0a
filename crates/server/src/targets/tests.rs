//! Nothing is sent or started once an attempt is over, however long it waited for that (J3). And a target that can't be reached holds up nobody
//! else (J12).

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
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

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

fn get(url: String) -> Target {
    Target::Http(Http { method: "GET".into(), url, headers: Vec::new(), body: String::new(), secret: None })
}

fn calling_here() -> Targets {
    let allow = vec!["127.0.0.0/8".parse::<Allowed>().unwrap()];
    Targets::new(&TargetConfig { allow, ..TargetConfig::default() })
}

/// Answers whatever comes on a connection, one after the other.
async fn answer(mut stream: TcpStream, counted: Arc<AtomicUsize>) {
    let mut piece = [0; 4096];
    while let Ok(1..) = stream.read(&mut piece).await {
        counted.fetch_add(1, Ordering::SeqCst);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }
}

/// Somebody who takes no connections for now.
fn listening() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(1).unwrap()
}

/// Connects until nobody can any more: the connections have to be kept.
async fn fill(listener: &TcpListener) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    loop {
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        match timeout(Duration::from_millis(300), connecting).await {
            Ok(connection) => connections.push(connection.unwrap()),
            Err(_) => return connections,
        }
    }
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
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, counted.clone()));
        }
    });
    let (attempt, slept_ms) = attempt(get(url)).await;
    let targets = calling_here();
    let first = targets.run(&attempt).await;
    assert!(!is_failed(&first), "{first:?}");
    // Timers and the clock stood still meanwhile.
    slept_ms.store(3_600_000, Ordering::Relaxed);
    let late = targets.run(&attempt).await;
    assert_eq!(seen.load(Ordering::SeqCst), 1, "it was sent after its attempt was over");
    assert!(is_failed(&late), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_used_while_everybody_whose_turn_it_is_waits_for_one() {
    let (listener, seen) = (listening(), Arc::new(AtomicUsize::new(0)));
    let (attempt, _) = attempt(get(format!("http://{}/", listener.local_addr().unwrap()))).await;
    let targets = Arc::new(calling_here());
    let accepted = async { listener.accept().await.unwrap().0 };
    let (first, _) = tokio::join!(targets.run(&attempt), async {
        tokio::spawn(answer(accepted.await, seen.clone()));
    });
    assert!(!is_failed(&first), "{first:?}");
    let _connections = fill(&listener).await;
    // They may not use a connection that is there.
    let mut once = attempt.clone();
    Arc::make_mut(&mut once.definition).guarantee = Guarantee::AtMostOnce;
    let mut connecting = JoinSet::new();
    for _ in 0..40 {
        let (targets, once) = (targets.clone(), once.clone());
        connecting.spawn(async move { targets.run(&once).await });
    }
    let gives_up = timeout(Duration::from_secs(1), connecting.join_next()).await;
    assert!(gives_up.is_err(), "they can't connect: {gives_up:?}");
    let ran = timeout(Duration::from_secs(5), targets.run(&attempt)).await;
    assert!(ran.is_ok_and(|ran| !is_failed(&ran)), "it waited for those that can't connect");
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    assert_eq!(connecting.len(), 40, "none of them has given up yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_takes_no_connections_holds_up_nobody_else() {
    let (dead, healthy) = (listening(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let _connections = fill(&dead).await;
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open("embedded:", directory.path()).await.unwrap();
    let engine = Engine::start(store, Config::default(), Random::system()).await.unwrap();
    engine.set_runner(Arc::new(calling_here()));
    let to = |listener: &TcpListener| {
        let target = get(format!("http://{}/", listener.local_addr().unwrap()));
        Definition { attempts_max: 1, ..Definition::plain(None, target) }
    };
    let mut asking = JoinSet::new();
    // More than a node makes attempts at once.
    for job in 0..1_100 {
        let (engine, definition) = (engine.clone(), to(&dead));
        asking.spawn(async move {
            let name = Name::new("default", &format!("dead{job}"));
            engine.put_job(&name, definition).await.unwrap();
            engine.run_job(&name, None).await.unwrap()
        });
    }
    let runs = asking.join_all().await;
    for run in &runs {
        while engine.run(*run).await.unwrap().run.attempt == 0 {
            tokio::task::yield_now().await;
        }
    }
    let name = Name::new("default", "healthy");
    engine.put_job(&name, to(&healthy)).await.unwrap();
    engine.run_job(&name, None).await.unwrap();
    let called = timeout(Duration::from_secs(30), healthy.accept()).await;
    assert!(called.is_ok(), "it is never called");
    for run in runs {
        let end = engine.run(run).await.unwrap().run.end();
        assert_eq!(end, None, "it waited for attempts at another target, which can't be reached");
    }
}
