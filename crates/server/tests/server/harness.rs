//! A server of one's own.

use crate::client::{Answer, Client, PATIENCE};
use baton_server::{Config, Server};
use baton_store::Store;
use baton_testkit::store_url;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub struct Baton {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    directory: Option<TempDir>,
}

impl Baton {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut baton = Self::open(directory.path(), change).await;
        baton.directory = Some(directory);
        baton
    }

    pub async fn open(directory: &Path, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data: directory.join("data"),
            store: store_url(directory),
            ..Config::default()
        };
        change(&mut config);
        Self::serve(Server::start(config).await.unwrap())
    }

    /// On a store of the caller's; the rest is as usual.
    pub async fn on(store: Arc<dyn Store>, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
        change(&mut config);
        Self::serve(Server::on(config, store).await.unwrap())
    }

    fn serve(server: Server) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self {
            address: server.address(),
            stop: Some(stop),
            serving: tokio::spawn(server.serve(async { drop(stopped.await) })),
            directory: None,
        }
    }

    /// Begins to drain.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits until it is over.
    pub async fn stopped(mut self) {
        self.stop();
        tokio::time::timeout(PATIENCE, self.serving).await.expect("stops in time").unwrap();
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.client().await.call("GET", path, b"").await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.client().await.call("POST", path, body.to_string().as_bytes()).await
    }

    pub async fn acquire(&self, key: &str, owner: &str) -> Value {
        let body = json!({ "ownerId": owner, "ttlMillis": 60_000 });
        self.post(&format!("/v1/locks/{key}/acquire"), body).await.ok()
    }

    pub async fn release(&self, grant: &Value) -> Answer {
        let body = json!({ "ownerId": grant["ownerId"], "lockToken": grant["lockToken"] });
        let key = grant["lockKey"].as_str().unwrap();
        self.post(&format!("/v1/locks/{key}/release"), body).await
    }

    /// A connection on which an acquire waits, in the queue by now.
    pub async fn waiter(&self, key: &str, owner: &str, request_id: Option<&str>) -> Client {
        let before = self.queue(key).await.len();
        let mut client = self.client().await;
        let body = json!({ "ownerId": owner, "ttlMillis": 60_000, "wait": true, "requestId": request_id });
        client.request("POST", &format!("/v1/locks/{key}/acquire"), body.to_string().as_bytes()).await;
        self.until(async || self.queue(key).await.len() > before).await;
        client
    }

    /// The owners in a lock's queue.
    pub async fn queue(&self, key: &str) -> Vec<String> {
        let queue = self.get(&format!("/v1/locks/{key}/queue")).await.ok();
        let waiting = queue["waiting"].as_array().unwrap().iter();
        waiting.map(|entry| entry["ownerId"].as_str().unwrap().to_owned()).collect()
    }

    /// Asks until it is so.
    pub async fn until(&self, mut is_so: impl AsyncFnMut() -> bool) {
        let start = Instant::now();
        while !is_so().await {
            assert!(start.elapsed() < PATIENCE, "it never became so");
        }
    }
}
