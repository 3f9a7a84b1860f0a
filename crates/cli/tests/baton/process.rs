//! Processes that tests start: waited for within a bound, and stopped by their own id whatever happens.

use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A command under way.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Already gone is fine.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end, at most 20 s.
    pub fn end(mut self) -> Output {
        // Read while it runs: one that prints more than a pipe takes would never come to its end.
        let (stdout, stderr) = (read(self.0.stdout.take().unwrap()), read(self.0.stderr.take().unwrap()));
        let status = wait(&mut self.0);
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        Output { code: status.code().expect("baton exits, and isn't ended by a signal"), stdout, stderr }
    }
}

fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    })
}

pub fn run(command: &mut Command) -> Output {
    Running::start(command).end()
}

/// How a process ends, within 20 s.
pub fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    eventually("the command ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Waits for something to become true, at most 20 s.
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    within(Duration::from_secs(20), what, is_so);
}

/// Waits for something to become true that takes long.
pub fn within(time: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < time, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a file has a whole line, and gives it.
pub fn line_of(path: &Path) -> String {
    let mut line = None;
    eventually(&format!("{} has a line", path.display()), || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        line = text.strip_suffix('\n').map(str::to_owned);
        line.is_some()
    });
    line.unwrap()
}

/// Whether a process runs: a zombie doesn't.
pub fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
