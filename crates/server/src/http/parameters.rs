//! What paths and queries carry, as the description of the API shows it. The handlers read them by themselves (`input.rs`);
//! a name that is refined everywhere alike gets its pattern in `openapi.rs`.

use baton_api::crdt::CrdtKind;
use utoipa::IntoParams;

/// The lock's key.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "describes; the handlers read the path themselves")]
pub(super) struct KeyParameter {
    /// 1 to 512 bytes, percent-encoded as one segment: `a%2Fb` is the key `a/b`.
    #[param(rename = "lockKey")]
    lock_key: String,
}

/// The election's name.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "describes; the handlers read the path themselves")]
pub(super) struct NameParameter {
    /// 1 to 512 bytes, percent-encoded as one segment.
    name: String,
}

/// Where to go on.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct AfterParameter {
    /// Tell also who led since this epoch, as far as it is remembered. The `Last-Event-ID` header says the same.
    #[param(rename = "afterEpoch", required = false, value_type = u64, minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    after_epoch: Option<u64>,
}

/// The key to do something once for.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "describes; the handlers read the path themselves")]
pub(super) struct OnceKeyParameter {
    /// 1 to 512 bytes, percent-encoded as one segment: `a%2Fb` is the key `a/b`.
    #[param(rename = "onceKey")]
    once_key: String,
}

/// The run.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "describes; the handlers read the path themselves")]
pub(super) struct RunIdParameter {
    /// As runs are shown with it.
    #[param(rename = "runId")]
    run_id: String,
}

/// The queue.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "describes; the handlers read the path themselves")]
pub(super) struct QueueParameter {
    /// As the targets of jobs name it: 1 to 512 bytes, percent-encoded as one segment.
    queue: String,
}

/// The resource that a fence is for.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "describes; the handlers read the path themselves")]
pub(super) struct ResourceParameter {
    /// 1 to 512 bytes, percent-encoded as one segment: `a%2Fb` is the resource `a/b`.
    resource: String,
}

/// Whose.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct KeyQueryParameter {
    /// Whose: 1 to 512 bytes.
    key: String,
}

/// Whose, if it matters.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct OptionalKeyParameter {
    /// Whose, for one that has a limit of its own: 1 to 512 bytes.
    #[param(required = false, value_type = String)]
    key: Option<String>,
}

/// How a refusal is answered.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct RefusalParameter {
    /// `403` answers a refusal with 403 instead of 429, for proxies that understand nothing else.
    #[param(required = false, value_type = String, pattern = "^(429|403)$")]
    refusal: Option<String>,
}

/// The namespace.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct NamespaceParameter {
    /// 1 to 128 bytes; `default` if absent.
    #[param(required = false, value_type = String)]
    namespace: Option<String>,
}

/// What keys begin with.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct PrefixParameter {
    /// Only keys that begin with this.
    #[param(required = false, value_type = String)]
    prefix: Option<String>,
}

/// Which part of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct ListParameters {
    /// Only keys that begin with this.
    #[param(required = false, value_type = String)]
    prefix: Option<String>,
    /// How many at most; 100 if absent.
    #[param(required = false, value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// The `nextCursor` of the page before.
    #[param(required = false, value_type = String)]
    cursor: Option<String>,
}

/// Which part of a log.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct LogParameters {
    /// Only lines about this key: 1 to 512 bytes.
    #[param(required = false, value_type = String)]
    key: Option<String>,
    /// How many at most; 100 if absent.
    #[param(required = false, value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// The `cursor` of a line, or the `nextCursor` of a page: goes on after it.
    #[param(required = false, value_type = String)]
    cursor: Option<String>,
}

/// What the replica is to have seen.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct SeenParameters {
    /// The `context` of an earlier answer, of any replica: waits until this one has seen as much.
    #[param(required = false, value_type = String)]
    after: Option<String>,
    /// How long to wait for that; 5000 if absent. Then it is REPLICA_BEHIND.
    #[param(rename = "waitMillis", required = false, value_type = u64, minimum = 0, maximum = 30_000)]
    wait_millis: Option<u64>,
}

/// Which kind of counter.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct CounterKindParameter {
    /// `grow-counter` for one that only grows; `counter` if absent. Two of one name are two counters.
    #[param(required = false, value_type = String, pattern = "^(counter|grow-counter)$")]
    kind: Option<CrdtKind>,
}

/// Which kind of register.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct RegisterKindParameter {
    /// `multi-value` for one that keeps concurrent values; `register`, whose last write wins, if absent. Two of one name are two registers.
    #[param(required = false, value_type = String, pattern = "^(register|multi-value)$")]
    kind: Option<CrdtKind>,
}

/// What a removal takes away, and what it is called.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct RemovalParameters {
    /// From a read: only what that had seen is removed. Without it, all that this replica has seen.
    #[param(required = false, value_type = String)]
    context: Option<String>,
    /// Who writes: requests of different writers are different.
    #[param(required = false, value_type = String)]
    writer: Option<String>,
    /// Makes a repeated call count once at this replica.
    #[param(rename = "requestId", required = false, value_type = String)]
    request_id: Option<String>,
}

/// Which of a set's elements.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct ElementParameters {
    /// Only this element, if it is in the set: 1 to 1024 bytes.
    #[param(required = false, value_type = String, min_length = 1)]
    element: Option<String>,
    /// How many at most; 100 if absent.
    #[param(required = false, value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// The `nextCursor` of the page before.
    #[param(required = false, value_type = String)]
    cursor: Option<String>,
}

/// Which part.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes; the handlers read the query themselves")]
pub(super) struct PageParameters {
    /// How many at most; 100 if absent.
    #[param(required = false, value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// The `nextCursor` of the page before.
    #[param(required = false, value_type = String)]
    cursor: Option<String>,
}
