//! The replica of what needs no agreement: local writes beside the store's own commits, and local reads (issue 8).

use super::Bench;
use crate::load::{self, Client, Sample};
use crate::peers::store::Committer;
use crate::progress;
use crate::report::{Row, Target, Unit};
use baton_core::crdt::{Edit, Kind, Object};
use baton_engine::replica::{Options, Replica};
use baton_store::Store;
use baton_store::embedded::Embedded;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLIENTS: usize = 256;
const VALUE_BYTES: usize = 200;
const READS: u32 = 100_000;

/// Sets a register of its own, and waits until that is durable.
struct Writer {
    replica: Arc<Replica>,
    edit: Edit,
}

impl Client for Writer {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.replica.write(std::slice::from_ref(&self.edit), None).await?;
        Ok(began.elapsed())
    }
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let (mut replica_samples, mut store_samples, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 1..=turns {
        progress::say(&format!("The replica, {CLIENTS} clients, round {turn} of {turns}"));
        let directory = bench.place.directory()?;
        let replica = Arc::new(Replica::open(directory.path(), Options::default()).await?);
        let writer = |client| {
            let object = Object::plain("bench", &format!("client-{client:03}"));
            let edit = Edit::put(&object, Kind::Register, &[7; VALUE_BYTES]);
            Writer { replica: replica.clone(), edit }
        };
        let (_, sample) = load::run((0..CLIENTS).map(writer).collect(), length).await?;
        replica_samples.push(sample);
        let object = Object::plain("bench", "client-000");
        let began = Instant::now();
        (0..READS).for_each(|_| drop(black_box(replica.register(&object))));
        reads.push(began.elapsed().as_nanos() as f64 / f64::from(READS));
        replica.close().await;
        drop((replica, directory));

        let directory = bench.place.directory()?;
        let store: Arc<dyn Store> =
            Arc::new(Embedded::open(directory.path(), baton_store::embedded::Options::default())?);
        let users = (0..CLIENTS).map(|client| Committer::new(store.clone(), client, VALUE_BYTES)).collect();
        let (users, sample) = load::run(users, length).await?;
        store_samples.push(sample);
        drop((users, store, directory));
    }
    let (ours, store) = (Sample::median(&replica_samples), Sample::median(&store_samples));
    bench.report.rows.push(Row {
        id: "CRDT",
        what: format!(
            "local durable writes of the replica, {CLIENTS} clients, against the embedded store's own commits"
        ),
        ours: ours.show(),
        peer: store.show(),
        figure: ours.per_second / store.per_second,
        unit: Unit::Times,
        target: Some(Target::AtLeast(0.8)),
    });
    bench.report.rows.push(Row {
        id: "CRDT",
        what: "a local read of the replica, in process (at most 5 µs)".into(),
        ours: format!("{:.0} ns", load::median(reads)),
        peer: String::new(),
        figure: f64::NAN,
        unit: Unit::Times,
        target: None,
    });
    bench.report.methods.push((
        "CRDT",
        format!(
            "every client sets its own register of {VALUE_BYTES} bytes and waits until that is durable; beside it, every client \
             replaces its own record of as many bytes in the embedded store by a commit that checks its revision. In this process, no network."
        ),
    ));
    Ok(())
}
