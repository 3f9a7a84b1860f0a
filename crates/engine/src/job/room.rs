//! Places of attempts that a node makes at once, and how many of them those may have that go to one destination.
//!
//! A target that doesn't answer has the places of its attempts until their time is over. With a bound for each destination it holds up its
//! own attempts, and not those of all others. Whoever waits for the destination holds no place meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Attempts that a node makes at once; others wait.
const ALL_MAX: usize = 1_024;
/// Of those that go to one destination.
const DESTINATION_MAX: usize = 256;
/// Destinations that are known; beyond it those are forgotten that nobody goes to. There are no more than attempts that are begun.
const DESTINATIONS: usize = 1_024;

pub(super) struct Room {
    all: Arc<Semaphore>,
    destinations: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// An attempt may be made for as long as it has this.
pub(super) struct Place {
    _of_all: OwnedSemaphorePermit,
    /// With what counts them, which would be forgotten else.
    _of_destination: Option<(OwnedSemaphorePermit, Arc<Semaphore>)>,
}

impl Default for Room {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL_MAX)), destinations: Mutex::default() }
    }
}

impl Room {
    /// Waits for a place.
    pub async fn enter(&self, destination: Option<String>) -> Result<Place, AcquireError> {
        let of_destination = match destination.map(|destination| self.destination(destination)) {
            Some(places) => Some((places.clone().acquire_owned().await?, places)),
            None => None,
        };
        Ok(Place { _of_all: self.all.clone().acquire_owned().await?, _of_destination: of_destination })
    }

    fn destination(&self, destination: String) -> Arc<Semaphore> {
        let mut all = self.destinations.lock().expect("no panic while held");
        if let Some(places) = all.get(&destination).and_then(Weak::upgrade) {
            return places;
        }
        if all.len() >= DESTINATIONS {
            all.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Semaphore::new(DESTINATION_MAX));
        all.insert(destination, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Duration;
    use tokio::task::{JoinSet, unconstrained};
    use tokio::time::timeout;

    /// Enters if there is room.
    async fn enter(room: &Room, destination: Option<&str>) -> Option<Place> {
        let mut entering = pin!(unconstrained(room.enter(destination.map(Into::into))));
        match poll_fn(|context| Poll::Ready(entering.as_mut().poll(context))).await {
            Poll::Ready(place) => Some(place.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_destination_has_a_part_of_the_places_and_whoever_waits_for_it_has_none() {
        let room = Arc::new(Room::default());
        let mut places = Vec::new();
        for _ in 0..DESTINATION_MAX {
            places.push(enter(&room, Some("dead")).await.unwrap());
        }
        let mut waiting = JoinSet::new();
        for _ in 0..2 * ALL_MAX {
            let room = room.clone();
            waiting.spawn(async move { drop(room.enter(Some("dead".into())).await) });
        }
        assert!(timeout(Duration::from_millis(1), waiting.join_next()).await.is_err());
        let mut others = Vec::new();
        for _ in DESTINATION_MAX..ALL_MAX {
            others.push(enter(&room, None).await.unwrap());
        }
        assert!(enter(&room, None).await.is_none() && enter(&room, Some("other")).await.is_none());
        others.pop();
        assert!(enter(&room, Some("other")).await.is_some());
        places.clear();
        waiting.join_all().await;
    }

    #[tokio::test]
    async fn destinations_that_nobody_goes_to_are_forgotten() {
        let room = Room::default();
        let kept = enter(&room, Some("kept")).await;
        for number in 0..3 * DESTINATIONS {
            drop(enter(&room, Some(&number.to_string())).await);
        }
        let known = room.destinations.lock().unwrap().len();
        assert!(kept.is_some() && known <= DESTINATIONS, "{known}");
        assert!(room.destinations.lock().unwrap()["kept"].upgrade().is_some());
    }
}
