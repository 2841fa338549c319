"""The health of a service whose threads are all busy."""

import sqlite3
from contextlib import ExitStack, closing

import pytest

from tests.support.serving import Gunicorn, post, promptly
from tests.support.sites import TOKEN, new_rose

pytestmark = pytest.mark.server

# More than the threads of the service.
CLIENTS = 16


def test_health_while_all_threads_are_busy(url: str) -> None:
    """/healthz and /readyz are answered while all threads wait for a locked SQLite file."""
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": f"{url}?timeout=60"}
    with Gunicorn(**settings) as server, ExitStack() as connections:
        assert server.request(post(new_rose())).status == 200
        clients = [connections.enter_context(server.connect()) for _ in range(CLIENTS)]
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            for client in clients:
                client.send(post(new_rose()))
            for path in (b"/healthz", b"/readyz"):
                request = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path
                assert promptly(server, request).status == 200
            assert not any(client.has_response(0) for client in clients)
        assert {client.receive().status for client in clients} == {200}
