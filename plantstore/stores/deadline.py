"""The deadline of an operation: the time at which it gives up, however many steps it has."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import TIMEOUT_MAX

#: The seconds that an operation may wait. The client then gets 503 within five seconds.
TIMEOUT = 4.5

# The seconds that an operation has at least, although its request has waited. A database that works
# needs less.
_LEAST = 0.4

_deadline: ContextVar[float] = ContextVar("deadline", default=TIMEOUT_MAX)
_waited: ContextVar[float] = ContextVar("waited", default=0.0)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Set the deadline of the operation in the block. If there is an earlier one, it stays.

    The time that the request has waited counts.
    """
    seconds = max(seconds - _waited.get(), min(seconds, _LEAST))
    token = _deadline.set(min(time.monotonic() + seconds, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


def set_waited(seconds: float) -> None:
    """Set the time that the request of the current thread has waited for this thread."""
    _waited.set(seconds)


def restart(seconds: float) -> None:
    """Set the deadline of the current thread, which has inherited that of another one."""
    _waited.set(0.0)
    _deadline.set(time.monotonic() + seconds)


def remaining() -> float:
    """Return the seconds until the deadline, at least 0. Without one, it is a very long time."""
    return max(0.0, _deadline.get() - time.monotonic())
