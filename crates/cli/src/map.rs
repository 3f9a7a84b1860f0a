//! `baton map`: maps of counters, sets and registers that need no agreement.

use crate::client::ClientOptions;
use crate::failure::{Failure, USAGE};
use crate::names::{self, Which};
use crate::output::{self, Format};
use baton_client::crdt::Map;
use baton_client::wire_crdt::MapPage;
use serde_json::value::RawValue;

#[derive(clap::Subcommand, Debug)]
pub enum MapCommand {
    /// Change fields of a map, all in one step
    #[command(after_help = "Example:\n  \
        baton map put page:7 --counter views=1 --register theme='\"dark\"' --add tags=new --add tags=sale --remove tags=old\n\n\
        A field is known by its name and its kind: a counter and a set of one name are two fields.")]
    Put(Changes),
    /// Print the fields of a map
    Get {
        /// The map
        name: String,
        /// Wait until the node has seen as much: the context of an earlier answer
        #[arg(long, value_name = "CONTEXT")]
        after: Option<String>,
    },
    /// List maps
    Ls(Which),
}

#[derive(clap::Args, Debug)]
pub struct Changes {
    /// The map
    name: String,
    /// Add to a counter
    #[arg(long, value_name = "FIELD=AMOUNT")]
    counter: Vec<String>,
    /// Add to a counter that can't be taken from
    #[arg(long, value_name = "FIELD=AMOUNT")]
    grow_counter: Vec<String>,
    /// Put an element into a set
    #[arg(long, value_name = "FIELD=ELEMENT")]
    add: Vec<String>,
    /// Take an element out of a set, as far as it was seen
    #[arg(long, value_name = "FIELD=ELEMENT")]
    remove: Vec<String>,
    /// Set a register to a value in JSON
    #[arg(long, value_name = "FIELD=JSON")]
    register: Vec<String>,
    /// Set a register that keeps what was written concurrently
    #[arg(long, value_name = "FIELD=JSON")]
    multi_value: Vec<String>,
    /// Remove and replace only what was seen by the read with this context; without it, all that the node has seen
    #[arg(long, value_name = "CONTEXT")]
    seen: Option<String>,
}

pub async fn run(command: MapCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let baton = client.connect().await?;
    let json = client.output == Format::Json;
    match command {
        MapCommand::Put(changes) => {
            let map = baton.map(changes.name.as_str());
            let written = changed(map, &changes)?.write().await?;
            if json {
                output::json(&written)?;
            }
        }
        MapCommand::Get { name, after } => {
            let map = baton.map(name);
            let map = match after {
                Some(context) => map.after(context),
                None => map,
            };
            let page = map.read().await?;
            if json { output::json(&page) } else { print(page) }?;
        }
        MapCommand::Ls(which) => {
            return names::list(which, json, async |query| baton.maps(query).await).await;
        }
    }
    Ok(0)
}

fn changed(mut map: Map, changes: &Changes) -> Result<Map, Failure> {
    for text in &changes.counter {
        let (field, amount) = amount(text)?;
        map = map.add(field, amount);
    }
    for text in &changes.grow_counter {
        let (field, amount) = amount(text)?;
        map = map.grow(field, amount);
    }
    for text in &changes.add {
        let (field, element) = pair(text)?;
        map = map.insert(field, [element]);
    }
    for text in &changes.remove {
        let (field, element) = pair(text)?;
        map = map.take_out(field, [element]);
    }
    for text in &changes.register {
        let (field, value) = value(text)?;
        map = map.put(field, &value);
    }
    for text in &changes.multi_value {
        let (field, value) = value(text)?;
        map = map.put_beside(field, &value);
    }
    Ok(match &changes.seen {
        Some(context) => map.seen(context.as_str()),
        None => map,
    })
}

fn pair(text: &str) -> Result<(&str, &str), Failure> {
    let wrong = || Failure::new(USAGE, format!("{text:?} has no ="), "write it like FIELD=VALUE");
    text.split_once('=').ok_or_else(wrong)
}

fn amount(text: &str) -> Result<(&str, i64), Failure> {
    let (field, amount) = pair(text)?;
    let wrong = |_| Failure::new(USAGE, format!("{amount:?} is no whole number"), "write it like views=1");
    amount.parse().map(|amount| (field, amount)).map_err(wrong)
}

fn value(text: &str) -> Result<(&str, Box<RawValue>), Failure> {
    let (field, value) = pair(text)?;
    let wrong = |error| {
        Failure::new(
            USAGE,
            format!("the value of {field} isn't JSON: {error}"),
            "text is JSON in quotes: '\"dark\"'",
        )
    };
    RawValue::from_string(value.to_owned()).map(|value| (field, value)).map_err(wrong)
}

fn print(page: MapPage) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (kind, counters) in [("counter", page.counters), ("grow-counter", page.grow_counters)] {
        rows.extend(counters.into_iter().map(|(field, value)| [field, kind.to_owned(), value.to_string()]));
    }
    for (field, elements) in page.sets {
        rows.push([field, "set".to_owned(), elements.join(", ")]);
    }
    for (field, value) in page.registers {
        rows.push([field, "register".to_owned(), value.get().to_owned()]);
    }
    for (field, values) in page.multi_values {
        let values: Vec<_> = values.iter().map(|value| value.get()).collect();
        rows.push([field, "multi-value".to_owned(), values.join(" | ")]);
    }
    if rows.is_empty() {
        return output::line("nothing is there");
    }
    rows.sort();
    output::table(["FIELD", "KIND", "VALUE"], rows)
}
