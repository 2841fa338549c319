"""Clients that are slow, hostile or broken do not stop the service, and lose no plant."""

import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.certificates import with_certificate
from tests.support.reloading import memory
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
# A request for the largest file of the service.
GET_LARGE = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n"


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


def fill(connection: Connection) -> None:
    """Send requests, without reading a response, until the connection accepts no more."""
    connection.limit(2)
    with suppress(TimeoutError):
        connection.send_what_is_read(b"GET /plants HTTP/1.1\r\nHost: x\r\n\r\n" * 10**6)


@pytest.mark.parametrize("seconds", [10, 0.5])
def test_clients_that_read_no_response(tmp_path: Path, seconds: float) -> None:
    """Clients that pipeline requests and never read responses block neither others nor SIGTERM."""
    timeouts = constants(_READ_TIMEOUT=seconds, SEND_TIMEOUT=1000)
    with (
        configured(tmp_path, SMALL_BUFFERS, timeouts) as server,
        server.clients(CLIENTS, unread=1) as clients,
    ):
        with ThreadPoolExecutor(CLIENTS) as threads:
            assert [*threads.map(fill, clients)] == [None] * CLIENTS
        assert promptly(server, post(new_rose())).status == 200
        server.process.terminate()
        wait_until(lambda: server.process.poll() is not None, 20)


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


# Requests of clients that stop in the middle, or do not close.
PARTS = [
    *(b"", b"P", b"POST /plants HTTP/1.1\r\nHost: x\r\n"),
    *(post(b"", length=500), post(b"", length=1_000_000), chunked(b"5\r\nabc")),
    b"POST /plants HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 8000,
    post(new_rose()) + post(b"", length=500)[:60],
    post(b"", length=70_000).replace(b"s3cret", b"wrong"),
    GET.replace(b"Host", b"Connection: close\r\nHost"),
]


@pytest.mark.parametrize("part", PARTS)
def test_clients_that_send_a_part_of_a_request(server: Gunicorn, part: bytes) -> None:
    """Clients that stop in a request, do not close, go on sending, or reset do not block others."""
    with server.clients(CLIENTS, part) as clients:
        for request in (post(new_rose()), chunked(chunk(new_rose()), chunk(b""))):
            assert promptly(server, request).status == 200
            for client in clients:
                client.send_what_is_read(b"x")
        for client in clients:
            client.reset()


TOO_LARGE = post(b"", length=65_537)
# Requests with bodies that are too large, or in too many parts, and the numbers of the Errors.
NOT_READ = [
    (TOO_LARGE, 41301),
    (TOO_LARGE.replace(b"s3cret", b"wrong"), 40102),
    (TOO_LARGE.replace(b"/plants", b"/roses"), 40401),
    (TOO_LARGE.replace(b"POST", b"GET"), 40501),
    (post(b" " * 8_000_000), 41301),
    (chunked(b"f0000\r\n" + b" " * 65_537), 41301),  # It is refused before its end.
    (post(b"", "Expect: 100-continue", length=70_000), 41301),
    *((chunked(*[chunk(b" ")] * number), 40002) for number in (4000, 1_000_000)),
    (chunked(*[b"1;" + b"x" * 1000 + b"\r\n \r\n"] * 1000), 40002),
    (chunked(chunk(new_rose()), b"0\r\n", b"X: " + b"x" * 9000 + b"\r\n"), 43100),
]


@pytest.mark.parametrize(("request_", "error"), NOT_READ)
def test_body_that_is_not_read(server: Gunicorn, request_: bytes, error: int) -> None:
    """A client whose unreasonable body is refused early gets the Error, and is disconnected."""
    with server.connect() as connection:
        connection.limit(PATIENCE)
        connection.send_what_is_read(request_)
        response = connection.receive()
        assert (response.error, response.headers["connection"]) == (error, "close")
        assert connection.closed()


# A page of plants with 3.9 million characters.
GET_PAGE = b"GET /plants?limit=3 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n\r\n"
GET_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("request_", [GET_LARGE, GET_PAGE], ids=["file", "page"])
def test_memory_of_responses_that_are_not_read(
    tmp_path: Path, request_: bytes, *, tls: bool
) -> None:
    """Large responses that many clients read slowly take less than 100 MB of memory in all."""
    settings = {"PLANTSTORE_OPERATIONS": "create,list", "PLANTSTORE_MAX_BODY": "2000000"}
    if tls:
        settings["GUNICORN_CMD_ARGS"] = " ".join(with_certificate(tmp_path))
    with configured(tmp_path, SMALL_BUFFERS, **settings) as server:
        server.tls = tls
        for id in (1, 2, 3):
            large = b'{"id":%d,"name":"%s"}' % (id, b"x" * 1_300_000)
            assert server.request(post(large)).status == 200
        before = memory(server)
        with server.clients(150, GET_HEALTH + request_, unread=4096) as clients:
            assert clients[-1].receive().status == 200
            assert clients[-1].receive_head().status == 200
            assert promptly(server, post(new_rose())).status == 200
            assert memory(server) - before < 100e6
            assert clients[-1].receive_some(4096)


def test_memory_of_bodies_that_do_not_end(tmp_path: Path) -> None:
    """The bodies of many clients that stop before the end take less than 100 MB of memory."""
    with configured(tmp_path, PLANTSTORE_MAX_BODY="2000000") as server:
        assert server.request(post(new_rose())).status == 200
        before = memory(server)
        with server.clients(150) as clients:
            for client in clients:
                client.send_what_is_read(post(b" " * 1_900_000, length=2_000_000))
            assert promptly(server, post(new_rose())).status == 200
            assert memory(server) - before < 100e6
            assert clients[-1].send_what_is_read(b" ")


def test_connection_that_the_client_wants_to_close(server: Gunicorn) -> None:
    """A connection is closed after HTTP/1.0, and if `close` is in its Connection headers."""
    for request in (
        post(new_rose(), "Connection: keep-alive, close"),
        post(new_rose(), "Connection: keep-alive", "Connection: Close"),
        post(new_rose()).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ):
        with server.connect() as connection:
            assert connection.request(request).headers["connection"] == "close"
            assert connection.closed()


@pytest.mark.parametrize(("files", "reserved"), [(256, 128), (256, 0), (120, 128), (1000, 128)])
def test_more_connections_than_file_descriptors(tmp_path: Path, files: int, reserved: int) -> None:
    """More idle connections than file descriptors end no worker, and others are served."""
    limits = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, {files}))",
        constants(_RESERVED=reserved),
    )
    with configured(tmp_path, *limits) as server:
        body = new_rose()
        assert server.request(post(body)).status == 200
        with server.clients(400) as (oldest, *_):
            for _ in range(5):
                assert promptly(server, post(body)).error == 40004
            assert oldest.has_response(0) == (files < 400)  # It is closed.
            assert server.log.count("Booting worker") == 1
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
    with suppress(OSError):
        while True:
            files.append(open("/dev/null"))
    Timer(1, files.clear).start()
"""


def test_no_file_descriptor(tmp_path: Path) -> None:
    """While no file descriptor is free, clients wait, and the worker does not end."""
    with configured(tmp_path, NO_DESCRIPTOR) as server:
        assert server.request(post(new_rose())).status == 200
        server.wait_for("Connections had to wait: Too many open files")
        assert server.log.count("Booting worker") == 1


LENGTH, CHUNKED = b"Content-Length: 5", b"Transfer-Encoding: chunked"
# What determines the size of a body, in ways that programs understand differently.
SIZES = [
    *(LENGTH + b"\r\n" + CHUNKED, CHUNKED + b"\r\n" + LENGTH, LENGTH + b"\r\nContent-Length: 6"),
    *(
        b"Content-Length: " + value
        for value in (b"5, 6", b"+5", b"0x10", b"-1", b"5x", b"9" * 5000)
    ),
    *(b"Content-Length : 5", b"Content-Length:\r\n 5", b"\n" + LENGTH),
    *(b"Transfer-Encoding: " + value for value in (b"s3cret", b"xchunked", b"chunked, identity")),
    CHUNKED + b"\r\nTransfer-Encoding: identity",
    *(field + b"\r\n" + LENGTH for field in (b"X: y\n" + CHUNKED, b"X: y\r" + CHUNKED)),
    *(b"Transfer-Encoding" + end + b"chunked\r\n" + LENGTH for end in (b" : ", b":\x0b")),
    b"\0" + CHUNKED + b"\r\n" + LENGTH,
]
# What is not valid HTTP, and the numbers of the Errors.
MALFORMED = [
    *((b"POST /plants HTTP/1.1\r\nHost: x\r\n" + size + b"\r\n\r\n", 40000) for size in SIZES),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\nAuthorization Bearer s3cret\r\n\r\n", 40000),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\n Authorization: Bearer s3cret\r\n\r\n", 40000),
    (b"Authorization: Bearer s3cret\r\nGET /plants HTTP/1.1\r\n\r\n", 40000),
    (b"GET /plants HTTP/1.1\r\nHost: x\nAuthorization: Bearer s3cret\r\n\r\n", 40000),
    (b"GET /plants HTTP/1.1\nHost: x\nAuthorization: Bearer s3cret\n\n", 40000),
    (b"GET /plants HTTP/1.1\r\nAuthorization: Bearer s3cret\r\n\r\n", 40000),
    *((b"GET / HTTP/1.1\r\nHost: x\r\nHost: %b\r\n\r\n" % host, 40000) for host in (b"x", b"y")),
    *(
        (b"GET /plants HTTP/1.1\r\nX: s3cret" + end, 40000)
        for end in (b"\0", b"\x7f", b"\rX", b"\nX")
    ),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 40000),
    (b"GET /plants HTTP/1.9\r\nHost: x\r\n\r\n", 40000),
    (b"GET /plants HTTP/s3cret\r\nHost: x\r\n\r\n", 40000),
    (b"s3cret /plants HTTP/1.1\r\nHost: x\r\n\r\n", 40000),
    *((b"\r\n\r\n", 40000), (b"\n", 40000), (b"\x16", 40000)),  # The last one is TLS.
    *(
        (b"GET / HTTP/1.1\r\nHost: x\r\nExpect:%b\r\n\r\n" % value, 41700)
        for value in (b" s3cret", b"")
    ),
    *((b"GET /" + b"x" * size + b" HTTP/1.1\r\nHost: x\r\n\r\n", 41400) for size in (5000, 70_000)),
    *((b"x" * 65_536, 41400), (b"x" * 65_533 + b"\r\n\r\n", 41400)),
    *(
        (b"GET /plants HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * number + b"\r\n", 43100)
        for number in (100, 255, 256, 20_000)
    ),
    (b"GET /plants HTTP/1.1\r\nHost: x\r\n" + b"X: %b\r\n" % (b"y" * 8000) * 9 + b"\r\n", 43100),
]


@pytest.mark.parametrize(("head", "error"), MALFORMED)
def test_malformed_http_is_an_error(server: Gunicorn, head: bytes, error: int) -> None:
    """What is not valid HTTP gets an Error at once; its line of the log has none of its text."""
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


LATER = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nX: y\r\n\r\n"


@pytest.mark.parametrize(
    "change",
    [
        *((b"X: y", line) for line in (b"X: \x01", b" X: y", b"X : y", b"X", b"Host: x")),
        *((b"Content-Length: 0", b"Content-Length: %b" % value) for value in (b"-1", b"x", b"")),
        *((b"/healthz", target) for target in (b"/\xe9", b"*", b"x", b"", b"/ x")),
        *((b"GET", method) for method in (b"get", b"G", b"")),
    ],
)
def test_later_head_that_is_malformed(server: Gunicorn, change: tuple[bytes, bytes]) -> None:
    """The later heads of a connection are checked as the first one is."""
    with server.connect() as connection:
        assert connection.request(LATER).status == 200
        assert connection.request(LATER).status == 200
        assert connection.request(LATER.replace(*change)).error == 40000


# Faults of the service itself: lines of a configuration, and what the log has.
REFUSE = """
from plantstore.server.worker import Worker as worker_class
worker_class.refuse = None
"""
LOGGER = """
from plantstore.server._logger import Logger

class logger_class(Logger):
    def info(self, message, *arguments, **options):
        super().info(message if "TLS" not in message else {}[0], *arguments)
"""
FAULTS = [(REFUSE, "TypeError: 'NoneType' object is not call"), (LOGGER, "A connection has failed")]


@pytest.mark.parametrize(("lines", "fault"), FAULTS, ids=["refusal", "log"])
def test_fault_of_the_server_itself(tmp_path: Path, lines: str, fault: str) -> None:
    """An exception that nothing expects, also while an Error is made, ends no thread."""
    (tmp_path / "own.py").write_text(f"from plantstore.server.config import *\n{lines}")
    options = ("-c", f"{tmp_path}/own.py", *with_certificate(tmp_path))
    with Gunicorn(*options, PLANTSTORE_TOKENS=TOKEN) as server:
        for _ in range(5):
            with server.connect(tls=lines == REFUSE) as connection, suppress(ConnectionError):
                connection.send(b"\n" * 9)  # It is neither TLS nor HTTP.
                assert connection.closed()
        assert promptly(server, post(new_rose()), tls=True).status == 200
        assert fault in server.log


def test_malformed_http_with_the_parser_in_python(tmp_path: Path) -> None:
    """Also if gunicorn's parser in C is installed, its parser in Python gives the same Errors."""
    with configured(tmp_path, "http_parser = 'python'") as server:
        for head, error in MALFORMED:
            with server.connect() as connection:
                connection.send_what_is_read(head)
                assert connection.receive().error == error, head
        assert promptly(server, post(new_rose())).status == 200


# Malformed chunks and trailers.
TAILS = [
    *(b"x\r\n", b"-1\r\n", b"\r\n", b"5;;\r\n", b"0x5\r\nabcde\r\n", b"2\r\nabcd\r\n", b"f" * 9000),
    *(b"1_0\r\n", b" 1\r\n", b"1 x\r\n", b"1\n\r\n", b"1;a=\0\r\n", b"1" * 16 + b"\r\n"),
    *(b"1 \r\nx\r\n0\r\n\r\n", b"1;a\rb\r\nx\r\n0\r\n\r\n", b"0\r\nnot a field\r\n\r\n"),
    *(b"1;" + b"x" * 8192, b"0\r\nX: y\n\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    *(b"+1\r\n", b"1;\n\r\n", b"1 \t\r\n", b"f" * 15 + b"1\r\n", b'1;x="\r\n"\r\n'),
]


@pytest.mark.parametrize("tail", TAILS)
def test_malformed_chunk_ends_the_connection(server: Gunicorn, tail: bytes) -> None:
    """A malformed chunk ends the connection: a proxy could find a request in what follows it."""
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


def test_port_with_tls(tmp_path: Path) -> None:
    """A port with TLS disconnects who sends none, and chooses HTTP/1.1."""
    context = tls_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with Gunicorn(*with_certificate(tmp_path), PLANTSTORE_TOKENS=TOKEN) as server:
        with server.connect() as connection:
            connection.send(post(new_rose()))
            assert connection.closed()
        server.wait_for(r"INFO\] Not valid TLS, from .'127.0.0.1', \d+.: .*http request")
        with server.connect():
            pass  # A client that sends nothing is no error.
        with context.wrap_socket(socket.create_connection(("127.0.0.1", server.port))) as client:
            assert client.selected_alpn_protocol() == "http/1.1"
        assert promptly(server, post(new_rose()), tls=True).status == 200
        assert server.log.count("Not valid TLS") == 1
        verifying = ssl.create_default_context()
        with (
            socket.create_connection(("127.0.0.1", server.port)) as client,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            verifying.wrap_socket(client, server_hostname="localhost")
        server.wait_for("Not valid TLS, .* unknown ca")
