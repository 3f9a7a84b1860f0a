//! A TCP proxy in front of an address, to do to a connection what networks do: refuse it, cut it, or let what was said
//! in one direction arrive late or never.
//!
//! Bytes are never changed, reordered or dropped on a connection that lives. What is held is delivered when it is let
//! go, even if its sender has given up and closed the connection meanwhile: that is how a request arrives after its
//! time-out. Everything ends with the value.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Bytes held for one direction of one connection. At the bound nothing more is read, so the sender is held up by its
/// own socket, as it would be by a network that doesn't take any more.
pub const HELD_BYTES_MAX: usize = 1 << 20;
/// Connections at a time; more are reset like refused ones.
pub const CONNECTIONS_MAX: usize = 1024;
const READ_BYTES: usize = 16 * 1024;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From whoever connected to the address behind the proxy.
    Requests,
    /// Back.
    Answers,
}

/// What all connections obey.
struct Switches {
    upstream: watch::Sender<SocketAddr>,
    refuses: watch::Sender<bool>,
    /// Counts the cuts.
    cuts: watch::Sender<u64>,
    requests: Valve,
    answers: Valve,
    connections: watch::Sender<usize>,
}

/// One direction of all connections.
#[derive(Default)]
struct Valve {
    is_shut: watch::Sender<bool>,
    held_bytes: watch::Sender<usize>,
    passed_bytes: AtomicU64,
}

/// A proxy that runs. Dropping it ends it and all its connections.
pub struct Proxy {
    address: SocketAddr,
    switches: Arc<Switches>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free loopback port, in front of `upstream`. Everything passes at first.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let switches = Arc::new(Switches {
            upstream: watch::Sender::new(upstream),
            refuses: watch::Sender::new(false),
            cuts: watch::Sender::new(0),
            requests: Valve::default(),
            answers: Valve::default(),
            connections: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, switches.clone()));
        Ok(Self { address, switches, accepting })
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// New connections go there, as when an address moves to another machine. Those that live aren't touched.
    pub fn redirect(&self, upstream: SocketAddr) {
        self.switches.upstream.send_replace(upstream);
    }

    /// New connections are reset as soon as they are made. Those that live aren't touched.
    pub fn refuse(&self) {
        self.switches.refuses.send_replace(true);
    }

    /// New connections are accepted again.
    pub fn accept(&self) {
        self.switches.refuses.send_replace(false);
    }

    /// Resets all connections, on both sides. What was held for them is lost.
    pub fn cut(&self) {
        self.switches.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// What arrives from now on in this direction stays here, on every connection.
    pub fn hold(&self, direction: Direction) {
        self.valve(direction).is_shut.send_replace(true);
    }

    /// Delivers what was held in this direction, and passes what follows.
    pub fn release(&self, direction: Direction) {
        self.valve(direction).is_shut.send_replace(false);
    }

    /// As at the start: accepts connections and passes everything, what was held first.
    pub fn pass(&self) {
        self.accept();
        self.release(Direction::Requests);
        self.release(Direction::Answers);
    }

    /// How many bytes are held in this direction.
    pub fn held_bytes(&self, direction: Direction) -> usize {
        *self.valve(direction).held_bytes.borrow()
    }

    /// How many bytes were ever delivered in this direction.
    pub fn passed_bytes(&self, direction: Direction) -> u64 {
        self.valve(direction).passed_bytes.load(Ordering::Relaxed)
    }

    /// Returns when at least this many bytes are held in this direction.
    pub async fn held(&self, direction: Direction, bytes: usize) {
        let mut held = self.valve(direction).held_bytes.subscribe();
        held.wait_for(|held| *held >= bytes).await.expect("the sender is in self");
    }

    /// Returns when there are just this many connections.
    pub async fn connected(&self, connections: usize) {
        let mut counts = self.switches.connections.subscribe();
        counts.wait_for(|count| *count == connections).await.expect("the sender is in self");
    }

    fn valve(&self, direction: Direction) -> &Valve {
        match direction {
            Direction::Requests => &self.switches.requests,
            Direction::Answers => &self.switches.answers,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The connections' tasks are in a set of this one, and end with it.
async fn accept(listener: TcpListener, switches: Arc<Switches>) {
    let mut connections = JoinSet::new();
    loop {
        // An accept fails if the other side went away first; the next one is waited for all the same.
        let Ok((client, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        if *switches.refuses.borrow() || connections.len() >= CONNECTIONS_MAX {
            reset(client);
        } else {
            // Subscribed here, so that no cut from now on is missed.
            let cuts = switches.cuts.subscribe();
            connections.spawn(serve(client, switches.clone(), cuts));
        }
    }
}

async fn serve(mut client: TcpStream, switches: Arc<Switches>, mut cuts: watch::Receiver<u64>) {
    let _counted = Counted::new(&switches.connections, 1);
    let upstream = *switches.upstream.borrow();
    let connected = tokio::select! {
        biased;
        _ = cuts.changed() => return reset(client),
        connected = TcpStream::connect(upstream) => connected,
    };
    let Ok(mut server) = connected else { return reset(client) };
    // Small messages aren't to wait for each other here: who holds them says so. Without it they'd only be slower.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let requests = pump(client_read, server_write, &switches.requests);
        let answers = pump(server_read, client_write, &switches.answers);
        tokio::select! {
            biased;
            _ = cuts.changed() => {}
            _ = async { tokio::join!(requests, answers) } => return,
        }
    }
    reset(client);
    reset(server);
}

/// One direction of one connection, until its sender has said all and its receiver has it.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, valve: &Valve) {
    let mut is_shut = valve.is_shut.subscribe();
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; READ_BYTES]);
    let mut held = Counted::new(&valve.held_bytes, 0);
    let mut has_ended = false;
    loop {
        // Seen after each read: what arrives after a hold is held.
        let passes = !*is_shut.borrow_and_update();
        if passes {
            if to.write_all(&buffer).await.is_err() {
                // The receiver is gone, which the other direction sees as well, and tells the sender.
                return;
            }
            valve.passed_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            buffer.clear();
        }
        held.set(buffer.len());
        if passes && has_ended {
            break;
        }
        let room = READ_BYTES.min(HELD_BYTES_MAX - buffer.len());
        tokio::select! {
            biased;
            _ = is_shut.changed() => {}
            read = from.read(&mut chunk[..room]), if !has_ended && room > 0 => match read {
                Ok(0) | Err(_) => has_ended = true,
                Ok(count) => buffer.extend_from_slice(&chunk[..count]),
            },
        }
    }
    // If the receiver is gone already, it needn't be told.
    drop(to.shutdown().await);
}

/// Without a farewell, whatever is still under way: the other side gets an error, not an end.
fn reset(stream: TcpStream) {
    // If it isn't possible the connection ends all the same.
    drop(stream.set_zero_linger());
}

/// A share of a sum, taken back when it is dropped.
struct Counted<'a> {
    sum: &'a watch::Sender<usize>,
    share: usize,
}

impl<'a> Counted<'a> {
    fn new(sum: &'a watch::Sender<usize>, share: usize) -> Self {
        let mut counted = Self { sum, share: 0 };
        counted.set(share);
        counted
    }

    fn set(&mut self, share: usize) {
        if share != self.share {
            self.sum.send_modify(|sum| *sum = *sum - self.share + share);
            self.share = share;
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}
