//! The proxy, in front of a real server that echoes, and says what arrived.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use baton_testkit::proxy::{Direction, HELD_BYTES_MAX, Proxy};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Nothing here takes as long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What reached the server.
#[derive(PartialEq, Eq, Debug)]
enum Arrival {
    Bytes(Vec<u8>),
    End,
    Reset,
}

struct Echo {
    address: SocketAddr,
    arrivals: mpsc::Receiver<Arrival>,
    serving: JoinHandle<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, arrivals) = mpsc::channel(1024);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo(stream, heard.clone()));
            }
        });
        Self { address, arrivals, serving }
    }

    async fn arrival(&mut self) -> Arrival {
        in_time(self.arrivals.recv()).await.unwrap()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn echo(mut stream: TcpStream, heard: mpsc::Sender<Arrival>) {
    let mut buffer = vec![0; 4096];
    loop {
        let arrival = match stream.read(&mut buffer).await {
            Ok(0) => Arrival::End,
            Ok(count) => Arrival::Bytes(buffer[..count].to_vec()),
            Err(_) => Arrival::Reset,
        };
        if let Arrival::Bytes(bytes) = &arrival {
            // A client that is gone doesn't hear its echo.
            drop(stream.write_all(bytes).await);
        }
        let is_over = !matches!(arrival, Arrival::Bytes(_));
        if heard.send(arrival).await.is_err() || is_over {
            return;
        }
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

async fn start() -> (Echo, Proxy, TcpStream) {
    let echo = Echo::start().await;
    let proxy = Proxy::start(echo.address).await.unwrap();
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    in_time(proxy.connected(1)).await;
    (echo, proxy, client)
}

async fn say(client: &mut TcpStream, words: &[u8]) {
    in_time(client.write_all(words)).await.unwrap();
}

async fn hear(client: &mut TcpStream, words: &[u8]) {
    let mut heard = vec![0; words.len()];
    in_time(client.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, words);
}

fn bytes(words: &[u8]) -> Arrival {
    Arrival::Bytes(words.to_vec())
}

#[tokio::test]
async fn everything_passes_until_both_sides_have_said_all() {
    let (mut echo, proxy, mut client) = start().await;
    say(&mut client, b"hello").await;
    hear(&mut client, b"hello").await;
    assert_eq!(echo.arrival().await, bytes(b"hello"));
    client.shutdown().await.unwrap();
    assert_eq!(echo.arrival().await, Arrival::End);
    assert_eq!(in_time(client.read(&mut [0; 8])).await.unwrap(), 0);
    in_time(proxy.connected(0)).await;
}

#[tokio::test]
async fn refused_connections_are_reset_and_others_go_on() {
    let (_echo, proxy, mut client) = start().await;
    proxy.refuse();
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(in_time(refused.read(&mut [0; 8])).await.is_err());
    say(&mut client, b"still here").await;
    hear(&mut client, b"still here").await;
    proxy.accept();
    let mut accepted = TcpStream::connect(proxy.address()).await.unwrap();
    say(&mut accepted, b"back").await;
    hear(&mut accepted, b"back").await;
}

#[tokio::test]
async fn a_connection_to_nobody_is_reset() {
    let address = baton_testkit::process::free_address().unwrap();
    let proxy = Proxy::start(address).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(in_time(client.read(&mut [0; 8])).await.is_err());
    in_time(proxy.connected(0)).await;
}

#[tokio::test]
async fn a_cut_resets_both_sides_and_loses_what_was_held() {
    let (mut echo, proxy, mut client) = start().await;
    say(&mut client, b"before").await;
    hear(&mut client, b"before").await;
    assert_eq!(echo.arrival().await, bytes(b"before"));
    proxy.hold(Direction::Requests);
    say(&mut client, b"lost").await;
    in_time(proxy.held(Direction::Requests, 4)).await;
    proxy.cut();
    assert!(in_time(client.read(&mut [0; 8])).await.is_err());
    assert_eq!(echo.arrival().await, Arrival::Reset);
    in_time(proxy.connected(0)).await;
    assert_eq!(proxy.held_bytes(Direction::Requests), 0);
    proxy.pass();
    let mut again = TcpStream::connect(proxy.address()).await.unwrap();
    say(&mut again, b"after").await;
    hear(&mut again, b"after").await;
    assert_eq!(echo.arrival().await, bytes(b"after"));
}

#[tokio::test]
async fn a_held_request_arrives_when_it_is_let_go_though_its_sender_has_left() {
    let (mut echo, proxy, mut client) = start().await;
    proxy.hold(Direction::Requests);
    say(&mut client, b"late").await;
    in_time(proxy.held(Direction::Requests, 4)).await;
    drop(client);
    // Others come and go meanwhile; theirs is held as well.
    let mut other = TcpStream::connect(proxy.address()).await.unwrap();
    say(&mut other, b"x").await;
    in_time(proxy.held(Direction::Requests, 5)).await;
    assert!(echo.arrivals.try_recv().is_err(), "nothing has arrived yet");
    proxy.release(Direction::Requests);
    let mut arrivals = Vec::new();
    for _ in 0..3 {
        arrivals.push(echo.arrival().await);
    }
    for wanted in [bytes(b"late"), Arrival::End, bytes(b"x")] {
        assert!(arrivals.contains(&wanted), "{wanted:?} in {arrivals:?}");
    }
    hear(&mut other, b"x").await;
}

#[tokio::test]
async fn a_held_answer_is_of_a_request_that_has_arrived() {
    let (mut echo, proxy, mut client) = start().await;
    proxy.hold(Direction::Answers);
    say(&mut client, b"did it").await;
    assert_eq!(echo.arrival().await, bytes(b"did it"));
    in_time(proxy.held(Direction::Answers, 6)).await;
    assert!(client.try_read(&mut [0; 8]).is_err(), "nothing to read yet");
    say(&mut client, b", twice").await;
    in_time(proxy.held(Direction::Answers, 13)).await;
    proxy.release(Direction::Answers);
    hear(&mut client, b"did it, twice").await;
    assert_eq!(proxy.held_bytes(Direction::Answers), 0);
}

#[tokio::test]
async fn at_the_bound_the_sender_is_held_up_and_nothing_is_lost() {
    let (mut echo, proxy, client) = start().await;
    proxy.hold(Direction::Requests);
    let sent: Vec<u8> = (0..HELD_BYTES_MAX * 16).map(|number| (number % 251) as u8).collect();
    let (mut reader, mut writer) = client.into_split();
    let words = sent.clone();
    let sending = tokio::spawn(async move { writer.write_all(&words).await.map(|()| writer) });
    in_time(proxy.held(Direction::Requests, HELD_BYTES_MAX)).await;
    assert_eq!(proxy.held_bytes(Direction::Requests), HELD_BYTES_MAX);
    assert!(!sending.is_finished());
    let draining = tokio::spawn(async move { while echo.arrivals.recv().await.is_some() {} });
    proxy.release(Direction::Requests);
    let mut heard = vec![0; sent.len()];
    in_time(reader.read_exact(&mut heard)).await.unwrap();
    assert!(heard == sent);
    sending.await.unwrap().unwrap();
    draining.abort();
}

#[tokio::test]
async fn it_ends_with_the_value() {
    let (mut echo, proxy, mut client) = start().await;
    say(&mut client, b"hello").await;
    assert_eq!(echo.arrival().await, bytes(b"hello"));
    hear(&mut client, b"hello").await;
    let address = proxy.address();
    drop(proxy);
    assert!(matches!(in_time(client.read(&mut [0; 8])).await, Ok(0) | Err(_)));
    assert!(matches!(echo.arrival().await, Arrival::End | Arrival::Reset));
    in_time(async { while TcpStream::connect(address).await.is_ok() {} }).await;
}
