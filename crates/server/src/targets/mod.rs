//! What the server runs itself when a job is due (J7): requests that it sends, commands that it starts.
//!
//! # Layout
//! - [`allow`]: which addresses a request may go to
//! - `http`: sending one; `connect`, `pool`: the connections for it
//! - `command`: starting a command, and ending all that it started

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
}

impl Targets {
    pub(crate) fn new(config: &TargetConfig) -> Self {
        let commands = config.commands.then(Commands::default);
        Self { sender: Sender::new(config.allow.clone()), commands }
    }

    /// Ends the commands that still run: nobody would, once the server has gone.
    pub(crate) fn stop(&self) {
        if let Some(commands) = &self.commands {
            commands.kill_all();
        }
    }
}

impl Runner for Targets {
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
