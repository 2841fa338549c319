"""Clients that are slow, hostile or broken do not stop the service, and lose no plant."""

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.serving import Connection, Gunicorn, Response, chunk, chunked, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server

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
    with suppress(TimeoutError):
        while True:
            connection.send(b"GET /plants HTTP/1.1\r\nHost: x\r\n\r\n" * 100)


def make_certificate(folder: Path) -> None:
    """Write a key and its own certificate into a folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    period = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = period.sign(key, hashes.SHA256())
    (folder / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(plain)


@contextmanager
def configured(folder: Path, *lines: str, **environment: str) -> Iterator[Gunicorn]:
    """Run the service with its configuration of gunicorn and more lines of Python."""
    config = folder / "gunicorn.py"
    config.write_text("\n".join(["from plantstore.server.config import *", *lines]))
    with Gunicorn("-c", str(config), PLANTSTORE_TOKENS=TOKEN, **environment) as server:
        yield server
        assert "Traceback" not in server.log


# A response that is larger than all buffers needs a large body.
LARGE_BODIES = {"PLANTSTORE_MAX_BODY": "2000000"}
# Small buffers for responses, so that a test can fill them.
SMALL_BUFFERS = """
from socket import SO_SNDBUF, SOL_SOCKET

def when_ready(server):
    for listener in server.LISTENERS:
        listener.sock.setsockopt(SOL_SOCKET, SO_SNDBUF, 1)
"""


def test_clients_that_read_no_response(tmp_path: Path) -> None:
    """Clients that pipeline requests and never read the responses do not block others.

    SIGTERM stops the service promptly also then.
    """
    with ExitStack() as opened, configured(tmp_path, SMALL_BUFFERS) as server:
        clients = [opened.enter_context(server.connect(unread=1)) for _ in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as threads:
            assert [*threads.map(fill, clients)] == [None] * CLIENTS
        assert promptly(server, post(new_rose())).status == 200
        server.process.terminate()
        wait_until(lambda: server.process.poll() is not None, 20)


def test_large_response_that_is_not_read(tmp_path: Path) -> None:
    """A client that does not read a large response does not occupy a thread forever."""
    timeout = "from plantstore.server.worker import _connection; _connection._SEND_TIMEOUT = 0.2"
    with (
        configured(tmp_path, SMALL_BUFFERS, timeout, "threads = 1", **LARGE_BODIES) as server,
        server.connect(unread=1) as connection,
    ):
        connection.send(post(b'{"id":1,"name":"%s"}' % (b"x" * 1_000_000)))
        assert promptly(server, post(new_rose())).status == 200


def test_slow_body(tmp_path: Path) -> None:
    """A body that takes longer to arrive than the service waits is 40002."""
    timeout = "from plantstore.server.worker import _connection; _connection.READ_TIMEOUT = 0.2"
    for start in (post(b"", length=9), chunked(chunk(b" "))):
        with configured(tmp_path, timeout) as server, server.connect() as connection:
            connection.send(start)
            assert connection.receive().error == 40002
            assert connection.closed()


def test_body_that_arrives_without_end(tmp_path: Path) -> None:
    """A body whose bytes arrive one by one must be complete after some time, else it is 40002."""
    timeout = "from plantstore.server.worker import _connection; _connection.READ_TIMEOUT = 0.5"
    with configured(tmp_path, timeout) as server, server.connect() as connection:
        connection.send(post(b"", length=65_536))
        while not connection.has_response(0.001):
            connection.send_what_is_read(b" ")
        assert connection.receive().error == 40002


def test_request_that_occupies_a_thread_for_long(tmp_path: Path) -> None:
    """A connection that occupies a thread for too long is closed."""
    longest = "from plantstore.server.worker import _worker; _worker._LONGEST_REQUEST = 0.1"
    with configured(tmp_path, longest) as server, server.connect() as connection:
        connection.send(post(b"", length=9))
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


@pytest.mark.parametrize("reserved", [128, 0])
def test_more_connections_than_file_descriptors(tmp_path: Path, reserved: int) -> None:
    """More idle connections than file descriptors end no worker, and others are served.

    So no plant in memory is lost, and no id is acknowledged twice.
    """
    limits = (
        "from resource import RLIMIT_NOFILE, setrlimit",
        "from plantstore.server.worker import _worker",
        "setrlimit(RLIMIT_NOFILE, (100, 256))",
        f"_worker._RESERVED = {reserved}",
    )
    with ExitStack() as connections, configured(tmp_path, *limits) as server:
        body = new_rose()
        assert server.request(post(body)).status == 200
        for _ in range(400):
            connections.enter_context(server.connect())
        assert promptly(server, post(body)).error == 40004
        assert server.log.count("Booting worker") == 1
        if reserved == 0:
            server.wait_for("Connections had to wait: Too many open files")


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
    """A body in unreasonably many chunks, extensions or trailers is refused early with 40002."""
    with server.connect() as connection:
        connection.send_what_is_read(chunked(*chunks))
        assert connection.receive().error == 40002
        assert connection.closed()


def test_many_chunks_of_a_reasonable_size(server: Gunicorn) -> None:
    """A body of the maximum size may arrive in thousands of chunks."""
    chunks = [chunk(b" " * 16)] * 4000
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
    """A request that is not valid HTTP gets an Error at once.

    The log has its number, the address and the id of the request, and none of its text.
    """
    with server.connect() as connection:
        connection.send_what_is_read(head)
        response = connection.receive()
        assert response.error // 100 == response.status
        assert response.headers["content-type"] == "application/json"
        assert b"s3cret" not in response.body
        assert connection.closed()
    id = response.headers["x-request-id"]
    server.wait_for(rf"\[INFO\] {response.error}: .*, address: '127\.0\.0\.1', request: {id}\)")


def test_malformed_rest_of_a_refused_body(server: Gunicorn) -> None:
    """After a refused request, a malformed rest of its body causes no second response."""
    with server.connect() as connection:
        connection.send(chunked(b"s3cret\r\n").replace(b"Bearer s3cret", b"Bearer wrong"))
        assert connection.receive().error == 40102
        assert connection.closed()


def test_half_request_is_not_logged(server: Gunicorn) -> None:
    """When a client disconnects in the middle of a request, the log has none of its text."""
    for part in (post(b"{}")[:-20], post(b"{}")[:-5]):
        with server.connect() as connection:
            connection.send(part)
    server.wait_for("premature client disconnection")


def test_fault_of_an_application(tmp_path: Path) -> None:
    """A fault outside of Flask is an Error without details; the log has the traceback."""
    (tmp_path / "own.py").write_text("def app(environ, start_response):\n    raise ValueError")
    with Gunicorn("--pythonpath", str(tmp_path), "own:app") as server:
        response = server.request(post(b""))
        assert response.error == 50001
        assert b"ValueError" not in response.body
        server.wait_for("ValueError")


def test_unix_socket(tmp_path: Path) -> None:
    """The service may listen on a Unix socket, as behind a proxy on the same machine."""
    path = tmp_path / "socket"
    with (
        Gunicorn("--bind", f"unix:{path}", PLANTSTORE_TOKENS=TOKEN) as server,
        server.connect(path=path) as connection,
    ):
        for _ in range(2):
            connection.send(post(new_rose()))
            assert connection.receive().status == 200


def test_connections_that_send_many_requests(tmp_path: Path) -> None:
    """Connections that use up the limit, and have many requests to handle, do not keep others out.

    Each of them is closed after a response.
    """
    requests = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 200
    limit = "worker_connections = 30"
    with ExitStack() as opened, configured(tmp_path, limit) as server:
        for _ in range(60):
            opened.enter_context(server.connect()).send(requests)
        for _ in range(5):
            assert promptly(server, post(new_rose())).status == 200


def test_no_memory_for_another_thread(server: Gunicorn, clients: list[Connection]) -> None:
    """If no more threads can be started, the service continues with those that it has."""
    worker = int(server.wait_for(r"Booting worker with pid: (\d+)")[1])
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[0])
    # The stack of a thread takes 8 MiB.
    limit = pages * resource.getpagesize() + 4 * 2**20
    resource.prlimit(worker, resource.RLIMIT_AS, (limit, limit))
    for client in clients[:6]:
        client.send(post(b"", length=9))
    assert promptly(server, post(new_rose())).status == 200


# SIGQUIT arrives while gunicorn passes a request to the threads.
QUIT = """
import os, signal
from concurrent.futures import ThreadPoolExecutor as Pool
adjust = Pool._adjust_thread_count

def quit_then_adjust(pool):
    if len(pool._threads) == threads:
        os.kill(os.getpid(), signal.SIGQUIT)
    adjust(pool)

Pool._adjust_thread_count = quit_then_adjust
"""


def test_quit_of_a_busy_worker(tmp_path: Path) -> None:
    """SIGQUIT ends a worker whatever it does at that moment, and another worker replaces it."""
    with configured(tmp_path, QUIT) as server, server.connect() as connection:
        connection.send(post(new_rose()))
        wait_until(lambda: server.log.count("Booting worker") == 2)


@contextmanager
def with_tls(folder: Path, *lines: str, **environment: str) -> Iterator[Gunicorn]:
    """Run the service with TLS."""
    make_certificate(folder)
    files = (f"certfile = '{folder}/cert.pem'", f"keyfile = '{folder}/key.pem'")
    with configured(folder, *files, *lines, **environment) as server:
        yield server


@pytest.mark.parametrize("sent", [b"", b"\x16"])
def test_tls_with_clients_that_stop_in_the_handshake(tmp_path: Path, sent: bytes) -> None:
    """With TLS, clients that stop in the middle of the handshake do not block others."""
    with with_tls(tmp_path) as server, ExitStack() as opened:
        for _ in range(CLIENTS):
            opened.enter_context(server.connect()).send(sent)
        with server.connect(tls=True) as connection:
            connection.limit(PATIENCE)
            for _ in range(2):
                connection.send(post(new_rose()))
                assert connection.receive().status == 200


def test_tls_with_clients_that_stop_in_the_head(tmp_path: Path) -> None:
    """With TLS, clients that stop in the middle of a head do not block others, and can continue."""
    with with_tls(tmp_path) as server, ExitStack() as opened:
        clients = [opened.enter_context(server.connect(tls=True)) for _ in range(CLIENTS)]
        *requests, last = [post(new_rose()) for _ in range(CLIENTS + 1)]
        for client, request in zip(clients, requests, strict=True):
            client.send(request[:20])
        with server.connect(tls=True) as other:
            other.limit(PATIENCE)
            other.send(last)
            assert other.receive().status == 200
        for client, request in zip(clients, requests, strict=True):
            client.send(request[20:])
            assert client.receive().status == 200


def test_pipelining_with_tls(tmp_path: Path) -> None:
    """With TLS, each request of a record gets its response, wherever the service stops to read."""
    with with_tls(tmp_path) as server, server.connect(tls=True) as connection:
        connection.limit(PATIENCE)
        for size in (8192, 10_000):  # gunicorn reads 8,192 bytes.
            padding = size - len(post(b" " * 1000)) + 1000
            connection.send(post(new_rose().ljust(padding)) + post(new_rose()))
            assert [connection.receive().status for _ in range(2)] == [200, 200]


def test_slow_body_with_tls(tmp_path: Path) -> None:
    """With TLS, a body that takes longer to arrive than the service waits is 40002."""
    timeout = "from plantstore.server.worker import _connection; _connection.READ_TIMEOUT = 0.3"
    with with_tls(tmp_path, timeout) as server, server.connect(tls=True) as connection:
        connection.send(post(b"", length=9))
        assert connection.receive().error == 40002


def test_large_response_that_is_not_read_with_tls(tmp_path: Path) -> None:
    """With TLS, a client that does not read a large response does not occupy a thread forever."""
    timeout = "from plantstore.server.worker import _connection; _connection._SEND_TIMEOUT = 0.3"
    with (
        with_tls(tmp_path, SMALL_BUFFERS, timeout, "threads = 1", **LARGE_BODIES) as server,
        server.connect(unread=1, tls=True) as connection,
    ):
        connection.send(post(b'{"id":1,"name":"%s"}' % (b"x" * 1_000_000)))
        with server.connect(tls=True) as other:
            other.limit(PATIENCE)
            other.send(post(new_rose()))
            assert other.receive().status == 200


def test_http_to_a_tls_port(tmp_path: Path) -> None:
    """A client that sends no TLS to a port with TLS is disconnected, and others are served."""
    with with_tls(tmp_path) as server:
        with server.connect() as connection:
            connection.send(post(new_rose()))
            assert connection.closed()
        with server.connect(tls=True) as connection:
            connection.send(post(new_rose()))
            assert connection.receive().status == 200


@pytest.mark.parametrize("hosts", [b"Host: x\r\nHost: x", b"Host: x\r\nHost: y"])
def test_several_host_headers(server: Gunicorn, hosts: bytes) -> None:
    """A request with several Host headers is 40005 (RFC 9112 section 3.2)."""
    assert server.request(b"GET / HTTP/1.1\r\n" + hosts + b"\r\n\r\n").error == 40005


def test_worker_of_another_application(tmp_path: Path) -> None:
    """By itself, the worker refuses what is not valid HTTP with plain text, and does not log it."""
    worker = "worker_class = 'plantstore.server.worker.Worker'"
    with configured(tmp_path, worker) as server:
        response = server.request(b"hunter2\r\n\r\n")
        assert "hunter2" not in server.log
    assert (response.status, response.headers["content-type"]) == (400, "text/plain")
    assert response.body == b"The request line is invalid."
