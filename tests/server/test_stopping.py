"""SIGTERM to a service whose log nobody reads."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.databases import children
from tests.support.serving import PATIENCE, ROOT, Connection, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import has_ended, program, wait_until

pytestmark = pytest.mark.server


@contextmanager
def blocked() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a service whose log is a full pipe that nobody reads; yield its process and its port."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--graceful-timeout=2", f"--bind=127.0.0.1:{port}"]
    settings = {**os.environ, "PLANTSTORE_TOKENS": TOKEN}
    reading, writing = os.pipe()
    with (
        open(reading, "rb"),
        open(writing, "wb", buffering=0) as log,
        program(port, command, cwd=ROOT, env=settings, stdout=log, stderr=log) as process,
    ):
        try:
            with Connection(port) as connection:
                assert connection.request(post(new_rose())).status == 200
            fill(writing)
            yield process, port
        finally:
            process.kill()


def fill(pipe: int) -> None:
    """Fill a pipe, without a change of what the file descriptor itself does."""
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    other = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    with open(other, "wb", buffering=0) as file:
        while file.write(b" "):
            pass


def test_stop_while_nobody_reads_the_log() -> None:
    """SIGTERM ends the main process and its workers in time, although all threads are blocked."""
    with blocked() as (process, port), Connection(port) as connection:
        connection.send(post(b"["))  # Its refusal is a line of the log.
        assert not connection.has_response(1)
        workers = children(process.pid)
        process.terminate()
        connection.has_response(1.5)
        process.terminate()  # It does not extend the time.
        wait_until(lambda: process.poll() is not None, 3 + PATIENCE)
        wait_until(lambda: all(map(has_ended, workers)))
        assert len(workers) == 1
