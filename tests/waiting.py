"""Waiting for a condition, with a limit."""

import time
from collections.abc import Callable

from .serving import LIMIT


def wait_until(condition: Callable[[], bool], seconds: float = LIMIT) -> None:
    """Return when the condition is true; fail after this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition is still false after {seconds} seconds"
        time.sleep(0.01)
