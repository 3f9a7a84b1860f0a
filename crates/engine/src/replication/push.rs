//! Local writes, told to one other replica as they happen.
//!
//! While something is on its way, what comes waits and is put together. What can't be told is forgotten here, and nothing is told
//! until a repair shows that the other is there again: it then asks for what it has missed, by itself.

use super::link::Link;
use super::{Lane, NoAnswer, Shared};
use crate::replica::{Origin, Told};
use baton_core::crdt::Delta;
use baton_core::crdt::sync::{Answer, Ask, Outbox};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

pub(super) async fn run(shared: Arc<Shared>, link: Arc<Link>, changes: broadcast::Receiver<Arc<Told>>) {
    let mut queue = Queue { changes, outbox: Outbox::default(), link: &link, shared: &shared };
    let mut up = link.up.subscribe();
    while queue.next().await {
        if link.state().is_self {
            queue.forget();
            continue;
        }
        if !*up.borrow_and_update() {
            queue.drop_all();
            continue;
        }
        while let Some(delta) = queue.outbox.take() {
            link.state().waiting = queue.outbox.len() as u64;
            if let Err(error) = tell(&mut queue, &delta).await {
                tracing::debug!(peer = %link.address, %error, "another replica can't be told");
                shared.options.metrics.dropped.inc_by(delta.changes.len() as u64);
                link.state().dropped += delta.changes.len() as u64;
                link.up.send_replace(false);
                queue.drop_all();
            }
        }
    }
}

async fn tell(queue: &mut Queue<'_>, delta: &Delta) -> Result<(), NoAnswer> {
    let (link, shared) = (queue.link, queue.shared);
    let mut told = pin!(link.ask(shared, Lane::Push, None, Ask::Push(delta.clone())));
    let reply = loop {
        tokio::select! {
            reply = &mut told => break reply?,
            _ = queue.next() => {}
        }
    };
    shared.options.metrics.pushes.inc();
    match reply.answer {
        Answer::Took { held: 0, skipped: 0, .. } => link.took(delta, &shared.replica.context()),
        // What it holds or has no room for now it will ask for again.
        Answer::Took { .. } => {}
        _ => return Err(NoAnswer("it answers something else".into())),
    }
    Ok(())
}

struct Queue<'a> {
    changes: broadcast::Receiver<Arc<Told>>,
    outbox: Outbox,
    link: &'a Link,
    shared: &'a Shared,
}

impl Queue<'_> {
    /// Waits for a change, and takes all that are there. False if there won't be any more.
    async fn next(&mut self) -> bool {
        let mut told = self.changes.recv().await;
        loop {
            match told {
                Ok(told) if told.origin == Origin::Local => self.add(&told.delta),
                Ok(_) => {}
                Err(RecvError::Lagged(lost)) => self.lost(lost),
                Err(RecvError::Closed) => return false,
            }
            told = match self.changes.try_recv() {
                Ok(told) => Ok(told),
                Err(broadcast::error::TryRecvError::Lagged(lost)) => Err(RecvError::Lagged(lost)),
                Err(_) => break,
            };
        }
        self.link.state().waiting = self.outbox.len() as u64;
        true
    }

    fn add(&mut self, delta: &Delta) {
        for change in &delta.changes {
            let waiting = self.outbox.len() as u64;
            if !self.outbox.add(change) {
                self.lost(waiting + 1);
            }
        }
    }

    fn lost(&mut self, changes: u64) {
        self.shared.options.metrics.dropped.inc_by(changes);
        self.link.state().dropped += changes;
    }

    fn drop_all(&mut self) {
        self.lost(self.outbox.len() as u64);
        self.forget();
    }

    fn forget(&mut self) {
        self.outbox = Outbox::default();
        self.link.state().waiting = 0;
    }
}
