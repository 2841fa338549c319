"""Functions in the background: their callers wait for them until the deadline at most."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from copy import copy
from threading import Lock
from typing import Any

from ..stores.base import StoreUnavailable
from ..stores.deadline import TIMEOUT, remaining, start


def finished(future: Future[Any]) -> bool:
    """Wait until a function has finished, and return False if the deadline passes first."""
    try:
        future.exception(remaining())
    except TimeoutError:
        return False
    return True


class Background:
    """Calls functions in threads, one after the other.

    Concurrent callers of one function share one call of it.
    """

    def __init__(self) -> None:
        self._turn = Lock()
        self._lock = Lock()
        # The calls in progress, and when they began.
        self._running: dict[Callable[[], None], tuple[Future[None], float]] = {}

    def call(self, function: Callable[[], None]) -> None:
        """Call a function, or wait for the call that is in progress.

        :raises StoreUnavailable: if the deadline passes, and the call continues; or if the call has
            taken longer than the time of an operation, and less than half of this time is left.
        """
        with self._lock:
            if function not in self._running:
                self._running[function] = start(self._run, function), time.monotonic()
            running, began = self._running[function]
        if not finished(running):
            raise StoreUnavailable("the first use of the database has not finished yet")
        error = running.exception()
        if error is not None:
            raise copy(error) from error  # Each thread needs an exception of its own.
        # On a slow server, the operation would fail and close the only connection.
        if time.monotonic() - began > TIMEOUT and remaining() < TIMEOUT / 2:
            raise StoreUnavailable("the first use of the database has just finished; try again")

    def _run(self, function: Callable[[], None]) -> None:
        try:
            with self._turn:
                function()
        finally:
            with self._lock:
                self._running.pop(function, None)
