//! Three copies of a service, twenty requests a day for each account. Copies that count for themselves let sixty through.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use anyhow::ensure;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, request::Parts};
use axum::routing::get;
use baton_client::tower::Limited;
use baton_client::wire_limit::Mechanism;
use baton_client::{Baton, LimitDefinition};
use baton_examples::{copies, server, unique};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tower::ServiceExt;

const LIMIT: u64 = 20;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// What a load balancer sends to each copy.
const REQUESTS: usize = 40;

/// Who asks. A real service takes it from whatever it has authenticated.
fn account(request: &Parts) -> Option<String> {
    Some(request.headers.get("x-account")?.to_str().ok()?.to_owned())
}

/// Each copy counts what it serves itself.
async fn alone() -> anyhow::Result<usize> {
    let served = AtomicU64::new(0);
    Ok((0..REQUESTS).filter(|_| served.fetch_add(1, Ordering::SeqCst) < LIMIT).count())
}

/// Each copy has the layer. A leased limit is decided in the copy itself, out of what was debited for it.
async fn together(baton: Baton, limit: Arc<str>) -> anyhow::Result<usize> {
    let limiter = baton.limiter(limit);
    let orders = Router::new()
        .route("/orders", get(async || "no orders"))
        .layer(Limited::new(limiter.clone(), account));
    let mut passed = 0;
    for _ in 0..REQUESTS {
        let request = Request::get("/orders").header("x-account", "acme").body(Body::empty())?;
        let response = orders.clone().oneshot(request).await?;
        ensure!(response.headers().contains_key("ratelimit"), "nothing says what is left");
        match response.status() {
            StatusCode::OK => passed += 1,
            StatusCode::TOO_MANY_REQUESTS => {
                ensure!(response.headers().contains_key("retry-after"), "nothing says when to come back");
            }
            status => anyhow::bail!("{status}"),
        }
    }
    limiter.close().await;
    Ok(passed)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let passed: usize = copies(3, |_| alone()).await?.into_iter().sum();
    println!("each counting for itself, 3 copies served {passed} requests of {LIMIT}");

    let limit: Arc<str> = unique("api").into();
    let baton = Baton::connect(server()).await?;
    let definition =
        LimitDefinition { mechanism: Some(Mechanism::Leased), ..LimitDefinition::new(LIMIT, DAY_MS) };
    baton.limits().put(&limit, &definition).await?;
    let passed: usize = copies(3, |baton| together(baton, limit.clone())).await?.into_iter().sum();
    println!("with a limit, 3 copies served {passed} requests of {LIMIT}");
    baton.limits().remove(&limit).await?;
    ensure!(passed as u64 == LIMIT, "{passed} were served");
    Ok(())
}
