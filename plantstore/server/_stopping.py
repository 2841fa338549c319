"""A stop (SIGTERM) that ends the service in time, although a log that nobody reads blocks it."""

import atexit
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any


def limit_stops(server: Any) -> None:
    """Let SIGTERM end the service within its ``graceful_timeout`` and a second.

    gunicorn does so too, but writes to the log first.

    :param server: the main process of gunicorn.
    """
    server.signal = partial(_handle, server, server.signal)


def _handle(server: Any, queue: Callable[..., None], number: int, frame: object) -> None:
    """Handle a signal, also while the main process waits for the reader of its log."""
    queue(number, frame)
    is_first = signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    # A new worker has this handler for a moment.
    if number == signal.SIGTERM and is_first and os.getpid() == server.pid:
        atexit.register(signal.alarm, 0)  # Python's own end has no handlers any more.
        _alarm(1, partial(_stop_workers, server))


def _stop_workers(server: Any, *_: object) -> None:
    if server.LISTENERS:  # The log blocks gunicorn: it closes them before it stops the workers.
        _kill_workers(server, signal.SIGTERM)
    _alarm(max(server.cfg.graceful_timeout, 1), partial(_end, server))


def _end(server: Any, *_: object) -> None:
    _kill_workers(server, signal.SIGKILL)
    os._exit(1)


def _kill_workers(server: Any, number: int) -> None:
    for worker in [*server.WORKERS]:
        with suppress(ProcessLookupError):
            os.kill(worker, number)


def _alarm(seconds: int, handle: Callable[..., None]) -> None:
    signal.signal(signal.SIGALRM, handle)
    signal.alarm(seconds)
