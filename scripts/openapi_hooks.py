"""Makes generated requests reach further: short waits, real grants, and what a schema can't say.

A request that is meant to be refused is sent as generated, apart from the length of a valid wait.
"""

import threading

import schemathesis

WAIT_MILLIS_MAX = 50
GRANTS_MAX = 32

# Grants that acquires were answered with: (lockKey, namespace, lockToken, ownerId), the newest last.
grants = []
lock = threading.Lock()
calls = 0


def shorten(acquire):
    """Bounds the wait of one acquire, and leaves alone whatever isn't a valid wait."""
    if not isinstance(acquire, dict) or acquire.get("wait") is not True:
        return
    wait = acquire.get("waitTimeoutMillis")
    if wait is None or (type(wait) is int and WAIT_MILLIS_MAX < wait <= 600_000):
        acquire["waitTimeoutMillis"] = WAIT_MILLIS_MAX


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


def use_a_grant(case):
    """Every other call about one lock is about one that is held, with the tokens of its grant."""
    global calls
    with lock:
        calls += 1
        if calls % 2 or not grants:
            return
        key, namespace, token, owner = grants[calls // 2 % len(grants)]
    case.path_parameters["lockKey"] = key
    query = dict(case.query or {})
    query.pop("namespace", None)
    if namespace is not None:
        query["namespace"] = namespace
    case.query = query
    if isinstance(case.body, dict) and "lockToken" in case.body:
        case.body.update(lockToken=token, ownerId=owner)


@schemathesis.hook
def before_call(context, case, kwargs):
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    path = case.operation.path
    if positive:
        if isinstance(case.body, dict):
            case.body = whole(case.body)
            for number, call in enumerate(inner_calls(case.body)):
                call["id"] = number  # each of its own, which a schema has no words for
        if "{lockKey}" in path and not path.endswith("/acquire"):
            use_a_grant(case)
    if isinstance(case.body, dict):
        shorten(case.body)
        for call in inner_calls(case.body):
            if isinstance(call.get("call"), dict):
                shorten(call["call"].get("acquire"))


@schemathesis.hook
def after_call(context, case, response):
    if case.operation.path.endswith("/acquire") and response.status_code == 200:
        grant = response.json()
        namespace = (case.query or {}).get("namespace")
        with lock:
            grants.append((case.path_parameters["lockKey"], namespace, grant["lockToken"], grant["ownerId"]))
            del grants[:-GRANTS_MAX]
