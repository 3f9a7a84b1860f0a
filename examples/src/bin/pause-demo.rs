//! A holder is stopped between its last look at its lease and its write, for longer than the lease lasts (F6).
//!
//! `pause-demo` starts two processes that add a line to the same file under a lock. The first is stopped (SIGSTOP) where
//! it hurts, the second takes over when the lease has run out, and then the first goes on (SIGCONT) and writes what it
//! knows. Without a fence that takes the second one's line away again; with it, the write is refused.
//!
//! `pause-demo [--runs N] [--with | --without]`: without arguments, one run of each.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use anyhow::{Context, bail, ensure};
use baton_client::Baton;
use baton_client::fence::{EpochGate, Refused};
use baton_examples::{server, unique};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How long the lock stays taken when its holder doesn't renew it.
const TTL: Duration = Duration::from_millis(500);
/// What a holder says when it has looked at its lease for the last time.
const CHECKED: &str = "I hold the lock; now I am going to write";

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["holder", name, key, file, fence] => holder(name, key, Path::new(file), *fence == "fence").await,
        [] => runs(1, true).and(runs(1, false)),
        ["--runs", count, "--with"] => runs(count.parse()?, true),
        ["--runs", count, "--without"] => runs(count.parse()?, false),
        _ => bail!("usage: pause-demo [--runs N --with | --runs N --without]"),
    }
}

/// Reads the file, adds its line, writes all of it back.
async fn holder(name: &str, key: &str, file: &Path, fence: bool) -> anyhow::Result<()> {
    let baton = Baton::builder().owner(name).connect(server()).await?;
    let lock = baton.lock(key).ttl(TTL).acquire().await?;
    let mut text = std::fs::read_to_string(file)?;
    text.push_str(&format!("{name} was here\n"));

    ensure!(!lock.is_lost(), "the lease was lost before it came to that");
    println!("{CHECKED}");
    // So that whoever stops us stops us here, and not a moment too late. In earnest a pause needs no invitation.
    std::io::stdin().read_line(&mut String::new())?;

    let write = || std::fs::write(file, &text);
    if !fence {
        write()?;
        println!("written");
        return Ok(());
    }
    match EpochGate::open(file.with_extension("epoch"))?.write(lock.fencing_token(), write) {
        Ok(()) => println!("written"),
        Err(Refused::Stale(stale)) => println!("refused: {stale}"),
        Err(Refused::Failed(error)) => return Err(error.into()),
    }
    // What is lost can't be released, and says so; the demo has made its point by then.
    drop(lock.release().await);
    Ok(())
}

fn runs(count: usize, fence: bool) -> anyhow::Result<()> {
    let how = if fence { "with the fence" } else { "without a fence" };
    let mut corrupted = 0;
    for _ in 0..count {
        corrupted += usize::from(run(fence)?);
    }
    println!("{how}, {corrupted} of {count} runs corrupted the file");
    Ok(())
}

/// One run; whether the file lost what the second holder had been told is written.
fn run(fence: bool) -> anyhow::Result<bool> {
    let directory = tempfile::tempdir()?;
    let (file, key) = (directory.path().join("ledger.txt"), unique("pause"));
    std::fs::write(&file, "opened\n")?;

    let mut first = Holder::start("first", &key, &file, fence)?;
    ensure!(first.line()? == CHECKED, "the first holder didn't get there");
    first.stop()?;
    first.go_on_from_check()?;

    // Granted when the store says that the first one's lease is over.
    let mut second = Holder::start("second", &key, &file, fence)?;
    ensure!(second.line()? == CHECKED, "the second holder didn't get the lock");
    second.go_on_from_check()?;
    ensure!(second.line()? == "written", "the second holder's write was refused");
    second.ended()?;

    first.resume()?;
    let said = first.line()?;
    first.ended()?;
    ensure!(said.starts_with("refused") == fence, "the first holder says: {said}");
    let text = std::fs::read_to_string(&file)?;
    Ok(text != "opened\nsecond was here\n")
}

/// A holder's process. Dropping it kills it.
struct Holder {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(name: &str, key: &str, file: &Path, fence: bool) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["holder", name, key]).arg(file).arg(if fence { "fence" } else { "none" });
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("it has a standard input")?;
        let output = BufReader::new(child.stdout.take().context("it has a standard output")?).lines();
        Ok(Self { child, input, output })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        Ok(self.output.next().context("a holder ended before its time")??)
    }

    /// Lets it leave the point between check and write, as soon as it can do anything at all.
    fn go_on_from_check(&mut self) -> anyhow::Result<()> {
        Ok(self.input.write_all(b"go on\n")?)
    }

    /// Stops it, and returns when it stands still.
    fn stop(&self) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP)?;
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED)?;
        ensure!(stopped.is_some_and(|(_, status)| status.stopped()), "the holder ended instead of stopping");
        Ok(())
    }

    fn resume(&self) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    fn ended(&mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "a holder ended with {status}");
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Also ends one that is stopped. Already gone is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
