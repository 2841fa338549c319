"""The deadline of an operation: the time at which it gives up, however many steps it has.

Whatever a request waits for in a store, such as a lane, a connection or a lock, it waits at most
until the deadline.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import TIMEOUT_MAX

_deadline: ContextVar[float] = ContextVar("deadline", default=TIMEOUT_MAX)
_waited: ContextVar[float] = ContextVar("waited", default=0.0)

#: The seconds of an operation, such as an add, or one page of an iteration.
OPERATION: float = 4.5
#: The seconds that a store has to answer ``/readyz``.
PING: float = 2.0


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Set the deadline of the operations in the block. If there is an earlier one, it stays.

    The time that the request has waited counts.
    """
    token = _deadline.set(time.monotonic() + remaining(seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def note_queued(seconds: float) -> None:
    """Set the time that the request of the current thread has waited for this thread."""
    _waited.set(seconds)


def remaining(most: float) -> float:
    """Return the seconds that an operation may take that begins now, at least 0.

    :param most: the seconds without an earlier deadline, and if its request has not waited.
    """
    return max(0.0, min(most - _waited.get(), _deadline.get() - time.monotonic()))
