//! `baton nodes`

use crate::client::ClientOptions;
use crate::failure::Failure;
use crate::output::{self, Format};
use baton_client::wire_cluster::NodeStatus;

pub async fn run(client: &ClientOptions) -> Result<u8, Failure> {
    let list = client.connect().await?.nodes().await?;
    if client.output == Format::Json {
        output::json(&list)?;
        return Ok(0);
    }
    let row = |node: &NodeStatus| {
        let states = [(node.leaving, "leaving"), (node.dedicated, "dedicated"), (node.this, "asked")];
        let state = states.iter().filter(|(is_so, _)| *is_so).map(|(_, state)| *state);
        [
            node.node_id.clone(),
            node.address.clone().unwrap_or_else(|| "unknown".into()),
            node.version.clone(),
            node.owns.to_string(),
            state.collect::<Vec<_>>().join(", "),
        ]
    };
    output::table(["NODE", "ADDRESS", "VERSION", "OWNS", ""], list.nodes.iter().map(row).collect())?;
    Ok(0)
}
