//! Hints: a connection of its own that hears what commits publish, and says `Lost` whenever it had to come back.

use super::Shared;
use super::Unopened;
use super::codec;
use super::routes::Routes;
use crate::backoff;
use crate::watch::Change;
use ::redis::{PushInfo, PushKind, Value, cmd};
use baton_core::Group;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the connection is tried, and the routes looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Between two attempts to come back, at most.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs as long as the store does.
pub(super) async fn hear(shared: Arc<Shared>) {
    loop {
        // Whatever ended it, something may have been missed; also before the first time.
        if let Err(trouble) = once(&shared).await {
            tracing::debug!(%trouble, "the hints from Redis were interrupted");
        }
        tokio::time::sleep(backoff::spread(AGAIN)).await;
    }
}

async fn once(shared: &Arc<Shared>) -> Result<(), Unopened> {
    let routes: &Routes = &shared.routes;
    routes.refresh().await?;
    // In a cluster every server hears what is published at any of them.
    let link = routes.link(Group(0));
    let closed = Arc::new(AtomicBool::new(false));
    let (flag, hub) = (closed.clone(), shared.clone());
    let push = move |push: PushInfo| match push.kind {
        PushKind::Disconnection => flag.store(true, Ordering::Release),
        PushKind::Message => {
            let message = push.data.into_iter().nth(1).and_then(codec::bytes);
            if let Some((revision, changes)) = message.as_deref().and_then(codec::hints) {
                hub.saw(revision);
                hub.hub.publish(changes.into_iter());
            }
        }
        _ => {}
    };
    let mut connection = link.connect(push).await?;
    // By one command: a script that counts who listens finds this node in both or in neither.
    let channels: Vec<_> = [&shared.channel].into_iter().chain(&shared.own_channel).collect();
    connection.subscribe(channels).await.map_err(|error| error.to_string())?;
    shared.hub.publish(std::iter::once(Change::Lost));
    while !closed.load(Ordering::Acquire) {
        tokio::time::sleep(LOOK).await;
        let alive = connection.send_packed_command(&cmd("PING")).await;
        alive.and_then(Value::extract_error).map_err(|error| error.to_string())?;
        if routes.refresh().await.unwrap_or(false) {
            return Ok(());
        }
    }
    Err(Unopened::Unreachable("the server has hung up".into()))
}
