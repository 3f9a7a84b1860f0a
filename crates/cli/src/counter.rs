//! `baton counter`: counters that need no agreement.

use crate::client::ClientOptions;
use crate::failure::Failure;
use crate::names::{self, Which};
use crate::output::{self, Format};
use baton_client::crdt::Counter;

#[derive(clap::Subcommand, Debug)]
pub enum CounterCommand {
    /// Add to a counter, or take from it; prints what it counts then
    #[command(after_help = "Examples:\n  baton counter add page:7:views 1\n  baton counter add stock -3")]
    Add {
        #[command(flatten)]
        counter: Named,
        /// How much; below zero to take
        #[arg(allow_negative_numbers = true)]
        amount: i64,
    },
    /// Print what a counter counts, as far as the node has seen; 0 if it was never written
    Get {
        #[command(flatten)]
        counter: Named,
        /// Wait until the node has seen as much: the context of an earlier answer
        #[arg(long, value_name = "CONTEXT")]
        after: Option<String>,
    },
    /// List counters
    Ls(Which),
    /// Remove what the node has seen of a counter
    Rm {
        #[command(flatten)]
        counter: Named,
    },
}

#[derive(clap::Args, Debug)]
pub struct Named {
    /// The counter
    name: String,
    /// The one of this name that can't be taken from
    #[arg(long)]
    grow_only: bool,
}

pub async fn run(command: CounterCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let baton = client.connect().await?;
    let json = client.output == Format::Json;
    let named = |counter: Named| -> Counter {
        let found = baton.counter(counter.name);
        if counter.grow_only { found.grow_only() } else { found }
    };
    let state = match command {
        CounterCommand::Add { counter, amount } => named(counter).add(amount).await?,
        CounterCommand::Get { counter, after: None } => named(counter).read().await?,
        CounterCommand::Get { counter, after: Some(context) } => named(counter).after(context).read().await?,
        CounterCommand::Ls(which) => {
            return names::list(which, json, async |query| baton.counters(query).await).await;
        }
        CounterCommand::Rm { counter } => {
            let removed = named(counter).remove().await?;
            if json {
                output::json(&removed)?;
            }
            return Ok(0);
        }
    };
    if json { output::json(&state) } else { output::line(state.value) }?;
    Ok(0)
}
