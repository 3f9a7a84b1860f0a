//! P3: the embedded store alone, beside its own log with nothing above it, and the disk's bare syncs.

use super::Bench;
use crate::load::{self, Client, Sample, count};
use crate::machine::Place;
use crate::peers::store::Committer;
use crate::progress;
use crate::report::{Row, Target, Unit};
use anyhow::{Context, ensure};
use baton_store::Store;
use baton_store::embedded::log::{Batch, Log};
use baton_store::embedded::{Embedded, Options};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const CLIENTS: usize = 256;
const VALUE_BYTES: usize = 200;
/// What the store writes to its log for one such commit: names, lengths, revisions and the value.
const EFFECT_BYTES: usize = 2 + 4 + "client-000".len() + 4 + VALUE_BYTES + 28;
const SEGMENT_BYTES: u64 = 64 << 20;

/// The least that can commit in groups: a queue, one thread, one append and one sync for all who wait.
struct Group256 {
    waiting: Mutex<(Vec<oneshot::Sender<()>>, bool)>,
    arrived: Condvar,
}

impl Group256 {
    /// Until closed; also if the log fails, which then ends the clients.
    fn serve(&self, mut log: Log) -> anyhow::Result<()> {
        let mut batch = Batch::default();
        loop {
            let guard = self.waiting.lock().ok().context("a client panicked")?;
            let waits = |(waiting, open): &mut (Vec<_>, bool)| waiting.is_empty() && *open;
            let mut guard = self.arrived.wait_while(guard, waits).ok().context("a client panicked")?;
            let waiting = std::mem::take(&mut guard.0);
            drop(guard);
            if waiting.is_empty() {
                return Ok(());
            }
            append(&mut log, &mut batch, waiting.len())?;
            for answer in waiting {
                answer.send(()).ok();
            }
        }
    }
}

struct Appender(Arc<Group256>);

impl Client for Appender {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let (answer, answered) = oneshot::channel();
        let was_empty = {
            let mut waiting = self.0.waiting.lock().ok().context("the writer panicked")?;
            waiting.0.push(answer);
            waiting.0.len() == 1
        };
        if was_empty {
            self.0.arrived.notify_one();
        }
        answered.await.context("the log failed")?;
        Ok(began.elapsed())
    }
}

/// One batch as the store would write it, made durable.
fn append(log: &mut Log, batch: &mut Batch, effects: usize) -> anyhow::Result<()> {
    batch.clear();
    for _ in 0..effects {
        batch.payload().extend_from_slice(&[7; EFFECT_BYTES]);
    }
    ensure!(log.has_room(batch.len()) || log.wait_for_room(batch.len()), "no room for the log");
    log.append(batch, 0, 0)?;
    Ok(log.sync()?)
}

/// Effects a second of a log in full batches, one after the other.
fn bare_log(place: &Place, length: Duration) -> anyhow::Result<f64> {
    let directory = place.directory()?;
    let mut log = Log::open(directory.path(), SEGMENT_BYTES)?;
    let (mut batch, mut batches, began) = (Batch::default(), 0, Instant::now());
    while began.elapsed() < length {
        append(&mut log, &mut batch, CLIENTS)?;
        batches += 1;
    }
    Ok(f64::from(batches) * CLIENTS as f64 / began.elapsed().as_secs_f64())
}

/// Syncs a second of 4 KiB each, at the end of a file that grows, and within one that was written before.
fn bare_sync(place: &Place, length: Duration) -> anyhow::Result<(f64, f64)> {
    let directory = place.directory()?;
    let block = [7; 4096];
    let rate = |name: &str, blocks_before: u64| {
        let file = std::fs::File::create(directory.path().join(name))?;
        for index in 0..blocks_before {
            file.write_all_at(&block, index * 4096)?;
        }
        file.sync_all()?;
        let (mut syncs, began) = (0, Instant::now());
        while began.elapsed() < length {
            let index = if blocks_before > 0 { syncs % blocks_before } else { syncs };
            file.write_all_at(&block, index * 4096)?;
            file.sync_data()?;
            syncs += 1;
        }
        anyhow::Ok(syncs as f64 / began.elapsed().as_secs_f64())
    };
    Ok((rate("growing", 0)?, rate("written", 16 << 10)?))
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let (mut growing, mut written, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    let (mut store_samples, mut log_samples) = (Vec::new(), Vec::new());
    for turn in 1..=turns {
        progress::say(&format!("P3: the store alone, {CLIENTS} clients, round {turn} of {turns}"));
        let directory = bench.place.directory()?;
        let store: Arc<dyn Store> = Arc::new(Embedded::open(directory.path(), Options::default())?);
        let users = (0..CLIENTS).map(|client| Committer::new(store.clone(), client, VALUE_BYTES)).collect();
        let (users, sample) = load::run(users, length).await?;
        store_samples.push(sample);
        drop((users, store, directory));

        let directory = bench.place.directory()?;
        let log = Log::open(directory.path(), SEGMENT_BYTES)?;
        let group = Arc::new(Group256 { waiting: Mutex::new((Vec::new(), true)), arrived: Condvar::new() });
        let serving = std::thread::spawn({
            let group = group.clone();
            move || group.serve(log)
        });
        let users = (0..CLIENTS).map(|_| Appender(group.clone())).collect();
        let (_, sample) = load::run(users, length).await?;
        log_samples.push(sample);
        group.waiting.lock().ok().context("the writer panicked")?.1 = false;
        group.arrived.notify_one();
        serving.join().ok().context("the writer panicked")??;
        drop(directory);

        bare.push(bare_log(bench.place, length / 2)?);
        let (at_end, within) = bare_sync(bench.place, length / 4)?;
        growing.push(at_end);
        written.push(within);
    }
    let (store, log) = (Sample::median(&store_samples), Sample::median(&log_samples));
    let (bare, growing, written) = (load::median(bare), load::median(growing), load::median(written));
    bench.report.rows.push(Row {
        id: "P3",
        what: format!(
            "store commits, {CLIENTS} clients, against its own log with as many clients and nothing else"
        ),
        ours: store.show(),
        peer: log.show(),
        figure: store.per_second / log.per_second,
        unit: Unit::Times,
        target: Some(Target::AtLeast(0.7)),
    });
    bench.report.rows.push(Row {
        id: "P3",
        what: format!("the same, against the log in a loop: no clients at all, {CLIENTS} effects a sync"),
        ours: format!("{}/s", count(store.per_second)),
        peer: format!("{}/s", count(bare)),
        figure: store.per_second / bare,
        unit: Unit::Times,
        target: None,
    });
    bench.report.rows.push(Row {
        id: "P3",
        what: "for orientation: fdatasync of 4 KiB, appending / within a written file".into(),
        ours: String::new(),
        peer: format!("{}/s / {}/s", count(growing), count(written)),
        figure: f64::NAN,
        unit: Unit::Times,
        target: None,
    });
    bench.report.methods.push((
        "P3",
        format!(
            "every client replaces its own record of {VALUE_BYTES} bytes by a commit that checks its revision, waits until \
             it is durable and goes on; in this process, no network. The log beside it gets the same bytes in the same \
             way (a queue, one thread, one append and one sync for all who wait) but decides, checks and keeps nothing; \
             the loop is the same log without anybody who waits for an answer."
        ),
    ));
    Ok(())
}
