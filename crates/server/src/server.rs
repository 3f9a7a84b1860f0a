//! Listening, connections, draining.

use crate::config::{Config, ConfigError};
use crate::gate::{Gate, Place};
use crate::http::{self, Shared};
use crate::http2::Http2;
use crate::limits_file::LimitsFile;
use crate::opening::{Opened, opened, tell_warnings};
use crate::peers::HttpPeers;
use crate::run::RunError;
use crate::socket::{self, Socket};
use crate::targets::Targets;
use axum::Router;
use baton_core::WallTime;
use baton_engine::state::State;
use baton_engine::{Engine, Random};
use baton_store::{Late, Reason, Store, StoreError};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use hyper_util::service::TowerToHyperService;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// Bytes of a request's head, and of what is read at once. The longest key and namespace, percent-encoded, fit well.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// When accepting fails for want of something, that something needs time to come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long closing the store may take, after everything else has ended.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Where a node's state is, in the data directory.
const STATE: &str = "state";

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    config: Config,
    limits: Option<LimitsFile>,
    targets: Arc<Targets>,
    stopping: watch::Sender<bool>,
}

impl Server {
    /// Opens the store, starts the engine and listens, also if the store can't be reached yet. Connections are accepted from then on, and served by
    /// [`Server::serve`].
    pub async fn start(mut config: Config) -> Result<Self, RunError> {
        // Before the store is opened: a refused configuration leaves no files behind.
        let limits = checked(&config).await?;
        let listener = listen(&mut config).await?;
        let state = config.state.clone().unwrap_or_else(|| config.data.join(STATE));
        // Nobody is served yet, so nobody waits for the disk.
        config.engine.state = Some(State::open(&state)?);
        let (engine, random) = (config.engine.clone(), Random::system());
        let engine = match opened(&config.store, config.data.clone()).await? {
            Opened::Here(store) => match Engine::start(store.clone(), engine.clone(), random.clone()).await {
                // It was there just now.
                Err(error) if passes(&error) && Late::new(&config.store).is_ok() => {
                    tracing::warn!(%error, "the store is away again: starting without it");
                    Engine::start_late(Late::new(&config.store)?, ready(store), now(), engine, random)
                }
                started => started?,
            },
            Opened::Coming(late, coming) => Engine::start_late(*late, coming, now(), engine, random),
        };
        Self::with(config, limits, listener, engine).await
    }

    /// As [`Server::start`], on a store that is open already, whatever the configuration names.
    pub async fn on(mut config: Config, store: Arc<dyn Store>) -> Result<Self, RunError> {
        let limits = checked(&config).await?;
        let listener = listen(&mut config).await?;
        tell_warnings(&*store);
        let engine = Engine::start(store, config.engine.clone(), Random::system()).await?;
        Self::with(config, limits, listener, engine).await
    }

    async fn with(
        config: Config,
        mut limits: Option<LimitsFile>,
        (listener, address): (TcpListener, SocketAddr),
        engine: Engine,
    ) -> Result<Self, RunError> {
        engine.connect_peers(Arc::new(HttpPeers::default()));
        let targets = Arc::new(Targets::new(&config.targets));
        engine.set_runner(targets.clone());
        if let Some(limits) = &mut limits {
            // Nobody is served yet: whoever comes first finds them.
            limits.begin(&engine).await;
        }
        let stopping = watch::Sender::new(false);
        let shared = Arc::new(Shared::new(engine, &config, stopping.subscribe()));
        shared.replica.open_if_wanted().await;
        shared.replica.connect(&shared.engine);
        Ok(Self { listener, address, shared, config, limits, targets, stopping })
    }

    /// Whether its store has been reached.
    pub fn has_its_store(&self) -> bool {
        self.shared.engine.has_met_its_store()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then drains: no more connections, waiters are told to call again, calls under way are
    /// answered, within the configured time.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let Self { listener, shared, config, limits, targets, stopping, .. } = self;
        if let Some(limits) = limits {
            tokio::spawn(limits.follow(shared.engine.clone(), stopping.subscribe()));
        }
        let gate = Gate::new(config.max_connections);
        // Every connection holds a sender: when they are all gone, so are the connections.
        let (open, mut closed) = mpsc::channel::<()>(1);
        let (abort, aborted) = watch::channel(());
        let connections = Connections {
            builder: builder(&config),
            http2: Arc::new(Http2::new(&config)),
            router: http::router(shared.clone()),
            stopping: stopping.subscribe(),
            aborted,
        };
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => match gate.enter() {
                    Some(place) => connections.spawn(stream, &shared, (place, open.clone())),
                    None => refuse(&stream, &shared),
                },
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "can't accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop((listener, open));
        stopping.send_replace(true);
        let drained = async {
            shared.engine.drain().await;
            closed.recv().await;
        };
        if tokio::time::timeout(config.drain, drained).await.is_err() {
            tracing::warn!(connections = gate.taken(), "closing what didn't end in time");
        }
        drop(abort);
        closed.recv().await;
        targets.stop();
        shared.replica.close().await;
        let store = shared.engine.store().clone();
        drop((connections, shared));
        close(store).await;
    }
}

/// Whether a store may be there again later.
fn passes(error: &StoreError) -> bool {
    let reasons = [Reason::Unavailable, Reason::Busy];
    match error {
        StoreError::Unknown { .. } => true,
        StoreError::NotApplied { reason, .. } => reasons.contains(reason),
    }
}

/// By this machine's clock: what time it is until the store says it.
pub(crate) fn now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(since.as_millis() as u64)
}

/// Takes the address, and lets the engine know where other nodes reach it: it says so as soon as it has met the store.
async fn listen(config: &mut Config) -> Result<(TcpListener, SocketAddr), RunError> {
    let listen = |source| RunError::Listen { address: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    config.engine.address = config.reached_at(address);
    Ok((listener, address))
}

/// What can be refused before the store is opened.
async fn checked(config: &Config) -> Result<Option<LimitsFile>, ConfigError> {
    config.check()?;
    match &config.limits {
        Some(path) => Ok(Some(LimitsFile::open(path.clone()).await?)),
        None => Ok(None),
    }
}

/// The engine's own tasks let go of the store once they hear of the drain. Then it is closed here, so that its files
/// are free for another when serving is over.
async fn close(store: Arc<dyn Store>) {
    let alone = async {
        while Arc::strong_count(&store) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(CLOSE_MAX, alone).await.is_err() {
        // Something still writes behind the answers; what was acknowledged is safe already.
        tracing::info!("the store is still in use; it closes with the process");
    }
    // Closing may sync.
    let closing = tokio::task::spawn_blocking(move || drop(store));
    if closing.await.is_err() {
        tracing::error!("the store didn't close");
    }
}

fn builder(config: &Config) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // hyper counts it from when a connection is idle: it ends idle connections and slow heads alike.
        .header_read_timeout(config.idle)
        .max_buf_size(BUFFER_BYTES_MAX)
        // Answers are short: one copy is cheaper than a vectored write.
        .writev(false);
    builder
}

/// How connections are served.
struct Connections {
    builder: http1::Builder,
    http2: Arc<Http2>,
    router: Router,
    stopping: watch::Receiver<bool>,
    aborted: watch::Receiver<()>,
}

impl Connections {
    /// Dropping the task's future drops the handlers' futures, and so does hyper when the client is gone.
    fn spawn(&self, stream: TcpStream, shared: &Arc<Shared>, held: (Place, mpsc::Sender<()>)) {
        let Ok(socket) = Socket::new(stream) else { return };
        let (router, server) = (TowerToHyperService::new(self.router.clone()), shared.clone());
        let serve = move |request| http::serve(server.clone(), router.clone(), request);
        let mut connection = self.builder.serve_connection(socket, service_fn(serve));
        let (mut stopping, mut aborted) = (self.stopping.clone(), self.aborted.clone());
        let http2 = self.http2.clone();
        let shared = shared.clone();
        shared.metrics.connections.inc();
        tokio::spawn(async move {
            let ended = tokio::select! {
                biased;
                ended = &mut connection => Some(ended),
                _ = stopping.wait_for(|stopping| *stopping) => None,
            };
            match ended {
                // hyper has read how HTTP/2 begins, and answered nothing. That is seen if it came in one piece, and who speaks HTTP/2
                // sends it so; in two it would be a bad request. Boxed, since most connections have no need of the room.
                Some(Err(error)) if error.is_parse_version_h2() => {
                    let parts = connection.into_parts();
                    let begun = (parts.io.into_stream(), parts.read_buf);
                    Box::pin(http2.serve(begun, shared.clone(), stopping, aborted)).await;
                }
                Some(_) => drop(connection),
                None => {
                    Pin::new(&mut connection).graceful_shutdown();
                    tokio::select! {
                        biased;
                        ended = &mut connection => drop(ended),
                        _ = aborted.changed() => {}
                    }
                    drop(connection);
                }
            }
            shared.metrics.connections.dec();
            drop(held);
        });
    }
}

/// Says so if the socket takes it at once, and closes.
fn refuse(stream: &TcpStream, shared: &Shared) {
    shared.metrics.connections_rejected.inc();
    drop(stream.try_write(&socket::no_room()));
}

fn is_the_clients(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset
    )
}
