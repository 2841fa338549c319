"""Waiting for what is to come, and not for ever."""

import time
from collections.abc import Callable

from .serving import LIMIT


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once something is so."""
    until = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
