//! P6: lock pairs over HTTP on PostgreSQL and on etcd, beside what their own clients can do on the same server.

use super::Bench;
use crate::load::Client;
use crate::peers::store::Server;
use crate::peers::{baton, etcd, postgres};
use crate::report::{Row, Target};

const CLIENTS: usize = 64;

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let server = postgres::start().await?;
    let peers = postgres::Pairs::connect(&server, CLIENTS).await?;
    on(bench, Server::Postgres(server), peers, "bare insert and delete", 1.0).await?;
    let server = etcd::start().await?;
    let peers = etcd::Pairs::connect(&server, CLIENTS).await?;
    on(bench, Server::Etcd(server), peers, "v3lock", 2.0).await?;
    bench.report.methods.push((
        "P6",
        "one server, used by both sides in turn, with its defaults: `fsync` and `synchronous_commit` on in PostgreSQL, a \
         sync before each answer in etcd. Ours: `baton serve --store …` with its defaults, clients as in P1. \
         PostgreSQL's own: each client a connection, a row that is inserted and deleted by prepared statements, each in \
         its own transaction. etcd's own: as in P1."
            .into(),
    ));
    Ok(())
}

async fn on<Theirs: Client>(
    bench: &mut Bench<'_>,
    server: Server,
    peers: Vec<Theirs>,
    peer: &str,
    target: f64,
) -> anyhow::Result<()> {
    let name = server.kind().name();
    let ours = baton::Baton::start_with(bench.binary, bench.place, &server.url()).await?;
    let users = baton::Pairs::connect(ours.address(), CLIENTS).await?;
    let what = format!("P6: lock pairs on {name}, {CLIENTS} clients");
    let (our, their) = bench.in_turns(&what, users, peers).await?;
    let what = format!("lock pairs over HTTP on {name}, {CLIENTS} clients, against {peer}");
    bench.report.rows.push(Row::rates("P6", what, &our, &their, Some(Target::AtLeast(target))));
    ours.stop().await?;
    server.stop().await
}
