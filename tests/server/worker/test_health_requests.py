"""The health of a service whose threads are all busy."""

import sqlite3
from contextlib import closing

import pytest

from tests.support.serving import Gunicorn, post, promptly
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server


def test_health_while_all_threads_are_busy(url: str) -> None:
    """/healthz and /readyz are answered while all threads wait for a locked SQLite file."""
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": f"{url}?timeout=60"}
    with Gunicorn(**settings) as server, server.clients(16) as clients:
        assert server.request(post(new_rose())).status == 200
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            for client in clients:
                client.send(post(new_rose()))
            for path in (b"/healthz", b"/readyz"):
                request = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path
                assert promptly(server, request).status == 200
            assert not any(client.has_response(0) for client in clients)
        assert {client.receive().status for client in clients} == {200}


def test_connections_that_are_all_busy(url: str) -> None:
    """While all connections wait for the store, none is closed, and others are accepted later."""
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": f"{url}?timeout=60"}
    options = ("--threads=2", "--worker-connections=2", "--log-level=debug")
    with Gunicorn(*options, **settings) as server, server.clients(2) as clients:
        server.wait_for("The store can be used")
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            for client in clients:
                client.send(post(new_rose()))
            wait_until(lambda: server.log.count("POST /plants") == 2)
            late = server.connect()
            late.send(post(new_rose()))
            server.wait_for("Connections had to wait: all of them are busy")
        assert [client.receive().status for client in (*clients, late)] == [200] * 3
        assert server.log.count("Connections had to wait") < 10
        late.reset()
