//! How those who wait for a key hear that something happened to it: all of them on a node share one watch of its record,
//! which lasts as long as one of them.

use crate::engine::Node;
use baton_core::Key;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The keys that somebody on this node waits for: no more than calls that wait.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<HashMap<Key, Weak<Ear>>>);

/// What those who wait for one key share.
pub(crate) struct Ear {
    something: Notify,
    /// Ends the watch.
    closed: Arc<Notify>,
}

impl Ear {
    /// Resolves when something may have happened, from when it was enabled on.
    pub fn heard(&self) -> Notified<'_> {
        self.something.notified()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.closed.notify_one();
    }
}

impl Node {
    /// Begins to listen for changes of a record.
    pub fn listen(self: &Arc<Self>, key: &Key) -> Arc<Ear> {
        let mut waiting = self.waiting.0.lock().expect("no panic while held");
        if let Some(ear) = waiting.get(key).and_then(Weak::upgrade) {
            return ear;
        }
        let closed = Arc::new(Notify::new());
        let ear = Arc::new(Ear { something: Notify::new(), closed: closed.clone() });
        waiting.insert(key.clone(), Arc::downgrade(&ear));
        let (node, key, listening) = (self.clone(), key.clone(), Arc::downgrade(&ear));
        let mut watch = self.store.watch(key.name.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = closed.notified() => break,
                    change = watch.next() => match (change, listening.upgrade()) {
                        (Some(_), Some(ear)) => ear.something.notify_waiters(),
                        _ => break,
                    },
                }
            }
            let mut waiting = node.waiting.0.lock().expect("no panic while held");
            // Unless somebody else has begun to listen meanwhile.
            if waiting.get(&key).is_some_and(|ear| ear.strong_count() == 0) {
                waiting.remove(&key);
            }
        });
        ear
    }
}
