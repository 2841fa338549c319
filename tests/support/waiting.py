"""Waiting for a condition, with a limit."""

import os
import threading
import time
from collections.abc import Callable

from tests.support.serving import LIMIT


def wait_for_ended_threads() -> None:
    """Return when the threads that Python has joined no longer exist.

    OpenSSL has a lock at the end of a thread. A process that is forked then would never get it.
    """
    wait_until(lambda: len(os.listdir("/proc/self/task")) == len(threading.enumerate()))


def wait_until(condition: Callable[[], bool], seconds: float = LIMIT) -> None:
    """Return when the condition is true; fail after this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition is still false after {seconds} seconds"
        time.sleep(0.01)
