//! Opening the store, or starting without it.
//!
//! A store that can't be reached now is tried until it can be, while the server serves what it can without it. What isn't a
//! matter of time is refused: a URL that can't be read, a password that isn't taken, a schema of a newer version.

use baton_engine::Random;
use baton_store::{Late, OpenStoreError, Store, open};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long the start waits for a server to be opened; it goes on being opened while this one serves.
const START_MAX: Duration = Duration::from_secs(5);
/// The pause after the first try that failed; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A store, or where it will be.
pub(crate) enum Opened {
    Here(Arc<dyn Store>),
    Coming(Box<Late>, Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>),
}

type Opening = JoinHandle<Result<Arc<dyn Store>, OpenStoreError>>;

/// Opens what `url` names; an embedded store has its files in `data`.
pub(crate) async fn opened(url: &str, data: PathBuf) -> Result<Opened, OpenStoreError> {
    // What is no server is there, or isn't; and takes as long as it takes.
    let Ok(late) = Late::new(url) else { return open(url, &data).await.map(Opened::Here) };
    let mut opening = begin(url, data.clone());
    let url = url.to_owned();
    match timeout(START_MAX, &mut opening).await {
        Ok(Ok(Ok(store))) => {
            tell_warnings(&*store);
            Ok(Opened::Here(store))
        }
        Ok(Ok(Err(OpenStoreError::Unreachable(detail)))) => {
            tracing::warn!(detail, "the store can't be reached: starting without it");
            Ok(Opened::Coming(Box::new(late), Box::pin(until_open(url, data, None))))
        }
        Ok(Ok(Err(error))) => Err(error),
        Ok(Err(error)) => Err(OpenStoreError::Refused(error.to_string())),
        Err(_) => {
            tracing::warn!("the store takes long to be opened: starting without it");
            Ok(Opened::Coming(Box::new(late), Box::pin(until_open(url, data, Some(opening)))))
        }
    }
}

fn begin(url: &str, data: PathBuf) -> Opening {
    let url = url.to_owned();
    tokio::spawn(async move { open(&url, &data).await })
}

/// Tries until it is open.
async fn until_open(url: String, data: PathBuf, mut opening: Option<Opening>) -> Arc<dyn Store> {
    let (mut pause, random) = (PAUSE_MIN, Random::system());
    loop {
        let opening = opening.take().unwrap_or_else(|| begin(&url, data.clone()));
        match opening.await {
            Ok(Ok(store)) => {
                tell_warnings(&*store);
                tracing::info!("the store is there");
                return store;
            }
            Ok(Err(error @ OpenStoreError::Unreachable(_))) => tracing::warn!("{error}; trying again"),
            // Somebody may put it right where the store is: this goes on, and nobody is told that it is ready.
            Ok(Err(error)) => tracing::error!("{error}; trying again, but that alone will not help"),
            Err(error) => tracing::error!(%error, "the store couldn't be opened; trying again"),
        }
        // Nodes that lost their store together don't come back to it at the same moments.
        sleep(random.jittered(pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

pub(crate) fn tell_warnings(store: &dyn Store) {
    for warning in store.guarantees().warnings {
        tracing::warn!("the store's settings are weaker than its promises need: {warning}");
    }
}
