//! `baton status`

use crate::client::ClientOptions;
use crate::duration;
use crate::failure::Failure;
use crate::output::{self, Format};
use std::time::Duration;

pub async fn run(client: &ClientOptions) -> Result<u8, Failure> {
    let status = client.connect().await?.status().await?;
    if client.output == Format::Json {
        output::json(&status)?;
    } else {
        let (store, promises) = (&status.store, &status.store.guarantees);
        let mut rows = vec![
            ("version", status.version.clone()),
            ("node", status.node_id.clone()),
            ("up for", duration::show(Duration::from_millis(status.uptime_millis))),
            ("ready", if status.ready { "yes" } else { "no: the store can't commit" }.into()),
            ("nodes", status.nodes.to_string()),
            (
                "store",
                format!("{}{}", store.name, if store.shared { ", shared" } else { ", this node's own" }),
            ),
            ("records", store.records.to_string()),
            ("memory", format!("{} of {} bytes", store.used_bytes, store.budget_bytes)),
            ("on crash", promises.on_crash.clone()),
            ("on failover", promises.on_failover.clone()),
            ("on partition", promises.on_partition.clone()),
            ("on clock step", promises.on_clock_step.clone()),
            ("shortest lease", duration::show(Duration::from_millis(promises.ttl_min_millis))),
            (
                "expiry late by",
                format!("at most {}", duration::show(Duration::from_millis(promises.ttl_granularity_millis))),
            ),
        ];
        if let Some(breaker) = &store.breaker {
            let lasting = duration::show(Duration::from_millis(breaker.for_millis));
            rows.push(("breaker", format!("{}, for {lasting}", breaker.state.as_str())));
        }
        rows.extend(promises.warnings.iter().map(|warning| ("warning", warning.clone())));
        output::fields(rows)?;
    }
    Ok(if status.ready { 0 } else { baton_client::ErrorCode::StoreUnavailable.exit_code() })
}
