"""Makes generated requests reach further: short waits, real grants, and what a schema can't say.

A request that is meant to be refused is sent as generated, apart from the length of a valid wait.
"""

import threading
from urllib.parse import quote, unquote

import schemathesis

WAIT_MILLIS_MAX = 50
GRANTS_MAX = 32

# Grants that acquires were answered with: (lockKey as in a path, namespace, lockToken, ownerId), the newest last.
grants = []
# Claims of those who were first: (onceKey, namespace, claimToken), the newest last.
claims = []
# Limits that were defined: (name as in a path, namespace), the newest last.
limits = []
# Calendars that were defined: (name as in a path, namespace), the newest last.
calendars = []
# Jobs that were defined: (name as in a path, namespace), the newest last.
jobs = []
# Runs that were asked for, by their ids.
runs = []
# Runs that a worker took, by their ids, with the tokens of their attempts.
attempts = []
lock = threading.Lock()
calls = 0


def shorten(acquire, by_default=False):
    """Bounds the wait of one acquire, of one or of several locks, claim or candidate, and leaves alone whatever isn't a valid
    wait. A candidate waits also if it says nothing of it."""
    if not isinstance(acquire, dict):
        return
    if not (acquire.get("wait", by_default) is True or "waitTimeoutMillis" in acquire):
        return
    wait = acquire.get("waitTimeoutMillis")
    if wait is None or (type(wait) is int and WAIT_MILLIS_MAX < wait <= 600_000):
        acquire["waitTimeoutMillis"] = WAIT_MILLIS_MAX


def agree(acquire):
    """Fields that go together, which the description says in words: permits with a semaphore, and no other mode."""
    if not isinstance(acquire, dict):
        return
    if acquire.get("mode") == "semaphore":
        if acquire.get("permits") is None:
            acquire["permits"] = 1
    else:
        acquire.pop("permits", None)
    if acquire.get("mode") in ("semaphore", "shared"):
        acquire.pop("reentrant", None)


def define(definition):
    """Fields of a limit's definition that go together, which the description says in words; numbers that any algorithm can do."""
    algorithm = definition.get("algorithm")
    if definition.get("calendar") is not None:
        algorithm = definition["algorithm"] = "fixed_window"
        definition.update(windowMillis=None, staggered=None, timeZone="Europe/Berlin")
    else:
        definition.pop("timeZone", None)
        definition["windowMillis"] = None if algorithm == "in_flight" else 60_000
    if algorithm != "token_bucket":
        definition.pop("burst", None)
    if algorithm == "in_flight" or definition.get("audit") is True:
        definition["mechanism"] = "central"
        definition.pop("anonymousMechanism", None)
    if definition.get("hotKey") != "split":
        definition.pop("hotKeyParts", None)
    if definition.get("hotKey") != "cap":
        definition.pop("hotKeyCap", None)
    if definition.get("hotKey") == "cap":
        definition["audit"] = False
    elif definition.get("hotKey") is not None:
        definition.update(mechanism="owned", audit=False)
        if algorithm == "in_flight":
            definition.pop("hotKey"), definition.pop("hotKeyParts", None)
            definition["mechanism"] = "central"
    if definition.get("anonymousMechanism") == "gossip":
        definition.pop("anonymousMechanism")
    if definition.get("mechanism") == "gossip":
        for field in ("anonymousMechanism", "audit", "burst", "leaseSize", "leaseTtlMillis", "reclaim", "onFailure"):
            definition.pop(field, None)
        if algorithm not in ("fixed_window", "sliding_window"):
            definition.pop("algorithm", None)
        for field in ("epsilon", "lowWatermark", "syncMillis"):
            definition.pop(field, None)
    elif "approximate" in (definition.get("mechanism"), definition.get("anonymousMechanism")):
        definition.pop("leaseTtlMillis", None)
        definition.pop("reclaim", None)
    else:
        for field in ("epsilon", "lowWatermark", "syncMillis"):
            definition.pop(field, None)
    if definition.get("onFailure") != "open":
        definition.pop("localCap", None)
    definition["limit"] = min(definition["limit"], 1_000)
    if definition.get("burst") is not None:
        definition["burst"] = min(definition["burst"], 1_000)
    for index, own in enumerate(definition.get("overrides") or []):
        own.update(key=f"{index}", limit=min(own["limit"], 1_000))


def tell_apart(checks):
    """No key of a limit is checked twice in one call; every other check is of a limit that there is."""
    for index, check in enumerate(checks):
        check["key"] = f"{index}"
        if known := every_other(limits):
            check["limit"] = unquote(known[0])


def number(message):
    """Whoever says which lease a message is about also says its place among the messages, as the description does in words."""
    if message.get("leaseId") is not None and message.get("sequence") is None:
        message["sequence"] = 1


def use_a_limit(case):
    """Every other call about one limit is about one that there is."""
    if known := every_other(limits):
        aim(case, "name", *known)


def schedule(job):
    """A schedule and a zone that there are, and nothing that doesn't go together, which the description says in words. Workers take
    it: nothing is sent anywhere."""
    job.update(target={"worker": {"queue": "q"}}, schedule="@daily", timeZone="Europe/Berlin")
    if job.get("guarantee") == "at_most_once":
        job.pop("retry", None)
    use_calendars(job)


def use_calendars(body):
    """A calendar that was put, and once: those that a schema makes up aren't there."""
    used = body.pop("calendars", None)
    if used and calendars:
        body["calendars"] = [{"name": unquote(calendars[-1][0]), "policy": used[0]["policy"]}]


def name_days(calendar):
    """Days have a language of their own."""
    texts = ["2026-12-25", "2026-12-24..2027-01-02", "12-25", "12-24..01-02", "SAT", "sat..SUN"]
    for index, day in enumerate(calendar.get("days", [])):
        day["day"] = texts[index % len(texts)]


def use_a_job(case):
    """Every other call about one job is about one that there is."""
    if known := every_other(jobs):
        aim(case, "name", *known)


def use_an_attempt(case):
    """Every other word about an attempt is about one that was begun, with its token."""
    if known := every_other(attempts):
        case.path_parameters["runId"], case.body["fencingToken"] = known


def use_a_run(case):
    """Every other call about one run is about one that there is."""
    if known := every_other(runs):
        case.path_parameters["runId"] = known


def ask_for_times(preview):
    """Texts with a language of their own, which a schema can't say: a schedule, a time zone; a name for its hash."""
    global calls
    schedules = ["* * * * *", "30 2 13 * FRI", "*/10 H 0 L * ?", "@every 90s", "0 0 30 2 *", "H H(0-5) LW * 5#3"]
    with lock:
        calls += 1
        preview["schedule"] = schedules[calls % len(schedules)]
    if not preview.get("name"):
        preview["name"] = "job"
    if preview.get("timeZone") is not None:
        preview["timeZone"] = "Europe/Berlin"
    preview.pop("calendars", None)


def opaque(parameters):
    """Contexts and cursors are the server's to make: a made-up one is refused, so it is left out. Waits are short."""
    for name in ("after", "context", "cursor"):
        parameters.pop(name, None)
    if "waitMillis" in parameters:
        parameters["waitMillis"] = WAIT_MILLIS_MAX


def count(write, query):
    """A counter's write adds, or reports its writer's total; one that only grows is never taken from."""
    if write.get("total") is not None:
        write.pop("add", None)
        write.setdefault("writer", None)
        write["writer"] = write["writer"] or "writer"
    elif write.get("add") is None:
        write["add"] = 1
    if (query or {}).get("kind") == "grow-counter":
        if write.get("add") is not None:
            write["add"] = abs(write["add"])
        if write.get("total") is not None:
            write["total"]["taken"] = 0


def disjoint(write):
    """Elements that are added aren't removed in the same write, there are few of them, and each has something in it."""
    few = lambda elements, mark: [f"{mark}{element}"[:200] for element in (elements or [])][:8]
    write["add"], write["remove"] = few(write.get("add"), "a"), few(write.get("remove"), "r")


def put_together(write):
    """A map's write: a few changes of each kind."""
    for kind in ("counters", "growCounters", "sets", "registers", "multiValues"):
        fields = list((write.get(kind) or {}).values())[:3]
        write[kind] = {f"field-{number}": value for number, value in enumerate(fields)}
    write["growCounters"] = {name: abs(amount) for name, amount in write["growCounters"].items()}
    for elements in write["sets"].values():
        disjoint(elements)
        del elements["add"][2:], elements["remove"][2:]
    removed = [field for field in write.get("remove") or [] if field["kind"] != "set"]
    write["remove"] = removed[:4]
    write["counters"]["always"] = 1


def whole(value):
    """JSON Schema counts 1.0 as an integer. Baton doesn't: a count that needs a fraction is a mistake."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    return value


def inner_calls(body):
    """The calls of a batch, if it is one."""
    calls = body.get("calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def every_other(known):
    """One of those for every other call, if there are any."""
    global calls
    with lock:
        calls += 1
        return None if calls % 2 or not known else known[calls // 2 % len(known)]


def aim(case, parameter, key, namespace):
    case.path_parameters[parameter] = key
    query = dict(case.query or {})
    query.pop("namespace", None)
    if namespace is not None:
        query["namespace"] = namespace
    case.query = query


def use_a_grant(case):
    """Every other call about one lock is about one that is held, with the tokens of its grant."""
    if grant := every_other(grants):
        key, namespace, token, owner = grant
        aim(case, "lockKey", key, namespace)
        if isinstance(case.body, dict) and "lockToken" in case.body:
            case.body.update(lockToken=token, ownerId=owner)


def use_a_claim(case):
    """Every other call about one claim is about one that was made, with its token."""
    if claim := every_other(claims):
        key, namespace, token = claim
        aim(case, "onceKey", key, namespace)
        if isinstance(case.body, dict) and "claimToken" in case.body:
            case.body.update(claimToken=token)


@schemathesis.hook
def before_call(context, case, kwargs):
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    path = case.operation.path
    if positive:
        if isinstance(case.body, dict):
            case.body = whole(case.body)
            for place, call in enumerate(inner_calls(case.body)):
                call["id"] = place  # each of its own, which a schema has no words for
                if isinstance(call.get("call"), dict):
                    agree(call["call"].get("acquire"))
            if path.endswith("/acquire"):
                agree(case.body)
            if path == "/v1/limits/{name}":
                define(case.body)
            if path == "/v1/jobs/{name}":
                schedule(case.body)
            if path == "/v1/calendars/{name}":
                name_days(case.body)
            if path.endswith("/backfill"):
                case.body.update({"from": 1_700_000_000_000, "to": 1_700_000_000_000 + 86_400_000})
            if path == "/v1/jobs:preview":
                ask_for_times(case.body)
            if path == "/v1/limits/{name}/lease":
                number(case.body)
            if path == "/v1/limits:check":
                tell_apart(case.body.get("checks", []))
        if path.startswith(("/v1/counters", "/v1/sets", "/v1/registers", "/v1/maps", "/v1/presence")):
            case.query = dict(case.query or {})
            opaque(case.query)
            if isinstance(case.body, dict):
                opaque(case.body)
                if path.startswith("/v1/counters"):
                    count(case.body, case.query)
                if path.startswith("/v1/sets"):
                    disjoint(case.body)
                    case.body["add"] = case.body["add"] or ["a"]
                if path.startswith("/v1/maps"):
                    put_together(case.body)
        if "{lockKey}" in path and not path.endswith("/acquire"):
            use_a_grant(case)
        if "{onceKey}" in path:
            use_a_claim(case)
        if path.startswith("/v1/limits/{name}/"):
            use_a_limit(case)
        if path.startswith("/v1/jobs/{name}/"):
            use_a_job(case)
        if "{runId}" in path:
            use_a_run(case)
            if isinstance(case.body, dict) and "fencingToken" in case.body:
                use_an_attempt(case)
        if path == "/v1/workers/{queue}/claim":
            case.path_parameters["queue"] = "q"
    if isinstance(case.body, dict):
        shorten(case.body, by_default=path.endswith("/campaign"))
        for call in inner_calls(case.body):
            if isinstance(call.get("call"), dict):
                shorten(call["call"].get("acquire"))


@schemathesis.hook
def after_call(context, case, response):
    namespace = (case.query or {}).get("namespace")
    if case.operation.path == "/v1/once/{onceKey}" and response.status_code == 200:
        claim = response.json()
        if claim.get("first"):
            with lock:
                claims.append((case.path_parameters["onceKey"], namespace, claim["claimToken"]))
                del claims[:-GRANTS_MAX]
    if case.operation.path == "/v1/limits/{name}" and case.method == "PUT" and response.status_code == 200:
        with lock:
            limits.append((quote(response.json()["name"], safe=""), namespace))
            del limits[:-GRANTS_MAX]
    if case.operation.path == "/v1/jobs/{name}" and case.method == "PUT" and response.status_code == 200:
        with lock:
            jobs.append((quote(response.json()["name"], safe=""), namespace))
            del jobs[:-GRANTS_MAX]
    if case.operation.path == "/v1/calendars/{name}" and case.method == "PUT" and response.status_code == 200:
        with lock:
            calendars.append((quote(response.json()["name"], safe=""), namespace))
            del calendars[:-GRANTS_MAX]
    if case.operation.path == "/v1/jobs/{name}/run" and response.status_code == 200:
        with lock:
            runs.append(response.json()["runId"])
            del runs[:-GRANTS_MAX]
    if case.operation.path == "/v1/workers/{queue}/claim" and response.status_code == 200:
        if run := response.json().get("run"):
            with lock:
                attempts.append((run["runId"], run["fencingToken"]))
                del attempts[:-GRANTS_MAX]
    if response.status_code == 200:
        granted = []
        if case.operation.path.endswith("/acquire"):
            granted = [response.json()]
        if case.operation.path.endswith(":acquireAll"):
            granted = response.json()["grants"]
        with lock:
            for grant in granted:
                key = quote(grant["lockKey"], safe="")  # as it is in a path
                grants.append((key, namespace, grant["lockToken"], grant["ownerId"]))
            del grants[:-GRANTS_MAX]
