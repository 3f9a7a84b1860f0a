//! `baton set`: sets that need no agreement.

use crate::client::ClientOptions;
use crate::failure::Failure;
use crate::names::{self, Which};
use crate::output::{self, Format};

/// The exit code when an element isn't in it.
const NOT_IN: u8 = 1;

#[derive(clap::Subcommand, Debug)]
pub enum SetCommand {
    /// Put elements into a set, at most 40, all or none
    Add {
        /// The set
        name: String,
        /// The elements
        #[arg(required = true)]
        elements: Vec<String>,
    },
    /// Take elements out of a set, as far as they were seen
    Rm {
        /// The set
        name: String,
        /// The elements
        #[arg(required = true)]
        elements: Vec<String>,
        /// Only what was seen by the read with this context; without it, all that the node has seen
        #[arg(long, value_name = "CONTEXT")]
        seen: Option<String>,
    },
    /// Print the elements of a set, one a line
    Get {
        /// The set
        name: String,
        /// Wait until the node has seen as much: the context of an earlier answer
        #[arg(long, value_name = "CONTEXT")]
        after: Option<String>,
        /// With --output json: the `nextCursor` of the page before
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Whether an element is in a set: exits with 0 if it is, with 1 if it isn't
    Has {
        /// The set
        name: String,
        /// The element
        element: String,
    },
    /// List sets
    Ls(Which),
}

pub async fn run(command: SetCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let baton = client.connect().await?;
    let json = client.output == Format::Json;
    let written = match command {
        SetCommand::Add { name, elements } => baton.set(name).add(elements).await?,
        SetCommand::Rm { name, elements, seen: None } => baton.set(name).remove(elements).await?,
        SetCommand::Rm { name, elements, seen: Some(context) } => {
            baton.set(name).seen(context).remove(elements).await?
        }
        SetCommand::Get { name, after, cursor } => {
            let set = baton.set(name);
            let set = match after {
                Some(context) => set.after(context),
                None => set,
            };
            // A page has a context, all pages together have none.
            if json {
                output::json(&set.page(1000, cursor.as_deref()).await?)?;
            } else {
                for element in set.members().await? {
                    output::line(output::printable(element))?;
                }
            }
            return Ok(0);
        }
        SetCommand::Has { name, element } => {
            return Ok(if baton.set(name).contains(&element).await? { 0 } else { NOT_IN });
        }
        SetCommand::Ls(which) => {
            return names::list(which, json, async |query| baton.sets(query).await).await;
        }
    };
    if json {
        output::json(&written)?;
    }
    Ok(0)
}
