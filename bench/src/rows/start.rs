//! P14: how long it takes to start on a full data directory, and how big the binary is.

use super::Bench;
use crate::http::Connection;
use crate::load::{self, count};
use crate::peers::baton::Baton;
use crate::progress;
use crate::report::{Row, Target, Unit};
use anyhow::bail;
use baton_core::{Bytes, Check, Commit, Group, Key, Outcome, Ttl, Write};
use baton_store::Store;
use baton_store::embedded::{Embedded, Options};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RECORDS: usize = 1_000_000;
const WRITERS: usize = 256;
const VALUE_BYTES: usize = 100;

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let records = bench.options.size(RECORDS);
    progress::say(&format!("P14: filling a data directory with {records} records"));
    let filled = bench.place.directory()?;
    fill(filled.path(), records).await?;
    let mut times = Vec::new();
    let turns = bench.options.turns();
    for turn in 1..=turns {
        progress::say(&format!("P14: starting on {records} records, round {turn} of {turns}"));
        // A start changes what it starts on, so each gets a copy.
        let directory = bench.place.directory()?;
        copy(filled.path(), &directory.path().join("data"))?;
        let began = Instant::now();
        let baton = Baton::start_on(bench.binary, directory).await?;
        ready(&baton).await?;
        times.push(began.elapsed().as_secs_f64());
        baton.stop().await?;
    }
    bench.report.rows.push(Row {
        id: "P14",
        what: format!("start on {} records, until ready", count(records as f64)),
        ours: times.iter().map(|time| format!("{time:.2}")).collect::<Vec<_>>().join(", "),
        peer: String::new(),
        figure: load::median(times),
        unit: Unit::Seconds,
        target: Some(Target::AtMost(2.0)),
    });
    let bytes = std::fs::metadata(bench.binary)?.len();
    bench.report.rows.push(Row {
        id: "P14",
        what: "size of the release binary".into(),
        ours: format!("{bytes} bytes"),
        peer: String::new(),
        figure: bytes as f64 / 1e6,
        unit: Unit::Megabytes,
        target: Some(Target::AtMost(25.0)),
    });
    bench.report.methods.push((
        "P14",
        format!(
            "records of {VALUE_BYTES} bytes with a time to live, put through the store itself, so that the directory has \
             snapshots and a log as they come; each start on a fresh copy of that directory, from starting the process until `/readyz` answers 200. The size is of the \
             file that `cargo build --release` makes."
        ),
    ));
    Ok(())
}

async fn fill(data: &Path, records: usize) -> anyhow::Result<()> {
    let store = Arc::new(Embedded::open(data, Options::default())?);
    let value: Bytes = vec![7; VALUE_BYTES].into();
    let write = |writer: usize| {
        let (store, value) = (store.clone(), value.clone());
        async move {
            for record in (writer..records).step_by(WRITERS) {
                let name = format!("bench/record/{record:09}");
                let key = Key::new(Group::of(&[name.as_bytes()]), name.as_bytes());
                let ttl = Ttl::Exactly(Duration::from_secs(86_400));
                let put = Write::Put { key: key.clone(), value: value.clone(), ttl };
                let commit = Commit { checks: vec![Check::Absent(key)], writes: vec![put] };
                let Outcome::Committed { .. } = store.commit(commit).await? else {
                    bail!("{name} was there already")
                };
            }
            Ok(())
        }
    };
    let tasks: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(writer))).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(to)?;
    for file in std::fs::read_dir(from)? {
        let file = file?;
        std::fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

async fn ready(baton: &Baton) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let mut connection = Connection::open(baton.address()).await?;
        match connection.exchange(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}
