"""Functions in threads of their own."""

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar

from .base import StoreUnavailable
from .deadline import restart

# The seconds that a function may take, also after the deadline of its callers.
_TIMEOUT = 60

_T = TypeVar("_T")


def start(function: Callable[..., _T], *arguments: Any, **options: Any) -> Future[_T]:
    """Call a function in a new thread, and return its future result.

    The thread has the context variables of this one, and a deadline of its own. It does not delay
    the end of the process, unlike those of a ThreadPoolExecutor.

    :raises StoreUnavailable: if no thread can be started.
    """
    future: Future[_T] = Future()

    def run() -> None:
        restart(_TIMEOUT)
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
