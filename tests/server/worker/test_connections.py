"""Connections: how many there are, how long each stays open, and what is served meanwhile."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.reloading import memory, workers
from tests.support.serving import (
    LIMIT,
    PATIENCE,
    SMALL_BUFFERS,
    Connection,
    Gunicorn,
    chunk,
    chunked,
    configured,
    constants,
    listening,
    post,
    promptly,
)
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import suspend, wait_until

pytestmark = pytest.mark.server

CLOSE = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def in_chunks(body: bytes) -> bytes:
    """Return the bytes of a create request in two chunks, with extensions and trailers."""
    first = chunk(body[:9]).replace(b"\r\n", b" ;x=y\r\n", 1)
    return chunked(first, chunk(body[9:]), b"000;x\r\nX: y\r\nZ: \r\n\r\n")


@pytest.mark.parametrize("build", [post, in_chunks])
def test_pipelined_request_in_pieces(server: Gunicorn, build: Callable[[bytes], bytes]) -> None:
    """Pipelined requests in pieces get their responses, also if the client then sends no more."""
    for cut in range(1, len(build(new_rose()))):
        with server.connect() as connection:
            connection.limit(PATIENCE)
            request = build(new_rose())
            assert connection.request(post(new_rose()) + request[:cut]).status == 200
            connection.send(request[cut:] + post(new_rose()))
            connection.finish()
            assert [connection.receive().status for _ in range(2)] == [200, 200]
            assert connection.closed()


def heads(fields: Iterable[int], size: int) -> list[bytes]:
    """Return a request for each number of header fields, whose values have this size together."""
    rows = [[b"%d:%b\r\n" % (name, b"x" * (size // it)) for name in range(it)] for it in fields]
    return [b"GET / HTTP/1.1\r\nHost:x\r\n%b\r\n" % b"".join(row) for row in rows]


LARGE = {
    "head": heads([7, 7, 7], 56_000),
    "heads": heads(range(1, 40), 1500),
    "lines": heads(range(1, 25), 0),
    "body": [post(b'{"id":"%b"}' % (b"x" * 60_000))] * 3,
}


@pytest.mark.parametrize("requests", LARGE.values(), ids=LARGE)
def test_memory_of_idle_connections(tmp_path: Path, requests: list[bytes]) -> None:
    """A client that waits after large requests, or many different ones, needs little memory."""
    with configured(tmp_path, "keepalive = 1000") as server, ExitStack() as clients:
        server.request(requests[0])
        before = memory(server)
        for _ in range(200):
            client = clients.enter_context(server.connect())
            assert {client.request(request).error for request in requests} <= {40003, 40401}
        assert memory(server) - before < 8e6


def test_large_field_after_a_small_one(server: Gunicorn) -> None:
    """A field that is too large is refused, whatever was sent before it."""
    with server.connect() as connection:
        requests = [post(new_rose(), f"X: {'x' * size}") for size in (1, 9000)]
        assert [connection.request(request).status for request in requests] == [200, 431]


def test_lines_without_a_limit(tmp_path: Path) -> None:
    """An operator can switch off gunicorn's limits of the lines of a head."""
    with configured(tmp_path, "limit_request_line = limit_request_field_size = 0") as server:
        assert server.request(post(new_rose())).status == 200


def test_limit_of_connections(tmp_path: Path) -> None:
    """At the limit of connections that are open, the one that has waited longest is closed."""
    limits = ("worker_connections = 10", constants(_READ_TIMEOUT=1000, _LINGER_TIMEOUT=1000))
    with configured(tmp_path, *limits) as server:
        server.wait_for("The store can be used")
        idle = sockets(server)
        for _ in range(10):
            with server.connect() as last:
                last.limit(PATIENCE)
                assert last.request(CLOSE).status == 404
                assert last.closed()
            assert promptly(server, post(new_rose())).status == 200
            reset = server.connect()
            reset.send(b"P")
            reset.reset()
        with server.clients(2) as (oldest, second):
            assert promptly(server, CLOSE).status == 404
            wait_until(lambda: sockets(server) == idle + 2)  # The others have ended.
            with server.clients(9) as others:
                assert oldest.has_response(PATIENCE)  # It is closed.
                for connection in (second, *others):
                    assert connection.request(post(new_rose())).status == 200


def test_new_connection_at_the_limit(tmp_path: Path) -> None:
    """At the limit of connections, clients that hold requests do not let new ones be closed."""
    limits = ("worker_connections = 10", constants(_READ_TIMEOUT=LIMIT))
    head = post(b"", "Expect: 100-continue", length=5)
    with configured(tmp_path, *limits) as server, server.clients(10, head) as holders:
        assert {holder.receive_head().status for holder in holders} == {100}
        with server.connect() as new, server.clients(2):
            assert promptly(server, CLOSE).status == 404
            assert new.request(post(new_rose())).status == 200


@pytest.mark.parametrize("flood", [b"", b"P"], ids=["nothing", "a byte"])
def test_connections_of_others_do_not_end_an_upload(tmp_path: Path, flood: bytes) -> None:
    """At the limit of connections, one whose client goes on sending a request is not closed."""
    limits = ("worker_connections = 30", constants(_READ_TIMEOUT=LIMIT))
    with configured(tmp_path, *limits) as server, server.clients(10) as uploads:
        body = new_rose().ljust(1000)
        for upload in uploads:
            upload.send(post(b"", "Expect: 100-continue", length=len(body)))
            assert upload.receive_head().status == 100
        for position in range(0, 1000, 100):
            for upload in uploads:
                upload.send(body[position : position + 100])
            with server.clients(25, flood):
                assert promptly(server, CLOSE).status == 404
        # The first one creates the plant.
        assert sorted(upload.receive().status for upload in uploads) == [200] + [400] * 9


def sockets(server: Gunicorn) -> int:
    """Return the number of sockets that the only worker has open."""
    (process,) = workers(server)
    links = []
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # It has just been closed.
            links.append(str(file.readlink()))
    return sum(link.startswith("socket:") for link in links)


def test_idle_connections_are_closed(tmp_path: Path) -> None:
    """A connection on which no request arrives is closed after some time: a new and a used one."""
    timeouts = ("keepalive = 1", constants(_READ_TIMEOUT=0.5))
    with configured(tmp_path, *timeouts) as server, server.clients(2) as (new, old):
        assert old.request(post(new_rose())).status == 200
        for connection in (new, old):
            connection.limit(PATIENCE)
            assert connection.closed()


def test_slow_request_on_a_used_connection(tmp_path: Path) -> None:
    """A later request has as much time as the first one: for its head, and again for its body."""
    timeouts = ("keepalive = 1", constants(_READ_TIMEOUT=6.5))
    with configured(tmp_path, *timeouts) as server, server.connect() as connection:
        assert connection.request(post(new_rose())).status == 200
        body = new_rose()
        for part in (b"P", post(b"", length=len(body))[1:]):
            connection.send(part)
            assert not connection.has_response(4)
        assert connection.request(body).status == 200


@contextmanager
def large_response(folder: Path, *lines: str) -> Iterator[tuple[Gunicorn, Connection]]:
    """Run a service, and a client that has read nothing of its large response."""
    lines = (SMALL_BUFFERS, *lines)
    with (
        configured(folder, *lines, PLANTSTORE_MAX_BODY="2000000") as server,
        server.connect(unread=1) as reader,
    ):
        reader.send(post(b'{"id":1,"name":"%s"}' % (b"x" * 1_000_000)))
        yield server, reader


def test_response_that_is_read_slowly(tmp_path: Path) -> None:
    """A client that reads a large response slowly does not occupy a thread, and gets all of it."""
    timeout = constants(SEND_TIMEOUT=PATIENCE)
    with large_response(tmp_path, timeout) as (server, slow), server.connect() as other:
        other.limit(PATIENCE)
        for _ in range(3):
            assert slow.has_response(PATIENCE)
            slow.receive_line()
            assert other.request(post(new_rose())).status == 200
        assert slow.receive_rest(until=b'x"}').endswith(b"x" * 1000 + b'"}')


def test_connections_of_others_do_not_end_a_response(tmp_path: Path) -> None:
    """At the limit of connections, one whose client still reads a response is not closed."""
    limits = (constants(SEND_TIMEOUT=LIMIT), "worker_connections = 5")
    with large_response(tmp_path, *limits) as (server, reader):
        assert reader.has_response(LIMIT)
        with server.clients(10):
            assert promptly(server, post(new_rose())).status == 200
            assert len(reader.receive().body) > 1_000_000


def test_stop_with_open_connections(tmp_path: Path) -> None:
    """SIGTERM finishes requests, opens no connection, and closes an idle one within seconds."""
    body = new_rose()
    with (
        configured(tmp_path, constants(_READ_TIMEOUT=1000)) as server,
        server.clients(3) as (idle, late, reading),
    ):
        reading.send(post(b"", "Expect: 100-continue", length=len(body)))
        assert reading.receive_head().status == 100
        reading.send(body[:5])
        server.process.terminate()
        wait_until(lambda: not listening(server.port))
        late.send(post(body)[:20])
        idle.limit(PATIENCE)
        assert idle.closed()
        # Their time is not shorter than without the signal.
        assert not reading.has_response(1)
        assert reading.request(body[5:]).status == 200
        assert late.request(post(body)[20:]).error == 40004
        wait_until(lambda: server.process.poll() is not None, PATIENCE)


def test_stop_with_a_request_that_does_not_arrive(tmp_path: Path) -> None:
    """After SIGTERM, the service waits for the rest of a request only as long as before."""
    with (
        configured(tmp_path, constants(_READ_TIMEOUT=3)) as server,
        server.clients(2) as (head, body),
    ):
        server.wait_for("The store can be used.")  # gunicorn may lose an earlier signal.
        head.send(b"P")
        body.send(post(b"", length=9))
        server.process.terminate()
        assert body.receive().error == 40002
        assert head.closed()
        wait_until(lambda: server.process.poll() is not None, PATIENCE)


def test_stop_with_connections_that_are_not_yet_accepted(tmp_path: Path) -> None:
    """After SIGTERM, requests get their responses whose connections the worker has not accepted."""
    with configured(tmp_path) as server:
        assert promptly(server, post(new_rose())).status == 200
        (process,) = workers(server)
        suspend(process)
        with server.clients(5, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as clients:
            server.process.terminate()
            wait_until(lambda: is_pending(signal.SIGTERM, process))
            os.kill(process, signal.SIGCONT)
            assert [connection.receive().status for connection in clients] == [404] * 5


def is_pending(number: signal.Signals, process: int) -> bool:
    """Return whether a process has not yet handled a signal that was sent to it."""
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(status.partition("ShdPnd:")[2].split()[0], 16) & 1 << number - 1)


def test_client_that_does_not_close(tmp_path: Path) -> None:
    """If a client does not close a connection that the service has closed, it is disconnected."""
    with configured(tmp_path) as server, server.connect() as connection:
        assert connection.request(CLOSE).status == 404
        wait_until(lambda: not connection.send_what_is_read(b"x"), PATIENCE)


def test_endless_body_of_a_refused_request(server: Gunicorn) -> None:
    """A client that sends a body without end after its refusal is disconnected."""
    with server.connect() as connection:
        connection.send(post(b"", length=10**15))
        with pytest.raises(ConnectionError):
            connection.send(b" " * (64 << 20))


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
