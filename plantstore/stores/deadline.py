"""The deadline of an operation: the time at which it gives up, however many steps it has.

Only one place waits for a store with threads of its own, and it waits until the deadline.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import TIMEOUT_MAX, Thread
from typing import Any, TypeVar

from .base import StoreUnavailable

#: The seconds that an operation may wait. The client then gets 503 within five seconds.
TIMEOUT = 4.5

_T = TypeVar("_T")

_deadline: ContextVar[float] = ContextVar("deadline", default=TIMEOUT_MAX)
_waited: ContextVar[float] = ContextVar("waited", default=0.0)


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


def set_waited(seconds: float) -> None:
    """Set the time that the request of the current thread has waited for this thread."""
    _waited.set(seconds)


def remaining(most: float) -> float:
    """Return the seconds that an operation may take that begins now, at least 0.

    :param most: the seconds that it may take if its request has not waited for a thread, and if
        there is no earlier deadline.
    """
    return max(0.0, min(most - _waited.get(), _deadline.get() - time.monotonic()))


def start(function: Callable[..., _T], *arguments: Any) -> Future[_T]:
    """Call a function in a new thread, and return its future result.

    The thread has the context variables of this one, but neither its deadline nor the time that it
    has waited. It does not delay the end of the process, unlike those of a ThreadPoolExecutor.

    :raises StoreUnavailable: if no thread can be started.
    """
    future: Future[_T] = Future()

    def run() -> None:
        _waited.set(0.0)
        _deadline.set(TIMEOUT_MAX)
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001  # The caller gets it.
            future.set_exception(error)

    try:
        name = f"plantstore {function.__name__}"
        Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    except RuntimeError as error:
        raise StoreUnavailable(f"cannot start a thread: {error}") from error
    return future
