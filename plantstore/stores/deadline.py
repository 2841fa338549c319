"""The deadline of an operation: the time at which it gives up, however many steps it has.

A step that cannot be interrupted has a thread of its own, and its caller waits until the deadline.
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

# The seconds that an operation has at least, although its request has waited. A database that works
# needs less.
_LEAST = 0.4

# The seconds that a function in a thread may take, also after the deadline of its caller.
_THREAD_TIMEOUT = 60

_T = TypeVar("_T")

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


def start(function: Callable[..., _T], *arguments: Any, **options: Any) -> Future[_T]:
    """Call a function in a new thread, and return its future result.

    The thread has the context variables of this one, and a deadline of its own. It does not delay
    the end of the process, unlike those of a ThreadPoolExecutor.

    :raises StoreUnavailable: if no thread can be started.
    """
    future: Future[_T] = Future()

    def run() -> None:
        restart(_THREAD_TIMEOUT)
        try:
            future.set_result(function(*arguments, **options))
        except BaseException as error:  # noqa: BLE001  # The caller gets it.
            future.set_exception(error)

    try:
        name = f"plantstore {function.__name__}"
        Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    except RuntimeError as error:
        raise StoreUnavailable(f"cannot start a thread: {error}") from error
    return future
