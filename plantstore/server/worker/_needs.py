"""The names of gunicorn that it does not document, and that the worker needs."""

from collections.abc import Iterator
from typing import Any

from gunicorn.workers import gthread

# Methods that the worker overrides or calls, and attributes that it uses.
_WORKER = (
    "_cap_keepalive",
    "_keepalive_after",
    "accept",
    "alive",
    "cfg",
    "enqueue_req",
    "finish_request",
    "handle",
    "handle_error",
    "handle_request",
    "init_process",
    "log",
    "method_queue",
    "murder_pending",
    "nr_conns",
    "poller",
    "sockets",
    "tpool",
    "worker_connections",
)
_CONNECTION = ("client", "close", "data_ready", "initialized", "parser", "sock")


def missing_names() -> list[str]:
    """Return the names that the installed version of gunicorn does not have."""
    needs = {"ThreadWorker": _WORKER, "TConn": _CONNECTION}
    found = {kind: {*_names(getattr(gthread, kind, object))} for kind in needs}
    return [f"{kind}.{name}" for kind in needs for name in needs[kind] if name not in found[kind]]


def _names(kind: type[Any]) -> Iterator[str]:
    """Return the names of the methods of a class, and of the attributes that its __init__ sets."""
    yield from dir(kind)
    for base in kind.__mro__:
        code = getattr(vars(base).get("__init__"), "__code__", None)
        yield from () if code is None else code.co_names
