"""The names of gunicorn that it does not document, and that the worker needs."""

import select
from typing import Any

from gunicorn import sock, util
from gunicorn.http import message, unreader, wsgi
from gunicorn.workers.base import Worker

# What the worker calls, or waits with.
_NAMES: dict[Any, tuple[str, ...]] = {
    Worker: ("init_process", "notify"),
    message: ("Request",),
    unreader: ("IterUnreader",),
    wsgi: ("create",),
    sock: ("ssl_context",),
    util: ("http_date",),
    select: ("epoll",),
}


def missing_names() -> list[str]:
    """Return the names that the installed version of gunicorn, or the system, does not have."""
    return [
        f"{owner.__name__}.{name}"
        for owner, names in _NAMES.items()
        for name in names
        if not hasattr(owner, name)
    ]
