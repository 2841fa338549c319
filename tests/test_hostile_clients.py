"""Clients that are slow, hostile or broken do not stop the service, and lose no plant."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from .serving import Connection, Gunicorn, Response, chunk, chunked, post
from .sites import TOKEN, new_rose
from .waiting import wait_until

# More than the threads of the service.
CLIENTS = 16
# Seconds in which another client gets its response, on a busy machine.
PATIENCE = 8


@pytest.fixture
def server() -> Iterator[Gunicorn]:
    """Run the service under gunicorn, with a plant in its memory that must not be lost."""
    with Gunicorn("--log-level", "debug", PLANTSTORE_TOKENS=TOKEN) as server:
        assert server.request(post(b'{"id":1,"name":"Rose"}')).status == 200
        yield server
        assert promptly(server, post(b'{"id":1,"name":"Lily"}')).error == 40004
        assert server.log.count("Booting worker") == 1
        assert "Traceback" not in server.log
        assert TOKEN not in server.log


def promptly(server: Gunicorn, request: bytes) -> Response:
    """Return the response that another client gets in a reasonable time."""
    with server.connect() as connection:
        connection.limit(PATIENCE)
        connection.send(request)
        return connection.receive()


@pytest.fixture
def clients(server: Gunicorn) -> Iterator[list[Connection]]:
    """Return connections of hostile clients."""
    with ExitStack() as connections:
        yield [connections.enter_context(server.connect()) for _ in range(CLIENTS)]


def fill(connection: Connection) -> None:
    """Send requests, without reading a response, until the connection accepts no more."""
    connection.limit(2)
    with pytest.raises(TimeoutError):
        while True:
            connection.send(b"GET /plants HTTP/1.1\r\nHost: x\r\n\r\n" * 100)


# The configuration of the service, with small buffers for responses, so that a test fills them.
SMALL_BUFFERS = """
from socket import SO_SNDBUF, SOL_SOCKET
from plantstore.server.config import *

def when_ready(server):
    for listener in server.LISTENERS:
        listener.sock.setsockopt(SOL_SOCKET, SO_SNDBUF, 1)
"""


def test_clients_that_read_no_response(tmp_path: Path) -> None:
    """Clients that pipeline requests and never read the responses do not block others.

    SIGTERM stops the service promptly also then.
    """
    config = tmp_path / "gunicorn.py"
    config.write_text(SMALL_BUFFERS)
    with ExitStack() as opened, Gunicorn("-c", str(config), PLANTSTORE_TOKENS=TOKEN) as server:
        clients = [opened.enter_context(server.connect(unread=1)) for _ in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as threads:
            assert [*threads.map(fill, clients)] == [None] * CLIENTS
        assert promptly(server, post(new_rose())).status == 200
        server.process.terminate()
        wait_until(lambda: server.process.poll() is not None, 20)


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"P",
        b"POST /plants HTTP/1.1\r\nHost: x\r\n",
        b"POST /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n",
        b"POST /plants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"POST /plants HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 8000,
    ],
)
def test_clients_that_send_a_part_of_a_request(
    server: Gunicorn, clients: list[Connection], part: bytes
) -> None:
    """Clients without a token that stop in the middle of a request do not block others."""
    for connection in clients:
        connection.send(part)
    assert promptly(server, post(new_rose())).status == 200


def test_clients_that_do_not_close(server: Gunicorn, clients: list[Connection]) -> None:
    """Clients that ask for the end of a connection, and do not close it, do not block others."""
    for connection in clients:
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert connection.receive().status == 404
    assert promptly(server, post(new_rose())).status == 200


def test_response_is_complete_after_unread_data(server: Gunicorn) -> None:
    """A client gets the whole response although the service does not read what follows it."""
    with server.connect() as connection:
        connection.send(post(b"", length=10**9))
        connection.send(b"x" * 30_000)
        assert connection.receive().error == 41301
        assert connection.closed()


def test_more_connections_than_file_descriptors(tmp_path: Path) -> None:
    """More idle connections than file descriptors end no worker, and others are served.

    So no plant in memory is lost, and no id is acknowledged twice.
    """
    config = tmp_path / "gunicorn.py"
    config.write_text(
        "from resource import RLIMIT_NOFILE, setrlimit\n"
        "from plantstore.server.config import *\n"
        "setrlimit(RLIMIT_NOFILE, (200, 256))\n"
    )
    with ExitStack() as connections, Gunicorn("-c", str(config), PLANTSTORE_TOKENS=TOKEN) as server:
        body = new_rose()
        assert server.request(post(body)).status == 200
        for _ in range(600):
            connections.enter_context(server.connect())
        assert promptly(server, post(body)).error == 40004
        assert server.log.count("Booting worker") == 1


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(b" ")] * 1_000_000,
        [b"1;" + b"x" * 1000 + b"\r\n \r\n"] * 1000,
        [chunk(new_rose()), b"0\r\n", b"X: " + b"x" * 9000 + b"\r\n"],
    ],
    ids=["chunks", "extensions", "trailers"],
)
def test_unreasonable_chunks_are_refused(server: Gunicorn, chunks: list[bytes]) -> None:
    """A body in unreasonably many chunks, extensions or trailers is refused early with 40002."""
    with server.connect() as connection:
        connection.send_what_is_read(chunked(*chunks))
        assert connection.receive().error == 40002
        assert connection.closed()


def test_many_chunks_of_a_reasonable_size(server: Gunicorn) -> None:
    """A body of the maximum size may arrive in thousands of chunks."""
    chunks = [chunk(b" " * 256)] * 4000
    assert server.request(chunked(*chunks, chunk(new_rose()), chunk(b""))).status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET /plants HTTP/1.1\r\nHost: x\r\nAuthorization Bearer s3cret\r\n\r\n",
        b"GET /plants HTTP/1.1\r\nHost: x\r\n Authorization: Bearer s3cret\r\n\r\n",
        b"Authorization: Bearer s3cret\r\nGET /plants HTTP/1.1\r\n\r\n",
        b"GET /plants HTTP/1.1\r\nHost: x\nAuthorization: Bearer s3cret\r\n\r\n",
        b"GET /plants HTTP/s3cret\r\nHost: x\r\n\r\n",
        b"s3cret /plants HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\n\r\n",
        b"x" * 70_000,
        b"GET /plants HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000,
        b"GET /plants HTTP/1.1\r\nHost: x\r\nExpect: s3cret\r\n\r\n",
        b"GET /plants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: s3cret\r\n\r\n",
    ],
)
def test_malformed_http_is_an_error(server: Gunicorn, head: bytes) -> None:
    """A request that is not valid HTTP gets an Error at once, and the log has none of its text."""
    with server.connect() as connection:
        connection.send_what_is_read(head)
        response = connection.receive()
        assert response.error == response.status * 100
        assert response.headers["content-type"] == "application/json"
        assert b"s3cret" not in response.body
        assert connection.closed()


def test_half_request_is_not_logged(server: Gunicorn) -> None:
    """When a client disconnects in the middle of a request, the log has none of its text."""
    for part in (post(b"{}")[:-20], post(b"{}")[:-5]):
        with server.connect() as connection:
            connection.send(part)
    server.wait_for("premature client disconnection")
