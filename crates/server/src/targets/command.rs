//! Starting a job's command on the server itself. No shell is involved: a program and its arguments.
//!
//! It runs in a process group of its own, which is ended as a whole: when the command took too long, when the run was called off, and
//! when the server stops.

use baton_core::job::AttemptEnd;
use baton_core::job::run::OUTPUT_BYTES_MAX;
use baton_engine::job::Attempt;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Commands that run at once; others wait, for as long as their attempt may take.
const RUNNING_MAX: usize = 64;
/// How long a command has to end after SIGTERM. Its lease lasts a while longer than that.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long the end of its output may take after its own: whoever it left behind may still print.
const REST_MAX: Duration = Duration::from_secs(1);
/// What a command finds in its environment of what the server found in its own. The rest may be secret.
const PASSED_ON: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// The commands of this server.
pub(super) struct Commands {
    pub(super) room: Semaphore,
    groups: Arc<Mutex<BTreeSet<i32>>>,
}

impl Default for Commands {
    fn default() -> Self {
        Self { room: Semaphore::new(RUNNING_MAX), groups: Arc::default() }
    }
}

/// A command's process group. Dropped before its end, it is asked to end, and then made to.
struct Group {
    child: Option<Child>,
    id: Pid,
    groups: Arc<Mutex<BTreeSet<i32>>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return forget(&self.groups, self.id) };
        let Ok(runtime) = Handle::try_current() else {
            // Nobody is left to wait for it.
            kill_process_group(self.id, Signal::KILL).ok();
            return;
        };
        // Whoever is left in it; there may be nobody.
        kill_process_group(self.id, Signal::TERM).ok();
        let (id, groups) = (self.id, self.groups.clone());
        runtime.spawn(async move {
            drop(timeout(STOP_MAX, child.wait()).await);
            kill_process_group(id, Signal::KILL).ok();
            drop(child.wait().await);
            forget(&groups, id);
        });
    }
}

fn forget(groups: &Mutex<BTreeSet<i32>>, id: Pid) {
    groups.lock().expect("no panic while held").remove(&id.as_raw_nonzero().get());
}

impl Commands {
    /// Runs a command to its end.
    pub async fn run(&self, attempt: &Attempt, program: &str, arguments: &[String]) -> AttemptEnd {
        let Ok(_place) = self.room.acquire().await else { return AttemptEnd::failed("the server stops") };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().process_group(0).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let passed_on = PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(passed_on).envs([
            ("BATON_RUN_ID", attempt.run.text()),
            ("BATON_JOB", attempt.job.key().to_owned()),
            ("BATON_FENCING_TOKEN", attempt.fencing.0.to_string()),
            ("BATON_SCHEDULED_AT", attempt.run.place.nominal.0.to_string()),
            ("BATON_ATTEMPT", attempt.attempt.to_string()),
        ]);
        if attempt.is_over() {
            // It waited for its place, or this process slept, and the run isn't its own any more.
            return AttemptEnd::failed("it was too late to start it");
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return AttemptEnd::failed(&format!("{program} can't be started: {error}")),
        };
        attempt.is_sent();
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let Some(id) = id else { return AttemptEnd::failed("the command has no process id") };
        self.groups.lock().expect("no panic while held").insert(id.as_raw_nonzero().get());
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let mut group = Group { child: Some(child), id, groups: self.groups.clone() };
        let mut rest = tokio::spawn(listen(out, err, output.clone()));
        let status = match &mut group.child {
            Some(child) => child.wait().await,
            None => return AttemptEnd::failed("the command is gone"),
        };
        if timeout(REST_MAX, &mut rest).await.is_err() {
            rest.abort();
        }
        group.child = None;
        let output = std::mem::take(&mut *output.lock().expect("no panic while held"));
        match status {
            Ok(status) => AttemptEnd {
                succeeded: status.success(),
                reason: None,
                message: describe(status),
                output: output.into(),
            },
            Err(error) => AttemptEnd::failed(&error.to_string()),
        }
    }

    /// Ends whatever still runs, without asking.
    pub fn kill_all(&self) {
        for id in self.groups.lock().expect("no panic while held").iter() {
            if let Some(id) = Pid::from_raw(*id) {
                kill_process_group(id, Signal::KILL).ok();
            }
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// Keeps the end of what is printed, in the order in which it comes.
async fn listen(
    out: Option<impl AsyncRead + Unpin>,
    err: Option<impl AsyncRead + Unpin>,
    kept: Arc<Mutex<Vec<u8>>>,
) {
    tokio::join!(keep_end(out, &kept), keep_end(err, &kept));
}

async fn keep_end(from: Option<impl AsyncRead + Unpin>, kept: &Mutex<Vec<u8>>) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; OUTPUT_BYTES_MAX];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let mut kept = kept.lock().expect("no panic while held");
        kept.extend_from_slice(&piece[..count]);
        let too_many = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
        kept.drain(..too_many);
    }
}
