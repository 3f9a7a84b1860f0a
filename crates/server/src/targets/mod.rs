//! What the server runs itself when a job is due (J7): requests that it sends, commands that it starts.
//!
//! # Layout
//! - [`allow`]: which addresses a request may go to
//! - `http`: sending one; `connect`, `pool`: the connections for it
//! - `command`: starting a command, and ending all that it started
//!
//! Where the server has one thread for all that it does, attempts are made on another: of very many that are due together the requests would
//! else wait for each other while a core has nothing to do.

pub mod allow;
mod command;
mod connect;
mod http;
mod pool;
#[cfg(test)]
mod tests;

use allow::Allowed;
use baton_core::job::{AttemptEnd, Target};
use baton_engine::job::{Attempt, Ran, Runner, Running};
use command::Commands;
use http::Sender;
use tokio::runtime::{Builder, Handle, Runtime};

/// What the server may run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TargetConfig {
    /// Internal addresses that requests may go to.
    pub allow: Vec<Allowed>,
    /// Whether jobs may start commands.
    pub commands: bool,
}

/// Makes the attempts of this node.
pub(crate) struct Targets {
    sender: Sender,
    commands: Option<Commands>,
    /// Only if the server's own has no thread to spare.
    runtime: Option<Runtime>,
}

impl Targets {
    /// Must be called within the server's Tokio runtime.
    pub(crate) fn new(config: &TargetConfig) -> Self {
        let commands = config.commands.then(Commands::default);
        Self { sender: Sender::new(config.allow.clone()), commands, runtime: own_runtime() }
    }

    /// Ends the commands that still run: nobody would, once the server has gone.
    pub(crate) fn stop(&self) {
        if let Some(commands) = &self.commands {
            commands.kill_all();
        }
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        // Whoever drops it may be on a runtime, where nobody may wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A thread for attempts, where there is one for everything else and a core that has none.
fn own_runtime() -> Option<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 || Handle::current().metrics().num_workers() > 1 {
        return None;
    }
    let mut builder = Builder::new_multi_thread();
    let built = builder.worker_threads(1).thread_name("baton-targets").enable_all().build();
    // Without it they are made where everything else is.
    built.inspect_err(|error| tracing::warn!(%error, "no thread for requests of jobs")).ok()
}

impl Runner for Targets {
    fn runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref().map(Runtime::handle)
    }

    fn destination(&self, attempt: &Attempt) -> Option<String> {
        match &attempt.definition.target {
            Target::Http(http) => http::destination(http),
            Target::Command { .. } => Some("commands".into()),
            Target::Worker { .. } => None,
        }
    }

    fn run<'a>(&'a self, attempt: &'a Attempt) -> Running<'a> {
        Box::pin(async move {
            match (&attempt.definition.target, &self.commands) {
                (Target::Http(http), _) => self.sender.send(attempt, http).await,
                (Target::Command { program, arguments }, Some(commands)) => {
                    Ran::Ended(commands.run(attempt, program, arguments).await)
                }
                (Target::Command { .. }, None) => failed(
                    "this server starts no commands; allow them with --allow-commands, or let a worker run it",
                ),
                (Target::Worker { .. }, _) => failed("a worker has to take it"),
            }
        })
    }
}

fn failed(message: &str) -> Ran {
    Ran::Ended(AttemptEnd::failed(message))
}
