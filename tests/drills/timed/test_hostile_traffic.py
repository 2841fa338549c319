"""Slow clients: many more than the service has threads."""

import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.support.clients import timed
from tests.support.serving import Connection, Gunicorn, post
from tests.support.sites import TOKEN, new_rose

pytestmark = pytest.mark.drill

# Parts of requests, which this number of clients sends.
PARTS, SLOW = (post(new_rose())[:60], post(b"", length=10)), 1000
# The time in which 99 of 100 well-behaved clients get their response, in seconds.
P99 = 1.0


def test_slow_clients(url: str) -> None:
    """With 1,000 clients that send a part of a request, 99 of 100 others are served in a second."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))

    def send(request: bytes) -> Connection:
        connection = server.connect()
        connection.send(request)
        return connection

    def create(_: int) -> float:
        response, seconds = timed(lambda: server.request(post(new_rose())))
        assert response.status == 200
        return seconds

    with (
        Gunicorn("-w", "2", PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_STORE=url) as server,
        ExitStack() as slow,
        ThreadPoolExecutor(8) as threads,
    ):
        for connection in threads.map(send, PARTS * (SLOW // 2)):
            slow.enter_context(connection)
        seconds = sorted(threads.map(create, range(200)))
        assert "Traceback" not in server.log
    assert seconds[197] < P99, seconds[190:]
