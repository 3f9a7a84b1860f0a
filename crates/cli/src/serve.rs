//! `baton serve`: the server. A flag wins over its environment variable, and that over the file.

use crate::failure::Failure;
use baton_server::replication::{ClusterSecret, PeersError};
use baton_server::targets::TargetConfig;
use baton_server::targets::allow::NotAllowed;
use baton_server::{Config, ConfigError, RunError, Server, telemetry};
use clap::builder::BoolishValueParser;
use serde::Deserialize;
use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people on a terminal, else JSON.
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// What can be set, in each of the three places under the same name. Nothing is what isn't said.
#[derive(clap::Args, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Settings {
    /// Where to listen, for HTTP and for Envoy's gRPC; port 0 takes a free one [default: 127.0.0.1:7117]
    #[arg(long, env = "BATON_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Where other nodes reach this one, as HOST:PORT [default: where it listens]
    #[arg(long, env = "BATON_ADVERTISE", value_name = "ADDRESS")]
    pub advertise: Option<String>,
    /// Keep this node for hot keys that are pinned: it owns nothing else (docs/cluster.md)
    #[arg(long, env = "BATON_DEDICATED", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub dedicated: Option<bool>,
    /// Where the embedded store keeps its files [default: ./baton-data]
    #[arg(long, env = "BATON_DATA", value_name = "DIRECTORY")]
    pub data: Option<PathBuf>,
    /// Where this node keeps what has to outlive it while the store is away (docs/limit.md), and its replica (docs/crdt.md)
    /// [default: in --data]
    #[arg(long, env = "BATON_STATE", value_name = "DIRECTORY")]
    pub state: Option<PathBuf>,
    /// The store: embedded:, redis://…, postgres://… or etcd://… (docs/stores.md) [default: embedded:]
    // It may have a password in it, which --help would show.
    #[arg(long, env = "BATON_STORE", hide_env_values = true, value_name = "URL")]
    pub store: Option<String>,
    /// A YAML file that defines limits; a change of it takes effect by itself (docs/limit.md)
    #[arg(long, env = "BATON_LIMITS", value_name = "FILE")]
    pub limits: Option<PathBuf>,
    /// Other replicas of counters, sets, registers and maps: http://HOST:PORT,… or dns:NAME:PORT (docs/replication.md)
    /// [default: the nodes that share the store]
    #[arg(long, env = "BATON_PEERS", value_name = "LIST")]
    pub peers: Option<String>,
    /// How often each other replica is asked what was missed [default: 1s]
    #[arg(long, env = "BATON_SYNC", value_name = "DURATION")]
    pub sync: Option<String>,
    /// A file with the secret that replicas in --peers know each other by; BATON_CLUSTER_SECRET may hold the secret itself
    #[arg(long, env = "BATON_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub cluster_secret_file: Option<PathBuf>,
    /// Listen on an address that others can reach, although there is no authentication yet
    #[arg(long, env = "BATON_INSECURE", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub insecure: Option<bool>,
    /// An internal address that jobs may call, as HOST, HOST:PORT or a network like 10.1.0.0/16; may be repeated
    #[arg(long, env = "BATON_JOB_ALLOW", value_name = "ADDRESS", value_delimiter = ',')]
    pub job_allow: Option<Vec<String>>,
    /// Let jobs start commands on this machine
    #[arg(long, env = "BATON_ALLOW_COMMANDS", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub allow_commands: Option<bool>,
    /// How log lines look [default: auto]
    #[arg(long, env = "BATON_LOG_FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// Connections at a time
    #[arg(long, env = "BATON_MAX_CONNECTIONS", value_name = "NUMBER")]
    pub max_connections: Option<usize>,
    /// Acquires that may wait at a time, over all locks
    #[arg(long, env = "BATON_MAX_WAITING", value_name = "NUMBER")]
    pub max_waiting: Option<usize>,
    /// Threads that serve calls [default: one a core, less one for the thread of an embedded store]
    #[arg(long, env = "BATON_WORKERS", value_name = "NUMBER")]
    pub workers: Option<NonZeroU8>,
}

#[derive(clap::Args, Debug)]
pub struct ServeArguments {
    /// A TOML file with the same names as these flags
    #[arg(long, env = "BATON_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}

impl Settings {
    /// These, and where they are silent, those.
    fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            advertise: self.advertise.or(other.advertise),
            dedicated: self.dedicated.or(other.dedicated),
            data: self.data.or(other.data),
            state: self.state.or(other.state),
            store: self.store.or(other.store),
            limits: self.limits.or(other.limits),
            peers: self.peers.or(other.peers),
            sync: self.sync.or(other.sync),
            cluster_secret_file: self.cluster_secret_file.or(other.cluster_secret_file),
            insecure: self.insecure.or(other.insecure),
            job_allow: self.job_allow.or(other.job_allow),
            allow_commands: self.allow_commands.or(other.allow_commands),
            log_format: self.log_format.or(other.log_format),
            max_connections: self.max_connections.or(other.max_connections),
            max_waiting: self.max_waiting.or(other.max_waiting),
            workers: self.workers.or(other.workers),
        }
    }
}

impl Settings {
    fn into_config(self) -> Result<Config, Failure> {
        let default = Config::default();
        let mut engine = default.engine.clone();
        engine.is_dedicated = self.dedicated.unwrap_or_default();
        let wrong = |message: String| Failure::new(78, message, "`baton serve --help` shows what can be set");
        let cluster_secret = self.cluster_secret().map_err(wrong)?;
        let peers = self.peers.as_deref().map(str::parse).transpose();
        let sync = self.sync.as_deref().map(crate::duration::parse).transpose();
        let allow = self.job_allow.unwrap_or_default();
        let allow = allow.iter().map(|text| text.parse()).collect::<Result<_, NotAllowed>>();
        let allow = allow.map_err(|error| wrong(format!("--job-allow: {error}")))?;
        Ok(Config {
            targets: TargetConfig { allow, commands: self.allow_commands.unwrap_or_default() },
            cluster_secret,
            peers: peers.map_err(|error: PeersError| wrong(error.to_string()))?.unwrap_or(default.peers),
            sync: sync.map_err(|error| wrong(format!("--sync: {error}")))?.unwrap_or(default.sync),
            listen: self.listen.unwrap_or(default.listen),
            advertise: self.advertise,
            data: self.data.unwrap_or(default.data),
            state: self.state,
            store: self.store.unwrap_or(default.store),
            limits: self.limits,
            insecure: self.insecure.unwrap_or(default.insecure),
            max_connections: self.max_connections.unwrap_or(default.max_connections),
            max_waiting: self.max_waiting.unwrap_or(default.max_waiting),
            engine,
            ..Config::default()
        })
    }

    /// Of the file or the environment: never of the command line, which everybody on the machine can read.
    fn cluster_secret(&self) -> Result<Option<ClusterSecret>, String> {
        let (secret, place) = match (&self.cluster_secret_file, std::env::var("BATON_CLUSTER_SECRET")) {
            (Some(path), _) => {
                let secret = std::fs::read_to_string(path);
                let cannot =
                    |error| format!("the cluster secret in {} can't be read: {error}", path.display());
                (secret.map_err(cannot)?, "--cluster-secret-file")
            }
            (None, Ok(secret)) => (secret, "BATON_CLUSTER_SECRET"),
            (None, Err(_)) => return Ok(None),
        };
        let short =
            || format!("the secret of {place} is too short to be one: openssl rand -hex 32 makes a good one");
        ClusterSecret::new(&secret).map(Some).ok_or_else(short)
    }
}

pub fn run(arguments: ServeArguments) -> Result<u8, Failure> {
    let file = arguments.config.as_deref().map(read).transpose()?.unwrap_or_default();
    serve(arguments.settings.or(file))
}

fn read(path: &Path) -> Result<Settings, Failure> {
    let wrong = |what: &dyn std::fmt::Display| {
        let message = format!("{} can't be used: {what}", path.display());
        Failure::new(78, message, "see `baton serve --help` for what can be set")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    // Only the line's number: what stands in it may be a secret.
    toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        wrong(&format!("line {line}: {}", error.message()))
    })
}

/// Starts the server and stays until it ends.
fn serve(settings: Settings) -> Result<u8, Failure> {
    telemetry::init(match settings.log_format {
        None | Some(LogFormat::Auto) => telemetry::LogFormat::Auto,
        Some(LogFormat::Json) => telemetry::LogFormat::Json,
        Some(LogFormat::Text) => telemetry::LogFormat::Text,
    });
    let workers = settings.workers;
    let config = settings.into_config()?;
    if !config.targets.commands {
        keep_pages_small();
    }
    let workers = match workers {
        Some(workers) => workers.get().into(),
        None => workers_for(std::thread::available_parallelism()?.get(), config.store_has_own_thread()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    runtime.block_on(baton_server::run(config, ready)).map_err(failed)?;
    Ok(0)
}

/// An embedded store has a thread of its own, for which every call waits. With a worker on every core they are one more than there are
/// cores, and under load one of them is always without: for as long as the system lets the others run on, which is milliseconds, and
/// meanwhile nobody else can finish what it has begun. That was P1's tail.
fn workers_for(cores: usize, store_has_own_thread: bool) -> usize {
    if store_has_own_thread { cores.saturating_sub(1).max(1) } else { cores }
}

/// The allocator asks the system for pages of two megabytes, and a server uses a little of many of them: they were a third of a fresh one's
/// memory, and most of what a thousand waiters took (P12). Calls cost the same without. Whatever the process starts inherits
/// this, so it is not for one that may start commands.
fn keep_pages_small() {
    // A kernel that can't do this has no such pages, or goes on with them.
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_thp_disable(true).ok();
}

/// The one line on standard output: whoever started us waits for it.
fn ready(server: &Server) {
    let mut out = std::io::stdout().lock();
    let how =
        if server.has_its_store() { "is ready" } else { "waits for its store, and serves what it can," };
    // If nobody reads it, the server serves all the same.
    writeln!(out, "baton {how} on http://{}", server.address()).and_then(|()| out.flush()).ok();
}

fn failed(error: RunError) -> Failure {
    let (exit, help) = match &error {
        RunError::Config(ConfigError::Limits(_)) => {
            (78, "docs/limit.md has the fields; nothing was started, and no limit was changed")
        }
        RunError::Config(_) => (78, "`baton serve --help` shows what can be set"),
        RunError::State(_) => (74, "check --state: that the directory can be read, and who wrote it"),
        RunError::Open(_) | RunError::Store(_) => {
            (74, "check --data and --store: that the directory is writable and that no other server uses it")
        }
        RunError::Listen { .. } => (71, "another server may be there: choose another address with --listen"),
        RunError::Signals(_) => (71, "start it again"),
    };
    Failure::new(exit, error.to_string(), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_on_the_line_wins_over_the_file() {
        let line = Settings { listen: Some("127.0.0.1:1".parse().unwrap()), ..Settings::default() };
        let file = "listen = \"127.0.0.1:2\"\ndata = \"/d\"\nstate = \"/s\"\ninsecure = true\nlimits = \"/l\"\nlog-format = \"json\"\nmax-waiting = 7\nworkers = 3";
        let merged = line.or(toml::from_str(file).unwrap());
        assert_eq!(merged.listen, Some("127.0.0.1:1".parse().unwrap()));
        assert_eq!((merged.data, merged.insecure), (Some("/d".into()), Some(true)));
        assert_eq!((merged.limits, merged.state), (Some("/l".into()), Some("/s".into())));
        assert_eq!((merged.log_format, merged.max_waiting), (Some(LogFormat::Json), Some(7)));
        assert_eq!(merged.workers, NonZeroU8::new(3));
    }

    #[test]
    fn the_thread_of_an_embedded_store_has_a_core_that_no_worker_has() {
        assert_eq!(
            [1, 2, 8].map(|cores| workers_for(cores, Config::default().store_has_own_thread())),
            [1, 1, 7]
        );
        let elsewhere = Config { store: "redis://localhost".into(), ..Config::default() };
        assert_eq!([1, 2, 8].map(|cores| workers_for(cores, elsewhere.store_has_own_thread())), [1, 2, 8]);
    }

    #[test]
    fn a_name_that_does_not_exist_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("baton.toml");
        std::fs::write(&path, "lisen = \"127.0.0.1:2\"").unwrap();
        let failure = read(&path).unwrap_err();
        assert!(failure.message.contains("lisen"), "{failure:?}");
    }
}
