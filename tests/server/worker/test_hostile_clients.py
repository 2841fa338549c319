"""Clients that are slow, hostile or broken do not stop the service, and lose no plant."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.certificates import with_certificate
from tests.support.serving import (
    PATIENCE,
    SMALL_BUFFERS,
    Connection,
    Gunicorn,
    chunk,
    chunked,
    configured,
    constants,
    post,
    promptly,
    tls_context,
)
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server

# More than the threads of the service.
CLIENTS = 16
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module", params=[False, True], ids=["http", "https"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gunicorn]:
    """Run the service under gunicorn, with a plant in its memory that must not be lost."""
    files = with_certificate(tmp_path_factory.mktemp("tls")) if request.param else ()
    with Gunicorn("--log-level", "debug", *files, PLANTSTORE_TOKENS=TOKEN) as server:
        server.tls = request.param
        assert server.request(post(b'{"id":1,"name":"Rose"}')).status == 200
        yield server
        assert promptly(server, post(b'{"id":1,"name":"Lily"}')).error == 40004
        assert server.log.count("Booting worker") == 1
        assert "Traceback" not in server.log
        assert TOKEN not in server.log


@pytest.fixture
def clients(server: Gunicorn) -> Iterator[list[Connection]]:
    """Return connections of hostile clients."""
    with ExitStack() as connections:
        yield [connections.enter_context(server.connect()) for _ in range(CLIENTS)]


def fill(connection: Connection) -> None:
    """Send requests, without reading a response, until the connection accepts no more."""
    connection.limit(2)
    with suppress(TimeoutError, ConnectionError):
        while True:
            connection.send(b"GET /plants HTTP/1.1\r\nHost: x\r\n\r\n" * 100)


@pytest.mark.parametrize("seconds", [10, 0.5])
def test_clients_that_read_no_response(tmp_path: Path, seconds: float) -> None:
    """Clients that pipeline requests and never read the responses do not block others.

    This holds before and after the service gives them up. SIGTERM stops it promptly also then.
    """
    timeouts = constants(_READ_TIMEOUT=seconds, SEND_TIMEOUT=1000)
    with ExitStack() as opened, configured(tmp_path, SMALL_BUFFERS, timeouts) as server:
        clients = [opened.enter_context(server.connect(unread=1)) for _ in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as threads:
            assert [*threads.map(fill, clients)] == [None] * CLIENTS
        assert promptly(server, post(new_rose())).status == 200
        server.process.terminate()
        wait_until(lambda: server.process.poll() is not None, 20)


@pytest.mark.parametrize("sent", [chunked(b"5\r\nabc"), GET * 200])
def test_connections_that_use_up_the_limit(tmp_path: Path, sent: bytes) -> None:
    """Connections with half a request, or with many, do not keep others out: some are closed."""
    limits = ("worker_connections = 30", constants(_READ_TIMEOUT=1))
    with ExitStack() as opened, configured(tmp_path, *limits) as server:
        for _ in range(60):
            opened.enter_context(server.connect()).send(sent)
        for _ in range(5):
            assert promptly(server, post(new_rose())).status == 200


def test_large_response_that_is_not_read(tmp_path: Path) -> None:
    """A client that does not read a large response does not occupy a thread forever."""
    limits = (SMALL_BUFFERS, constants(SEND_TIMEOUT=0.2), "threads = 1")
    with (
        configured(tmp_path, *limits, PLANTSTORE_MAX_BODY="2000000") as server,
        server.connect(unread=1) as connection,
    ):
        connection.send(post(b'{"id":1,"name":"%s"}' % (b"x" * 1_000_000)))
        assert promptly(server, post(new_rose())).status == 200


def test_request_that_arrives_without_end(tmp_path: Path) -> None:
    """A request must be complete after some time: no byte renews it. Else a body is 40002."""
    starts = [
        (post(b"", length=9), b"", 40002),
        (chunked(chunk(b" ")), b"", 40002),
        (post(b"", length=65_536), b" ", 40002),
        (b"GET /plants HTTP/1.1\r\nX: ", b"x", None),
        (post(new_rose()) + b"GET /plants HTTP/1.1\r\nX: ", b"x", 200),
    ]
    with configured(tmp_path, constants(_READ_TIMEOUT=0.5)) as server:
        for start, byte, outcome in starts:
            with server.connect() as connection:
                connection.limit(PATIENCE)
                connection.send(start)
                if outcome == 200:
                    assert connection.receive().status == 200
                end = time.monotonic() + PATIENCE
                while not connection.has_response(0.01):
                    connection.send_what_is_read(byte)
                    assert time.monotonic() < end
                if outcome == 40002:
                    response = connection.receive()
                    assert (response.error, response.headers["connection"]) == (40002, "close")
                with suppress(ConnectionError):  # The service has not read each byte.
                    assert connection.closed()


def test_refused_body_of_several_megabytes(server: Gunicorn) -> None:
    """A client that sends a large body before it reads gets the Error by which it is refused."""
    with server.connect() as connection:
        connection.send(post(b" " * 8_000_000))
        assert connection.receive().error == 41301
        assert connection.closed()


def test_refused_head_has_no_body(server: Gunicorn) -> None:
    """The response to a HEAD request that is not valid HTTP has no body."""
    with server.connect() as connection:
        connection.send(b"HEAD /plants HTTP/1.1\r\nHost: x\r\nX y\r\n\r\n")
        assert connection.receive_head().status == 400
        assert connection.closed()


def test_reset_connections(server: Gunicorn) -> None:
    """Clients may reset a connection at any time."""
    for part in (b"", b"GET ", post(b"", length=9), b"GET /plants HTTP/1.1\r\nHost: x\r\n\r\n"):
        for _ in range(5):
            connection = server.connect()
            connection.send(part)
            connection.reset()


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"P",
        post(b"", length=1),
        post(b"", length=500),
        post(b"", length=1_000_000),
        chunked(b"5\r\nabc"),
        b"POST /plants HTTP/1.1\r\nHost: x\r\n",
        b"POST /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n",
        b"POST /plants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"POST /plants HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 8000,
        post(new_rose()) + post(b"", length=500)[:60],
        GET.replace(b"Host", b"Connection: close\r\nHost"),
    ],
)
def test_clients_that_send_a_part_of_a_request(
    server: Gunicorn, clients: list[Connection], part: bytes
) -> None:
    """Clients that stop in the middle of a request, or do not close, do not block others."""
    for connection in clients:
        connection.send(part)
    for request in (post(new_rose()), chunked(chunk(new_rose()), chunk(b""))):
        assert promptly(server, request).status == 200


def test_refused_clients_that_go_on_sending(tmp_path: Path) -> None:
    """Clients without a token whose bodies arrive without end hold no thread, also a single one."""
    wrong = post(b"", length=70_000).replace(b"s3cret", b"wrong")
    starts = [wrong, chunked(chunk(b" ")).replace(b"s3cret", b"wrong")]
    store = f"sqlite:///{tmp_path}/plants.db"
    with (
        ExitStack() as opened,
        Gunicorn("--threads=1", PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_STORE=store) as server,
    ):
        clients = [opened.enter_context(server.connect()) for _ in range(CLIENTS)]
        for number, connection in enumerate(clients):
            connection.send(starts[number % 2])
        for _ in range(5):
            for number, connection in enumerate(clients):
                connection.send_what_is_read((b"x", chunk(b" "))[number % 2])
            for request in (post(new_rose()), chunked(chunk(new_rose()), chunk(b""))):
                assert promptly(server, request).status == 200
        for connection in clients[::2]:
            response = connection.receive()
            assert (response.error, response.headers["connection"]) == (40102, "close")


@pytest.mark.parametrize(
    ("request_line", "token", "error"),
    [
        (b"POST /plants", b"wrong", 40102),
        (b"POST /plants", b"s3cret", 41301),
        (b"POST /roses", b"s3cret", 40401),
        (b"GET /plants", b"s3cret", 40501),
    ],
)
def test_body_that_is_not_read_ends_the_connection(
    server: Gunicorn, request_line: bytes, token: bytes, error: int
) -> None:
    """A response to a request whose body is over the limit says that the connection is closed."""
    request = post(b"", length=65_537).replace(b"POST /plants", request_line)
    with server.connect() as connection:
        connection.send(request.replace(b"s3cret", token))
        response = connection.receive()
        assert (response.error, response.headers["connection"]) == (error, "close")
        assert connection.closed()


def test_connection_that_the_client_wants_to_close(server: Gunicorn) -> None:
    """A connection is closed if `close` is anywhere in the Connection headers of a request."""
    for headers in (
        ["Connection: keep-alive, close"],
        ["Connection: keep-alive", "Connection: Close"],
    ):
        with server.connect() as connection:
            connection.send(post(new_rose(), *headers))
            assert connection.receive().headers["connection"] == "close"
            assert connection.closed()


def test_later_version_of_http(server: Gunicorn) -> None:
    """The response to another minor version of HTTP is HTTP/1.1 (RFC 9110 section 2.5)."""
    with server.connect() as connection:
        connection.send(post(new_rose()).replace(b"HTTP/1.1", b"HTTP/1.9"))
        assert connection.receive_line() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(("files", "reserved"), [(256, 128), (256, 0), (120, 128)])
def test_more_connections_than_file_descriptors(tmp_path: Path, files: int, reserved: int) -> None:
    """More idle connections than file descriptors end no worker, and others are served.

    So no plant in memory is lost, and no id is acknowledged twice.
    """
    limits = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, {files}))",
        constants(_RESERVED=reserved),
    )
    with ExitStack() as connections, configured(tmp_path, *limits) as server:
        body = new_rose()
        assert server.request(post(body)).status == 200
        for _ in range(400):
            connections.enter_context(server.connect())
        for _ in range(5):
            assert promptly(server, post(body)).error == 40004
        assert server.log.count("Booting worker") == 1
        if reserved == 0:
            server.wait_for("Connections had to wait: Too many open files")
        else:
            with server.connect() as newest:
                assert not newest.has_response(2.5)
            assert "Connections had to wait" not in server.log


# The worker has no free file descriptor for some time after its start.
NO_DESCRIPTOR = """
from resource import RLIMIT_NOFILE, setrlimit
from threading import Timer

setrlimit(RLIMIT_NOFILE, (256, 256))

def post_worker_init(worker):
    files = []
    try:
        while True:
            files.append(open("/dev/null"))
    except OSError:
        Timer(1, files.clear).start()
"""


def test_no_file_descriptor(tmp_path: Path) -> None:
    """While no file descriptor is free, clients wait, and the worker does not end."""
    with configured(tmp_path, NO_DESCRIPTOR) as server:
        assert server.request(post(new_rose())).status == 200
        server.wait_for("Connections had to wait: Too many open files")
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
    """A body in unreasonably many chunks, extensions or trailers is refused early."""
    with server.connect() as connection:
        connection.send_what_is_read(chunked(*chunks))
        assert connection.receive().error in {40002, 41301, 43100}
        assert connection.closed()


def test_many_chunks_of_a_reasonable_size(server: Gunicorn) -> None:
    """A body of the maximum size may arrive in thousands of chunks."""
    chunks = [chunk(b" " * 16)] * 4000
    assert server.request(chunked(*chunks, chunk(new_rose()), chunk(b""))).status == 200


# What is not valid HTTP, and the numbers of the Errors.
MALFORMED = [
    (b"GET /plants HTTP/1.1\r\nHost: x\r\nAuthorization Bearer s3cret\r\n\r\n", 40000),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\n Authorization: Bearer s3cret\r\n\r\n", 40000),
    (b"Authorization: Bearer s3cret\r\nGET /plants HTTP/1.1\r\n\r\n", 40000),
    (b"GET /plants HTTP/1.1\r\nHost: x\nAuthorization: Bearer s3cret\r\n\r\n", 40005),
    (b"GET /plants HTTP/1.1\nHost: x\nAuthorization: Bearer s3cret\n\n", 40000),
    (b"GET /plants HTTP/1.1\r\nAuthorization: Bearer s3cret\r\n\r\n", 40005),
    (b"GET /plants HTTP/1.1\r\nX: s3cret\0", 40000),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 40000),
    (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03s3cret", 40000),
    (b"GET /plants HTTP/s3cret\r\nHost: x\r\n\r\n", 40000),
    (b"s3cret /plants HTTP/1.1\r\nHost: x\r\n\r\n", 40000),
    (b"\r\n\r\n", 40000),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\n", 40000),
    (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 40000),
    (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 41400),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\nExpect: s3cret\r\n\r\n", 41700),
    (b"x" * 70_000, 43100),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000, 43100),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\n" + b"X: %b\r\n" % (b"y" * 8000) * 9 + b"\r\n", 43100),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: s3cret\r\n\r\n", 50100),
]


@pytest.mark.parametrize(("head", "error"), MALFORMED)
def test_malformed_http_is_an_error(server: Gunicorn, head: bytes, error: int) -> None:
    """A request that is not valid HTTP gets an Error at once, and the connection is closed.

    The log has its number, the address and the id of the request, and none of its text.
    """
    with server.connect() as connection:
        connection.send_what_is_read(head)
        response = connection.receive()
        assert (response.status, response.error) == (error // 100, error)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["connection"] == "close"
        assert b"s3cret" not in response.body
        assert connection.closed()
    id = response.headers["x-request-id"]
    server.wait_for(rf"\[INFO\] {response.error}: .*, address: '127\.0\.0\.1', request: {id}\)")


# Malformed chunks and trailers.
TAILS = [
    *(b"x\r\n", b"-1\r\n", b"\r\n", b"5;;\r\n", b"0x5\r\nabcde\r\n", b"2\r\nabcd\r\n", b"f" * 9000),
    *(b"1 \r\nx\r\n0\r\n\r\n", b"1;a\rb\r\nx\r\n0\r\n\r\n", b"0\r\nnot a field\r\n\r\n"),
    b"0\r\nX: y\n\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
]


@pytest.mark.parametrize("tail", TAILS)
def test_malformed_chunk_ends_the_connection(server: Gunicorn, tail: bytes) -> None:
    """A malformed chunk is 40002, stores nothing, and closes the connection, also if nobody reads.

    A proxy could find another request in what follows it.
    """
    body = new_rose()
    health = b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    refused = chunked(tail).replace(b"Bearer s3cret", b"Bearer wrong")
    requests = [(chunked(chunk(body), tail), 40002), (refused, 40102), (health + tail, 200)]
    for request, outcome in requests:
        with server.connect() as connection:
            connection.send_what_is_read(request + post(new_rose()))
            response = connection.receive()
            assert outcome == (200 if response.status == 200 else response.error)
            assert response.headers["connection"] == "close"
            assert connection.closed()
    assert promptly(server, post(body)).status == 200


def test_body_over_the_limit_is_not_asked_for(server: Gunicorn) -> None:
    """A client that waits for the status 100 gets the Error at once if its body is too large."""
    with server.connect() as connection:
        connection.send(post(b"", "Expect: 100-continue", length=70_000))
        assert connection.receive().error == 41301


def test_http_to_a_tls_port(tmp_path: Path) -> None:
    """A client that sends no TLS to a port with TLS is disconnected, and others are served."""
    with Gunicorn(*with_certificate(tmp_path), PLANTSTORE_TOKENS=TOKEN) as server:
        with server.connect() as connection:
            connection.send(post(new_rose()))
            assert connection.closed()
        server.wait_for("40000: The request is not valid TLS")
        with server.connect():
            pass  # A client that sends nothing is no error.
        with server.connect(tls=True) as connection:
            connection.send(post(new_rose()))
            assert connection.receive().status == 200
        assert server.log.count("40000") == 1


@pytest.mark.parametrize("server", [True], indirect=True)
def test_tls_has_only_http_1_1(server: Gunicorn) -> None:
    """With TLS, the service chooses HTTP/1.1 among the protocols that a client offers."""
    context = tls_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection(("127.0.0.1", server.port))
    with context.wrap_socket(plain) as client:
        assert client.selected_alpn_protocol() == "http/1.1"


def test_several_host_headers(server: Gunicorn) -> None:
    """A request with several Host headers is 40005 (RFC 9112 section 3.2)."""
    for other in (b"x", b"y"):
        request = b"GET / HTTP/1.1\r\nHost: x\r\nHost: %b\r\n\r\n" % other
        assert server.request(request).error == 40005


def test_worker_of_another_application(tmp_path: Path) -> None:
    """By itself, the worker refuses what is not valid HTTP with plain text, and does not log it."""
    worker = "worker_class = 'plantstore.server.worker.Worker'"
    with configured(tmp_path, worker) as server:
        response = server.request(b"hunter2\r\n\r\n")
        assert "hunter2" not in server.log
    assert (response.status, response.headers["content-type"]) == (400, "text/plain")
    assert response.body == b"The request line is invalid."
