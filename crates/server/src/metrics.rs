//! What is counted about requests (O4). Labels are route templates and classes, never a key.

use crate::gate::{Class, Gates};
use baton_engine::replica::Size;
use baton_store::BreakerState;
use hyper::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

macro_rules! routes {
    ($($variant:ident = $template:literal;)+) => {
        /// A path that is served, by its template.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "the template says it")]
        pub enum Route { $($variant,)+ }

        impl Route {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As a label.
            pub fn template(self) -> &'static str {
                match self { $(Self::$variant => $template),+ }
            }
        }
    };
}

routes! {
    Acquire = "/v1/locks/{lockKey}/acquire";
    AcquireAll = "/v1/locks:acquireAll";
    Batch = "/v1/batch";
    Campaign = "/v1/elections/{name}/campaign";
    Calendar = "/v1/calendars/{name}";
    Calendars = "/v1/calendars";
    Counter = "/v1/counters/{name}";
    CounterWatch = "/v1/counters/{name}/watch";
    Counters = "/v1/counters";
    Election = "/v1/elections/{name}";
    Elections = "/v1/elections";
    Fence = "/v1/fences/{resource}";
    FenceCheck = "/v1/fences/{resource}/check";
    FenceForget = "/v1/fences/{resource}/forget";
    Fences = "/v1/fences";
    ForceRelease = "/v1/locks/{lockKey}/force-release";
    Forwarded = "/v1/peers/check";
    Health = "/healthz";
    History = "/v1/locks/{lockKey}/history";
    HotKeys = "/v1/hotkeys";
    Job = "/v1/jobs/{name}";
    JobBackfill = "/v1/jobs/{name}/backfill";
    JobPause = "/v1/jobs/{name}/pause";
    JobResume = "/v1/jobs/{name}/resume";
    JobRun = "/v1/jobs/{name}/run";
    JobRuns = "/v1/jobs/{name}/runs";
    Jobs = "/v1/jobs";
    JobsPreview = "/v1/jobs:preview";
    Limit = "/v1/limits/{name}";
    LimitAudit = "/v1/limits/{name}/audit";
    LimitBound = "/v1/limits/{name}/bound";
    LimitCheck = "/v1/limits/{name}/check";
    LimitLease = "/v1/limits/{name}/lease";
    LimitLeaseReturn = "/v1/limits/{name}/lease/return";
    LimitLeases = "/v1/limits/{name}/leases";
    LimitLeasesLog = "/v1/limits/{name}/leases/log";
    LimitRefund = "/v1/limits/{name}/refund";
    LimitReserve = "/v1/limits/{name}/reserve";
    LimitUsage = "/v1/limits/{name}/usage";
    Limits = "/v1/limits";
    LimitsCheck = "/v1/limits:check";
    List = "/v1/locks";
    Lock = "/v1/locks/{lockKey}";
    Map = "/v1/maps/{name}";
    MapWatch = "/v1/maps/{name}/watch";
    Maps = "/v1/maps";
    Metrics = "/metrics";
    Nodes = "/v1/nodes";
    Observe = "/v1/elections/{name}/observe";
    Once = "/v1/once/{onceKey}";
    OnceComplete = "/v1/once/{onceKey}/complete";
    OnceFail = "/v1/once/{onceKey}/fail";
    OnceRenew = "/v1/once/{onceKey}/renew";
    OpenApi = "/openapi.json";
    Presence = "/v1/presence/{name}";
    PresenceLeave = "/v1/presence/{name}/leave";
    Proclaim = "/v1/elections/{name}/proclaim";
    Queue = "/v1/locks/{lockKey}/queue";
    Ready = "/readyz";
    Register = "/v1/registers/{name}";
    RegisterWatch = "/v1/registers/{name}/watch";
    Registers = "/v1/registers";
    Release = "/v1/locks/{lockKey}/release";
    Renew = "/v1/locks/{lockKey}/renew";
    RenewLeader = "/v1/elections/{name}/renew";
    Replica = "/v1/peers/replica";
    Replication = "/v1/replication";
    ReplicationRetire = "/v1/replication/retire";
    Resign = "/v1/elections/{name}/resign";
    Ring = "/v1/ring";
    Run = "/v1/runs/{runId}";
    RunCancel = "/v1/runs/{runId}/cancel";
    RunComplete = "/v1/runs/{runId}/complete";
    RunFail = "/v1/runs/{runId}/fail";
    RunHeartbeat = "/v1/runs/{runId}/heartbeat";
    Set = "/v1/sets/{name}";
    SetWatch = "/v1/sets/{name}/watch";
    Sets = "/v1/sets";
    ShouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    Status = "/v1/status";
    StreamRateLimitQuotas = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    Unknown = "unknown";
    Watch = "/v1/locks/{lockKey}/watch";
    WatchAll = "/v1/watch/locks";
    WorkerClaim = "/v1/workers/{queue}/claim";
}

/// How requests end: by their status's class, or with their client gone.
const ENDS: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "gone"];

/// From half a millisecond, about the cost of a sync, to where something is wrong.
const SECONDS: [f64; 12] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByRoute {
    route: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByEnd {
    route: &'static str,
    status: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByClass {
    class: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByLimit {
    limit: &'static str,
}

/// Everything that is counted here, with a handle for each label: nothing is looked up per request.
pub struct Metrics {
    ends: Vec<[Counter; ENDS.len()]>,
    latencies: Vec<Histogram>,
    rejected: [Counter; Class::ALL.len()],
    in_flight: [Gauge; Class::ALL.len()],
    /// Connections now.
    pub connections: Gauge,
    /// Connections that found no room.
    pub connections_rejected: Counter,
    /// Descriptors without a limit, and with one.
    descriptors: [Counter; 2],
    resident: Gauge,
    breaker: Option<Breaker>,
    replica: ReplicaGauges,
}

/// What this node's replica has.
struct ReplicaGauges {
    rows: Gauge,
    pending: Gauge,
    held: Gauge,
    actors: Gauge,
}

impl ReplicaGauges {
    fn new(registry: &mut Registry) -> Self {
        let mut gauge = |name, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        Self {
            rows: gauge("replica_rows", "Rows of this node's replica: counters, registers, elements of sets"),
            pending: gauge("replica_pending", "Writes on their way to the replica's disk"),
            held: gauge("replica_held", "Changes from other replicas that wait for their time to come near"),
            actors: gauge("replica_actors", "Runs of replicas that this one has heard of"),
        }
    }

    fn set(&self, size: Size) {
        let number = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        self.rows.set(number(size.rows));
        self.pending.set(number(size.pending));
        self.held.set(number(size.held));
        self.actors.set(number(size.actors));
    }
}

/// Of a store that is a server.
struct Breaker {
    states: [Gauge; BreakerState::ALL.len()],
    seconds: Gauge<f64, AtomicU64>,
}

impl Breaker {
    fn new(registry: &mut Registry) -> Self {
        let states = Family::<ByState, Gauge>::default();
        let seconds = Gauge::default();
        let help = "How the breaker in front of the store stands: 1 for the state it is in";
        registry.register("store_breaker", help, states.clone());
        let help = "How long calls have been going through to the store, or have been refused";
        registry.register_with_unit("store_breaker_state", help, Unit::Seconds, seconds.clone());
        let state = |state: BreakerState| states.get_or_create(&ByState { state: state.as_str() }).clone();
        Self { states: BreakerState::ALL.map(state), seconds }
    }

    fn set(&self, (now, lasting): (BreakerState, Duration)) {
        for (state, gauge) in BreakerState::ALL.iter().zip(&self.states) {
            gauge.set((*state == now).into());
        }
        self.seconds.set(lasting.as_secs_f64());
    }
}

impl Metrics {
    /// Registers all of them; about a breaker only if the store has one.
    pub fn new(registry: &mut Registry, has_breaker: bool) -> Self {
        let ends = Family::<ByEnd, Counter>::default();
        let latencies =
            Family::<ByRoute, Histogram, fn() -> Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        let rejected = Family::<ByClass, Counter>::default();
        let in_flight = Family::<ByClass, Gauge>::default();
        let (connections, connections_rejected, resident) =
            (Gauge::default(), Counter::default(), Gauge::default());
        let ends_help = "Requests by route and by the class of their status; gone: the client left first";
        registry.register("http_requests", ends_help, ends.clone());
        let latency_help =
            "From a request's arrival to its answer; acquires that may wait, batches and watches not counted";
        registry.register_with_unit("http_request_duration", latency_help, Unit::Seconds, latencies.clone());
        registry.register("http_rejected", "Calls refused for want of room, by class", rejected.clone());
        registry.register("http_in_flight", "Calls under way, by class", in_flight.clone());
        registry.register("http_connections", "Open connections", connections.clone());
        let refused_help = "Connections refused for want of room";
        registry.register("http_connections_rejected", refused_help, connections_rejected.clone());
        let descriptors = Family::<ByLimit, Counter>::default();
        let descriptors_help = "Descriptors that Envoy asked about, by whether there is a limit for them";
        registry.register("envoy_descriptors", descriptors_help, descriptors.clone());
        let resident_help = "Memory of the process that is in RAM";
        registry.register_with_unit("process_resident_memory", resident_help, Unit::Bytes, resident.clone());
        let end =
            |route: Route, status| ends.get_or_create(&ByEnd { route: route.template(), status }).clone();
        Self {
            ends: Route::ALL.iter().map(|route| ENDS.map(|status| end(*route, status))).collect(),
            latencies: Route::ALL
                .iter()
                .map(|route| latencies.get_or_create(&ByRoute { route: route.template() }).clone())
                .collect(),
            rejected: Class::ALL
                .map(|class| rejected.get_or_create(&ByClass { class: class.as_str() }).clone()),
            in_flight: Class::ALL
                .map(|class| in_flight.get_or_create(&ByClass { class: class.as_str() }).clone()),
            connections,
            connections_rejected,
            descriptors: ["none", "found"].map(|limit| descriptors.get_or_create(&ByLimit { limit }).clone()),
            resident,
            breaker: has_breaker.then(|| Breaker::new(registry)),
            replica: ReplicaGauges::new(registry),
        }
    }

    /// A request ended: with this answer, or with its client gone.
    pub fn ended(&self, route: Route, status: Option<StatusCode>) {
        let end = status.map_or(4, |status| usize::from(status.as_u16() / 100).clamp(2, 5) - 2);
        self.ends[route as usize][end].inc();
    }

    /// How long a request took.
    pub fn took(&self, route: Route, latency: Duration) {
        self.latencies[route as usize].observe(latency.as_secs_f64());
    }

    /// A call found no place.
    pub fn reject(&self, class: Class) {
        self.rejected[class as usize].inc();
    }

    /// Envoy asked about a descriptor.
    pub fn described(&self, is_limited: bool) {
        self.descriptors[usize::from(is_limited)].inc();
    }

    /// Brings up to date what is only looked at when asked for.
    pub fn refresh(&self, gates: &Gates, stands: Option<(BreakerState, Duration)>, replica: Option<Size>) {
        for class in Class::ALL {
            self.in_flight[class as usize].set(gates.of(class).taken().try_into().unwrap_or(i64::MAX));
        }
        if let Some(bytes) = resident_bytes() {
            self.resident.set(bytes);
        }
        if let (Some(breaker), Some(stands)) = (&self.breaker, stands) {
            breaker.set(stands);
        }
        if let Some(size) = replica {
            self.replica.set(size);
        }
    }
}

/// The second number of `statm` is the resident set, in pages.
fn resident_bytes() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size().try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_its_own_index() {
        for (index, route) in Route::ALL.iter().enumerate() {
            assert_eq!(*route as usize, index);
        }
    }

    #[test]
    fn an_end_is_counted_under_its_class() {
        let mut registry = Registry::with_prefix("baton");
        let metrics = Metrics::new(&mut registry, false);
        metrics.ended(Route::Acquire, Some(StatusCode::CONFLICT));
        metrics.ended(Route::Acquire, Some(StatusCode::OK));
        metrics.ended(Route::Acquire, None);
        metrics.took(Route::Acquire, Duration::from_millis(3));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in ["4xx", "2xx", "gone"] {
            let route = Route::Acquire.template();
            let wanted = format!("baton_http_requests_total{{route=\"{route}\",status=\"{line}\"}} 1");
            assert!(text.contains(&wanted), "{wanted} in {text}");
        }
    }
}
