//! Replicas tell each other what changed, and find out what they have missed (D3, D6).
//!
//! # Layout
//! - this file: who the others are, and how far they have come; [`Replication`]
//! - `link`: what is shared about one other replica; [`PeerStatus`]
//! - `push`: local writes, told as they happen
//! - `pull`: the repair of whatever was missed
//! - `inherit`: what earlier runs of this replica counted becomes this one's
//! - `metrics`: what is counted
//!
//! # Promises
//! - Nothing local waits for another replica. What is to be told to one waits in a bounded buffer of its own; when that is full it is
//!   emptied, and the other finds out by itself what it missed.
//! - Every replica asks every other one about once in [`Options::sync`], also if it couldn't be reached before. What a replica had
//!   when it was asked, the one that asked has after that.
//! - Every exchange is bounded in size and in time.

mod inherit;
mod link;
mod metrics;
mod pull;
mod push;

pub use link::PeerStatus;
pub use metrics::Metrics;

use crate::random::Random;
use crate::replica::Replica;
use baton_core::Bytes;
use link::Link;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often a replica asks each other one, unless it is said otherwise.
pub const SYNC: Duration = Duration::from_secs(1);
/// The most other replicas: further addresses are passed over, and said so in the log.
pub const PEERS_MAX: usize = 64;
/// How long one question may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// There was no answer, or none that can be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(pub String);

/// What is said on a connection of its own, so that one doesn't wait for the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// What changed.
    Push,
    /// What was missed.
    Pull,
}

/// An answer to come.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Bytes, NoAnswer>> + Send + 'a>>;

/// The way to other replicas: over HTTP in the server. It proves who asks and who answers.
pub trait Wire: Send + Sync {
    /// Asks the replica at an address. There is one question under way on a lane; the caller bounds the time.
    fn exchange<'a>(&'a self, address: &'a str, lane: Lane, request: &'a [u8]) -> Answering<'a>;
}

/// How replication is set up.
#[derive(Clone)]
pub struct Options {
    /// How often each other replica is asked, about.
    pub sync: Duration,
    /// How long one question may take; after that the other is taken to be away.
    pub answer_within: Duration,
    /// Spreads the questions.
    pub random: Random,
    /// Where it is counted.
    pub metrics: Metrics,
}

impl Default for Options {
    fn default() -> Self {
        let (random, metrics) = (Random::system(), Metrics::default());
        Self { sync: SYNC, answer_within: ANSWER_WITHIN, random, metrics }
    }
}

/// A replica and the others. Dropping it ends what it does by itself.
pub struct Replication {
    shared: Arc<Shared>,
    following: JoinHandle<()>,
    inheriting: JoinHandle<()>,
}

struct Shared {
    replica: Arc<Replica>,
    wire: Arc<dyn Wire>,
    options: Options,
    /// Of the last request.
    number: AtomicU64,
    links: Mutex<BTreeMap<Arc<str>, Running>>,
}

/// A link and what it does.
struct Running {
    link: Arc<Link>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Replication {
    /// Begins to replicate with whoever is at the addresses, which may change.
    pub fn start(
        replica: Arc<Replica>,
        wire: Arc<dyn Wire>,
        options: Options,
        peers: watch::Receiver<Vec<Arc<str>>>,
    ) -> Self {
        let shared =
            Arc::new(Shared { replica, wire, options, number: AtomicU64::new(0), links: Mutex::default() });
        // At once: what is written from now on is told.
        shared.connect(&peers.borrow());
        let following = tokio::spawn(follow(Arc::downgrade(&shared), peers));
        let inheriting = tokio::spawn(inherit::run(Arc::downgrade(&shared)));
        Self { shared, following, inheriting }
    }

    /// Ends what it does by itself: nobody is told or asked any more.
    pub fn stop(&self) {
        self.following.abort();
        self.inheriting.abort();
        self.shared.links().clear();
    }

    /// How far each other replica is, in the order of addresses.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let own = self.shared.replica.context();
        self.shared.links().values().map(|running| running.link.status(&own)).collect()
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Running>> {
        self.links.lock().expect("no panic while held")
    }

    /// No two requests have the same number.
    fn number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn connect(self: &Arc<Self>, addresses: &[Arc<str>]) {
        if addresses.len() > PEERS_MAX {
            tracing::error!(
                addresses = addresses.len(),
                "more replicas than {PEERS_MAX}: the last are passed over"
            );
        }
        let wanted = &addresses[..addresses.len().min(PEERS_MAX)];
        let mut links = self.links();
        links.retain(|address, _| wanted.contains(address));
        for address in wanted {
            links.entry(address.clone()).or_insert_with(|| {
                let link = Arc::new(Link::new(address.clone()));
                let changes = self.replica.changes();
                let push = tokio::spawn(push::run(self.clone(), link.clone(), changes));
                let pull = tokio::spawn(pull::run(self.clone(), link.clone()));
                Running { link, tasks: [push, pull] }
            });
        }
    }
}

async fn follow(shared: Weak<Shared>, mut peers: watch::Receiver<Vec<Arc<str>>>) {
    loop {
        let addresses = peers.borrow_and_update().clone();
        let Some(shared) = shared.upgrade() else { return };
        shared.connect(&addresses);
        drop(shared);
        if peers.changed().await.is_err() {
            // Nobody finds any others: those that are known stay.
            return;
        }
    }
}
