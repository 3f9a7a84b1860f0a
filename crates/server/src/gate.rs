//! Bulkheads (O9): each class of work has its own number of places, so that one class can't starve another.
//! Who finds no place is refused at once; nobody queues here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of places.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Places>);

#[derive(Debug)]
struct Places {
    taken: AtomicUsize,
    max: usize,
}

impl Gate {
    /// With this many places.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Places { taken: AtomicUsize::new(0), max }))
    }

    /// Takes a place, if one is free.
    pub fn enter(&self) -> Option<Place> {
        let before = self.0.taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.clone());
        // Dropping the place gives the number back.
        (before < self.0.max).then_some(place)
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }
}

/// A taken place, free again when dropped.
#[derive(Debug)]
pub struct Place(Gate);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whose work it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Acquires that may wait.
    Waiting,
    /// Renewals and releases.
    Urgent,
    /// Watches.
    Watching,
    /// Everything else.
    Work,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Urgent, Self::Watching, Self::Work];

    /// As a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Urgent => "urgent",
            Self::Watching => "watching",
            Self::Work => "work",
        }
    }
}

/// A gate for every class.
#[derive(Clone, Debug)]
pub struct Gates([Gate; Class::ALL.len()]);

impl Gates {
    /// As configured.
    pub fn new(config: &crate::Config) -> Self {
        Self(Class::ALL.map(|class| {
            Gate::new(match class {
                Class::Waiting => config.max_waiting,
                Class::Urgent => config.max_urgent,
                Class::Watching => config.max_watchers,
                Class::Work => config.max_in_flight,
            })
        }))
    }

    /// A class's gate.
    pub fn of(&self, class: Class) -> &Gate {
        &self.0[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_holder_or_a_refused_caller_is_gone() {
        let gate = Gate::new(2);
        let first = gate.enter();
        let second = gate.enter();
        assert!(first.is_some() && second.is_some());
        assert!(gate.enter().is_none());
        assert_eq!(gate.taken(), 2);
        drop(first);
        assert!(gate.enter().is_some());
    }

    #[test]
    fn classes_do_not_share_places() {
        let config = crate::Config { max_waiting: 1, max_in_flight: 0, ..crate::Config::default() };
        let gates = Gates::new(&config);
        let waiting = gates.of(Class::Waiting).enter();
        assert!(waiting.is_some() && gates.of(Class::Waiting).enter().is_none());
        assert!(gates.of(Class::Work).enter().is_none());
        assert!(gates.of(Class::Urgent).enter().is_some());
    }
}
