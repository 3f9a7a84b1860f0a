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
        let state = match (node.leaving, node.this) {
            (true, _) => "leaving",
            (false, true) => "asked",
            (false, false) => "",
        };
        [
            node.node_id.clone(),
            node.address.clone().unwrap_or_else(|| "unknown".into()),
            node.version.clone(),
            node.owns.to_string(),
            state.into(),
        ]
    };
    output::table(["NODE", "ADDRESS", "VERSION", "OWNS", ""], list.nodes.iter().map(row).collect())?;
    Ok(0)
}
