//! `baton replica`: how far replicas are, and runs of them that are over (D3, D8).

use crate::client::ClientOptions;
use crate::failure::Failure;
use crate::output::{self, Format};
use baton_client::wire_replication::{ReplicaRun, ReplicationPeer};
use std::time::Duration;

#[derive(clap::Subcommand, Debug)]
pub enum ReplicaCommand {
    /// Show how far each other replica is, as the asked one sees it
    Ls,
    /// List every run of a replica that was ever heard of
    Runs,
    /// Retire a run that is over for good: what it made becomes the asked replica's
    Remove {
        /// The run, as `baton replica runs` names it
        actor: String,
    },
}

pub async fn run(command: ReplicaCommand, client: &ClientOptions) -> Result<u8, Failure> {
    let baton = client.connect().await?;
    let json = client.output == Format::Json;
    match command {
        ReplicaCommand::Remove { actor } => {
            let retired = baton.retire_replica(&actor).await?;
            match (json, retired.known) {
                (true, _) => output::json(&retired)?,
                (false, true) => {
                    output::line(format_args!("retired; {} rows of it were written again", retired.rows))?;
                }
                (false, false) => output::line("nobody has heard of it: nothing was done")?,
            }
        }
        command => {
            let status = baton.replication().await?;
            if json {
                output::json(&status)?;
            } else if matches!(command, ReplicaCommand::Runs) {
                output::table(["RUN", "CHANGES", ""], status.runs.iter().map(run_row).collect())?;
            } else {
                let rows = status.peers.iter().map(peer_row).collect();
                output::table(["REPLICA", "RUN", "BEHIND", "LAG", "DROPPED", "ROUNDS", ""], rows)?;
            }
        }
    }
    Ok(0)
}

fn run_row(run: &ReplicaRun) -> [String; 3] {
    [run.actor.clone(), run.changes.to_string(), if run.retired { "retired".into() } else { String::new() }]
}

fn peer_row(peer: &ReplicationPeer) -> [String; 7] {
    let state = match (peer.this, peer.reachable) {
        (true, _) => "asked",
        (false, true) => "",
        (false, false) => "unreachable",
    };
    [
        peer.address.clone(),
        peer.actor.clone().unwrap_or_else(|| "unknown".into()),
        peer.behind.to_string(),
        crate::duration::show(Duration::from_millis(peer.lag_millis)),
        peer.dropped.to_string(),
        peer.rounds.to_string(),
        state.into(),
    ]
}
