"""Waiting for a condition, with a limit."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.serving import LIMIT, listening


def wait_until(condition: Callable[[], bool], seconds: float = LIMIT) -> None:
    """Return when the condition is true; fail after this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition is still false after {seconds} seconds"
        time.sleep(0.01)


def wait_for_more(number: Callable[[], int], more: int = 1, seconds: float = LIMIT) -> None:
    """Return when a number has grown by so many; fail after this time."""
    enough = number() + more
    wait_until(lambda: number() >= enough, seconds)


def suspend(process: int) -> None:
    """Send SIGSTOP to a process, and return when it is suspended, and so handles nothing more."""
    os.kill(process, signal.SIGSTOP)
    wait_until(lambda: state(process) in "TZ")


def state(process: int) -> str:
    """Return the state of a process, as one letter of proc(5): T is stopped, Z has ended."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]


def has_ended(process: int) -> bool:
    """Return whether a process has ended."""
    try:
        return state(process) == "Z"
    except FileNotFoundError:
        return True


@contextmanager
def program(port: int, command: Sequence[Any], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program for the duration of the block, in which it listens on a port."""
    with subprocess.Popen(command, **options) as process:
        try:
            wait_until(lambda: process.poll() is not None or listening(port))
            assert process.poll() is None, "the program has ended"
            yield process
        finally:
            process.terminate()
            process.wait(LIMIT)
