//! Who the other replicas are: a list, the addresses behind names, or the nodes that share the store.

use baton_engine::Engine;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often names are looked up.
const LOOK_UP_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked which nodes share the store.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where other replicas are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Peers {
    /// At the nodes that share the store.
    #[default]
    Store,
    /// Where it was said, also without any common store.
    Listed(Vec<Place>),
}

/// One place, or several behind a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Host and port.
    At(Arc<str>),
    /// All addresses that a host's name stands for, and the port.
    Dns(Arc<str>),
}

/// Text that isn't where replicas are.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no peer: say http://HOST:PORT, or dns:NAME:PORT for all addresses of a name")]
pub struct PeersError(String);

impl FromStr for Peers {
    type Err = PeersError;

    fn from_str(text: &str) -> Result<Self, PeersError> {
        let places = text.split(',').map(str::trim).filter(|place| !place.is_empty()).map(Place::from_str);
        places.collect::<Result<_, _>>().map(Self::Listed)
    }
}

impl FromStr for Place {
    type Err = PeersError;

    fn from_str(text: &str) -> Result<Self, PeersError> {
        let (is_name, address) = match text.strip_prefix("dns:") {
            Some(address) => (true, address),
            None => (false, text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/')),
        };
        if !crate::config::is_host_and_port(address) {
            return Err(PeersError(text.into()));
        }
        Ok(if is_name { Self::Dns(address.into()) } else { Self::At(address.into()) })
    }
}

/// The addresses of other replicas, as they change.
pub(super) fn find(peers: &Peers, engine: Engine) -> watch::Receiver<Vec<Arc<str>>> {
    match peers {
        Peers::Store => {
            let (found, addresses) = watch::channel(members(&engine));
            tokio::spawn(follow_members(found, engine));
            addresses
        }
        Peers::Listed(places) => {
            let fixed = places.iter().filter_map(|place| match place {
                Place::At(address) => Some(address.clone()),
                Place::Dns(_) => None,
            });
            let (found, addresses) = watch::channel(fixed.collect());
            if places.iter().any(|place| matches!(place, Place::Dns(_))) {
                tokio::spawn(follow_names(found, places.clone()));
            }
            addresses
        }
    }
}

fn members(engine: &Engine) -> Vec<Arc<str>> {
    let others = engine.members().into_iter().filter(|(node, _)| *node != engine.node());
    others.filter_map(|(_, session)| session.address.clone()).filter(|address| !address.is_empty()).collect()
}

async fn follow_members(found: watch::Sender<Vec<Arc<str>>>, engine: Engine) {
    while is_wanted(&found, LOOK_EVERY).await {
        let members = members(&engine);
        found.send_if_modified(|known| (*known != members).then(|| *known = members).is_some());
    }
}

/// Waits; false as soon as nobody listens any more, so that nothing is held on to.
async fn is_wanted(found: &watch::Sender<Vec<Arc<str>>>, pause: Duration) -> bool {
    tokio::time::timeout(pause, found.closed()).await.is_err()
}

async fn follow_names(found: watch::Sender<Vec<Arc<str>>>, places: Vec<Place>) {
    loop {
        let (mut addresses, mut is_complete) = (BTreeSet::new(), true);
        for place in &places {
            match place {
                Place::At(address) => {
                    addresses.insert(address.clone());
                }
                Place::Dns(name) => match tokio::net::lookup_host(&**name).await {
                    Ok(known) => addresses.extend(known.map(|address| Arc::from(address.to_string()))),
                    Err(error) => {
                        tracing::warn!(%name, %error, "a name of replicas can't be looked up: those known stay");
                        is_complete = false;
                    }
                },
            }
        }
        found.send_if_modified(|known| {
            // Somebody whose name can't be looked up now is not gone.
            addresses.extend(known.iter().filter(|_| !is_complete).cloned());
            let addresses: Vec<_> = std::mem::take(&mut addresses).into_iter().collect();
            (*known != addresses).then(|| *known = addresses).is_some()
        });
        if !is_wanted(&found, LOOK_UP_EVERY).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read_as_they_are_written() {
        let peers: Peers = "http://a:1, b:2/,dns:replicas.internal:7117".parse().unwrap();
        let places =
            [Place::At("a:1".into()), Place::At("b:2".into()), Place::Dns("replicas.internal:7117".into())];
        assert_eq!(peers, Peers::Listed(places.to_vec()));
        for wrong in ["a", "http://a", "dns:a", "https://a:1", "http://me:secret@a:1", "a:0"] {
            assert!(wrong.parse::<Peers>().is_err(), "{wrong}");
        }
    }
}
