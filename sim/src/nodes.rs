//! One live node in each place: killed or drained, and started again on the same records, while what the last one had
//! sent may still arrive.

use crate::broken::BrokenStore;
use crate::world::{NodeLife, World};
use baton_engine::signal::Signal;
use baton_engine::{Engine, Random};
use baton_store::Store;
use baton_testkit::Dice;
use baton_testkit::simulated::{Faults, Node};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A node that is up.
pub struct Live {
    /// As the store counts.
    pub number: u32,
    /// What clients call.
    pub engine: Engine,
    handle: Arc<Node>,
    dead: Signal,
    /// How many waiting calls it has had: the engine numbers them in this order.
    attachments: AtomicU64,
}

impl Live {
    /// The number that the engine is going to give to a waiting call made now.
    pub fn attachment(&self) -> u64 {
        self.attachments.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Resolves when the node is gone.
    pub async fn death(&self) {
        self.dead.wait().await;
    }
}

/// Starts a node, however often it takes.
async fn start(world: &Arc<World>, place: usize, dice: &mut Dice) {
    loop {
        let handle = world.store.node(world.faults());
        let number = handle.number();
        let mut store: Arc<dyn Store> = handle.clone();
        if let Some(broken) = world.plan.broken {
            store = Arc::new(BrokenStore { broken, store });
        }
        match Engine::start(store, world.plan.config.clone(), Random::seeded(dice.number())).await {
            Ok(engine) => {
                let id = engine.node().0;
                world.records().nodes.push(NodeLife { number, id });
                world.note(|| format!("node {number} is up as {id:016x}"));
                let (dead, attachments) = (Signal::default(), AtomicU64::new(0));
                let live = Arc::new(Live { number, engine, handle, dead, attachments });
                world.replace_node(place, Some(live));
                return;
            }
            Err(error) => {
                world.note(|| format!("node {number} can't start: {error}"));
                handle.kill();
                tokio::time::sleep(dice.millis((50, 300))).await;
            }
        }
    }
}

/// Ends the live node.
async fn stop(world: &Arc<World>, place: usize, dice: &mut Dice) {
    let Some(live) = world.replace_node(place, None) else { return };
    let number = live.number;
    if dice.chance(world.plan.drained) {
        world.note(|| format!("node {number} drains"));
        let limit = Duration::from_secs(20);
        if tokio::time::timeout(limit, live.engine.drain()).await.is_err() {
            world.absurd(format!("node {number} didn't drain within {limit:?}"));
        }
    }
    world.note(|| format!("node {number} dies"));
    live.handle.kill();
    live.dead.raise();
}

/// Keeps a node up, with interruptions, until the world calms down.
pub async fn keep(world: Arc<World>, place: usize, mut dice: Dice) {
    start(&world, place, &mut dice).await;
    while let Some(lives_ms) = world.plan.node_lives_ms {
        let life = dice.millis(lives_ms);
        let is_calm = tokio::select! {
            biased;
            () = world.calm.wait() => true,
            () = tokio::time::sleep(life) => false,
        };
        if is_calm {
            break;
        }
        stop(&world, place, &mut dice).await;
        tokio::time::sleep(dice.millis(world.plan.node_down_ms)).await;
        start(&world, place, &mut dice).await;
    }
    world.calm.wait().await;
    let live = world.live(place as u64).await;
    live.handle.set_faults(Faults::none());
}

impl World {
    fn faults(&self) -> Faults {
        if self.is_calm() { Faults::none() } else { self.plan.faults.clone() }
    }
}
