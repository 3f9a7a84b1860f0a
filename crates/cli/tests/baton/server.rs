//! A real server: the built binary, on a free port, with a directory of its own.

use crate::process::{self, Output};
use baton_testkit::store_url;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// What its line begins with when it is ready, and when it serves without its store.
const READY: [&str; 2] = ["baton is ready on ", "baton waits for its store, and serves what it can, on "];

pub struct Server {
    child: Child,
    pub url: String,
    store: String,
    /// What it is to find in its environment.
    variables: Vec<(&'static str, String)>,
    directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also ends one that is stopped. Already gone is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Server {
    pub fn start() -> Self {
        Self::start_on("127.0.0.1:0", Vec::new())
    }

    /// With this in its environment.
    pub fn start_with(variables: Vec<(&'static str, String)>) -> Self {
        Self::start_on("127.0.0.1:0", variables)
    }

    /// On a port that stays the same when it is started again.
    pub fn start_on_a_fixed_port() -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        Self::start_on(&address, Vec::new())
    }

    /// As it was never started before, with this store.
    pub fn stopped_on_a_store_with(store: &str, variables: Vec<(&'static str, String)>) -> Self {
        let mut server = Self::start_on_a_fixed_port();
        server.kill();
        (server.store, server.variables) = (store.into(), variables);
        server
    }

    /// On a port that stays the same, and on this store.
    pub fn start_on_a_store(store: &str) -> Self {
        Self::start_on_a_store_with(store, Vec::new())
    }

    /// The same, with this in its environment.
    pub fn start_on_a_store_with(store: &str, variables: Vec<(&'static str, String)>) -> Self {
        let mut server = Self::stopped_on_a_store_with(store, variables);
        server.restart();
        server
    }

    fn start_on(listen: &str, variables: Vec<(&'static str, String)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = store_url(directory.path());
        let (child, url) = launch(listen, &store, &variables, directory.path());
        Self { child, url, store, variables, directory }
    }

    /// From its next start on, this is in its environment.
    pub fn set_variables(&mut self, variables: Vec<(&'static str, String)>) {
        self.variables = variables;
    }

    /// Starts it again where it was, on the data that is there.
    pub fn restart(&mut self) {
        let listen = self.url.strip_prefix("http://").unwrap();
        (self.child, self.url) = launch(listen, &self.store, &self.variables, self.directory.path());
    }

    /// A `baton` command that talks to this server.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.env("BATON_SERVER", &self.url).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        process::run(&mut self.command(arguments))
    }

    /// A path for a test's own file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.file("server.log")).unwrap_or_default()
    }

    /// It keeps its connections and answers nothing.
    pub fn pause(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// It is gone without a word.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It is asked to stop, and does, in good order.
    pub fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let status = process::wait(&mut self.child);
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// The status of a GET.
    pub fn get_status(&self, path: &str) -> u16 {
        crate::http::status(&self.url, path, Duration::from_secs(10))
    }

    /// Whether someone holds a lock.
    pub fn is_held(&self, key: &str) -> bool {
        match self.run(&["locks", "show", key]).code {
            0 => true,
            69 => false,
            other => panic!("baton locks show ended with {other}"),
        }
    }

    /// How many wait for a lock.
    pub fn waiting(&self, key: &str) -> usize {
        let output = self.run(&["locks", "queue", key, "--output", "json"]);
        let queue: serde_json::Value = serde_json::from_str(&output.stdout).expect(&output.stderr);
        queue["waiting"].as_array().unwrap().len()
    }
}

/// Starts the server and waits for its ready line.
fn launch(
    listen: &str,
    store: &str,
    variables: &[(&'static str, String)],
    directory: &Path,
) -> (Child, String) {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("server.log")).unwrap();
    let mut child = binary()
        .args(["serve", "--listen", listen, "--store", store, "--data"])
        .arg(directory.join("data"))
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (found, ready) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let url = |line: String| READY.iter().find_map(|ready| Some(line.strip_prefix(ready)?.to_owned()));
        let line = lines.by_ref().map_while(Result::ok).find_map(url);
        found.send(line).ok();
        // Whatever else it says must not fill the pipe.
        lines.for_each(drop);
    });
    let line = ready.recv_timeout(Duration::from_secs(20)).ok().flatten();
    let Some(line) = line else {
        child.kill().ok();
        child.wait().ok();
        let log = std::fs::read_to_string(directory.join("server.log")).unwrap_or_default();
        panic!("the server never became ready:\n{log}");
    };
    let url = line.split_whitespace().next().unwrap().trim_end_matches([',', ';']).to_owned();
    (child, url)
}

/// The binary, untouched by what the machine's environment says about Baton.
pub fn binary() -> Command {
    // Whoever runs the tests may ignore signals (nohup, a background job), and what is ignored is inherited.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_baton")]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BATON_") {
            command.env_remove(name);
        }
    }
    command
}

/// For a shell script.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}
