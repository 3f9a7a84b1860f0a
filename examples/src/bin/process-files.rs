//! Twelve files lie in a directory, and four workers are to process each of them once.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use anyhow::Context;
use baton_client::{Baton, secs};
use baton_examples::{copies, unique};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILES: usize = 12;

/// A directory with work in it. A file that was processed is moved to `done`.
fn inbox() -> anyhow::Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    std::fs::create_dir(directory.path().join("done"))?;
    for file in 0..FILES {
        std::fs::write(directory.path().join(format!("{file}.csv")), "a,b,c")?;
    }
    Ok(directory)
}

fn files(inbox: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(inbox)? {
        let path = entry?.path();
        found.extend(path.is_file().then_some(path));
    }
    found.sort();
    Ok(found)
}

/// Reads a file, and takes a while. Nothing if it isn't there any more.
async fn process(path: &Path) -> Option<PathBuf> {
    std::fs::read(path).ok()?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let done = path.parent()?.join("done").join(path.file_name()?);
    std::fs::rename(path, done).ok();
    Some(path.to_owned())
}

async fn without(inbox: PathBuf) -> anyhow::Result<Vec<PathBuf>> {
    let mut processed = Vec::new();
    for path in files(&inbox)? {
        processed.extend(process(&path).await);
    }
    Ok(processed)
}

async fn with(baton: Baton, prefix: String, inbox: PathBuf) -> anyhow::Result<Vec<PathBuf>> {
    let mut processed = Vec::new();
    for path in files(&inbox)? {
        let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        let lock = baton.lock(format!("{prefix}:{name}")).ttl(secs(30));
        // Another worker is at it: on to the next.
        let Some(lock) = lock.try_acquire().await?.acquired() else { continue };
        // It may be done since the directory was read: `process` looks again, under the lock.
        processed.extend(process(&path).await);
        lock.release().await?;
    }
    Ok(processed)
}

fn most_often(processed: Vec<Vec<PathBuf>>) -> (usize, usize) {
    let mut times = HashMap::<PathBuf, usize>::new();
    processed.into_iter().flatten().for_each(|path| *times.entry(path).or_default() += 1);
    (times.len(), times.values().sum())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let directory = inbox()?;
    let (files, times) = most_often(copies(4, |_| without(directory.path().into())).await?);
    println!("without a lock, 4 workers processed {files} files {times} times");

    let (directory, prefix) = (inbox()?, unique("files"));
    let processed = copies(4, |baton| with(baton, prefix.clone(), directory.path().into())).await?;
    let (files, times) = most_often(processed);
    println!("with a lock, 4 workers processed {files} files {times} times");
    anyhow::ensure!((files, times) == (FILES, FILES), "{files} files, {times} times");
    Ok(())
}
