//! The names of what replicas have: counters, sets, registers, maps.

use crate::failure::Failure;
use crate::output;
use baton_client::wire_crdt::ObjectList;
use baton_client::{Error, ListQuery};

/// Names on one page.
const PAGE: u64 = 500;

/// Which of them.
#[derive(clap::Args, Debug)]
pub struct Which {
    /// Only names that begin with this
    #[arg(long)]
    prefix: Option<String>,
    /// Stop after this many
    #[arg(long, default_value_t = 1000)]
    limit: usize,
}

/// Prints the names that there are, page after page.
pub async fn list(
    which: Which,
    json: bool,
    mut page_of: impl AsyncFnMut(&ListQuery) -> Result<ObjectList, Error>,
) -> Result<u8, Failure> {
    let mut names = Vec::new();
    let mut query = ListQuery { prefix: which.prefix, limit: Some(PAGE), cursor: None };
    loop {
        let page = page_of(&query).await?;
        names.extend(page.names);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() || names.len() >= which.limit {
            break;
        }
    }
    let is_cut = names.len() > which.limit || query.cursor.is_some();
    names.truncate(which.limit);
    if json {
        output::json(&names)?;
    } else if names.is_empty() {
        output::line("nothing is there")?;
    } else {
        let kind = |kind: Option<baton_client::wire_crdt::CrdtKind>| kind.map_or("map", |kind| kind.as_str());
        let rows = names.into_iter().map(|name| [name.name, kind(name.kind).to_owned()]);
        output::table(["NAME", "KIND"], rows.collect())?;
        if is_cut {
            output::line("... and more: raise --limit, or say --prefix")?;
        }
    }
    Ok(0)
}
