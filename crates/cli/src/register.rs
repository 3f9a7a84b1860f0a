//! `baton register`: values that need no agreement.

use crate::client::ClientOptions;
use crate::failure::{Failure, USAGE};
use crate::names::{self, Which};
use crate::output::{self, Format};
use baton_client::crdt::Register;
use serde_json::value::RawValue;

/// The exit code when it has no value.
const NO_VALUE: u8 = 69;

#[derive(clap::Subcommand, Debug)]
pub enum RegisterCommand {
    /// Set a register to a value in JSON
    #[command(after_help = "Examples:\n  \
        baton register put theme '\"dark\"'\n  \
        baton register put cart '[\"book\"]' --multi-value --seen CONTEXT")]
    Put {
        #[command(flatten)]
        register: Named,
        /// The value, as JSON
        value: String,
        /// With --multi-value: replace only what was seen by the read with this context
        #[arg(long, value_name = "CONTEXT", requires = "multi_value")]
        seen: Option<String>,
    },
    /// Print what a register is set to, as JSON; concurrent values one a line. Exits with 69 if it has none
    Get {
        #[command(flatten)]
        register: Named,
        /// Wait until the node has seen as much: the context of an earlier answer
        #[arg(long, value_name = "CONTEXT")]
        after: Option<String>,
    },
    /// List registers
    Ls(Which),
    /// Remove what the node has seen of a register
    Rm {
        #[command(flatten)]
        register: Named,
    },
}

#[derive(clap::Args, Debug)]
pub struct Named {
    /// The register
    name: String,
    /// The one of this name that keeps what was written concurrently
    #[arg(long)]
    multi_value: bool,
}

pub async fn run(command: RegisterCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let baton = client.connect().await?;
    let json = client.output == Format::Json;
    let named = |register: Named| -> Register {
        let found = baton.register(register.name);
        if register.multi_value { found.multi_value() } else { found }
    };
    match command {
        RegisterCommand::Put { register, value, seen } => {
            let value = RawValue::from_string(value).map_err(|error| {
                let help = "text is JSON in quotes: '\"dark\"'";
                Failure::new(USAGE, format!("the value isn't JSON: {error}"), help)
            })?;
            let register = named(register);
            let register = match seen {
                Some(context) => register.seen(context),
                None => register,
            };
            let state = register.put(&value).await?;
            if json {
                output::json(&state)?;
            }
        }
        RegisterCommand::Get { register, after } => {
            let register = named(register);
            let register = match after {
                Some(context) => register.after(context),
                None => register,
            };
            let state = register.read().await?;
            if json {
                output::json(&state)?;
            } else {
                let all =
                    if state.values.is_empty() { state.value.into_iter().collect() } else { state.values };
                // `null` is a value, and is read as none.
                if state.exists && all.is_empty() {
                    output::line("null")?;
                }
                for value in all {
                    output::line(output::printable(value.get().to_owned()))?;
                }
            }
            return Ok(if state.exists { 0 } else { NO_VALUE });
        }
        RegisterCommand::Ls(which) => {
            return names::list(which, json, async |query| baton.registers(query).await).await;
        }
        RegisterCommand::Rm { register } => {
            let removed = named(register).remove().await?;
            if json {
                output::json(&removed)?;
            }
        }
    }
    Ok(0)
}
