//! Four threads of a program without async count in a file: the blocking client, and a fence for files.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use baton_client::blocking::Baton;
use baton_client::fence::EpochGate;
use baton_client::secs;
use baton_examples::{server, unique};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

const THREADS: usize = 4;
const ROUNDS: usize = 5;

fn read(file: &Path) -> anyhow::Result<u32> {
    Ok(std::fs::read_to_string(file)?.parse()?)
}

/// A new file takes the old one's place, so that nobody reads half a number.
fn put(file: &Path, count: u32) -> io::Result<()> {
    let mut new = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(Path::new(".")))?;
    write!(new, "{count}")?;
    new.persist(file).map_err(|failed| failed.error).map(drop)
}

fn without(file: &Path) -> anyhow::Result<()> {
    let count = read(file)?;
    std::thread::sleep(Duration::from_millis(5));
    Ok(put(file, count + 1)?)
}

fn with(baton: &Baton, key: &str, gate: &EpochGate, file: &Path) -> anyhow::Result<()> {
    let lock = baton.lock(key).ttl(secs(30)).acquire()?;
    let count = read(file)?;
    std::thread::sleep(Duration::from_millis(5));
    gate.write(lock.fencing_token(), || put(file, count + 1))?;
    Ok(lock.release()?)
}

/// Lets each thread count a few times; gives what the file says then.
fn count(file: &Path, step: impl Fn() -> anyhow::Result<()> + Sync) -> anyhow::Result<u32> {
    put(file, 0)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| (0..ROUNDS).try_for_each(|_| step()))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("it panicked")))
    })?;
    read(file)
}

fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("count");
    let rounds = THREADS * ROUNDS;
    let lost = rounds as u32 - count(&file, || without(&file))?;
    println!("without a lock, {rounds} counts lost {}", if lost > 0 { "some" } else { "none" });

    let (baton, key) = (Baton::connect(server())?, unique("counter"));
    let gate = EpochGate::open(directory.path().join("count.epoch"))?;
    let lost = rounds as u32 - count(&file, || with(&baton, &key, &gate, &file))?;
    println!("with a lock, {rounds} counts lost {}", if lost > 0 { "some" } else { "none" });
    anyhow::ensure!(lost == 0, "{lost} were lost");
    Ok(())
}
