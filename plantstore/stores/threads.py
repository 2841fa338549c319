"""Functions in threads of their own. Their callers wait for them until the deadline at most."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from copy import copy
from threading import Lock, Thread
from typing import Any, TypeVar

from .base import StoreUnavailable
from .deadline import deadline, remaining

_T = TypeVar("_T")


def start(function: Callable[..., _T], *arguments: Any, **options: Any) -> Future[_T]:
    """Call a function in a new thread, and return its future result.

    The thread does not delay the end of the process, unlike those of a ThreadPoolExecutor.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments, **options))
        except BaseException as error:  # noqa: BLE001  # The caller gets it.
            future.set_exception(error)

    Thread(target=run, name=f"plantstore {function.__name__}", daemon=True).start()
    return future


class Background:
    """Calls functions in threads. Concurrent callers of one function share one call of it.

    :param timeout: the seconds that a function may take, also after the deadline of its callers.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = Lock()
        self._running: dict[Callable[[], None], Future[None]] = {}

    def call(self, function: Callable[[], None]) -> None:
        """Call a function, or wait for the call that is in progress.

        :raises StoreUnavailable: if the deadline passes. The call continues.
        """
        with self._lock:
            if function not in self._running:
                self._running[function] = start(self._run, function)
            running = self._running[function]
        if not wait([running], remaining()).done:
            raise StoreUnavailable("the first use of the database has not finished yet")
        error = running.exception()
        if error is not None:
            raise copy(error) from error  # Each thread needs an exception of its own.

    def _run(self, function: Callable[[], None]) -> None:
        try:
            with deadline(self._timeout):
                function()
        finally:
            with self._lock:
                del self._running[function]
