"""Keeps generated calls short: a wait is a valid request, but the run shouldn't sit through ten minutes of it."""

import schemathesis

WAIT_MILLIS_MAX = 50


def shorten(acquire):
    """Bounds the wait of one acquire, and leaves alone whatever isn't a valid wait."""
    if not isinstance(acquire, dict) or acquire.get("wait") is not True:
        return
    wait = acquire.get("waitTimeoutMillis")
    if wait is None or (type(wait) is int and wait > WAIT_MILLIS_MAX and wait <= 600_000):
        acquire["waitTimeoutMillis"] = WAIT_MILLIS_MAX


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if not isinstance(body, dict):
        return
    shorten(body)
    calls = body.get("calls")
    for call in calls if isinstance(calls, list) else []:
        inner = call.get("call") if isinstance(call, dict) else None
        if isinstance(inner, dict):
            shorten(inner.get("acquire"))
