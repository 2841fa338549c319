"""Real servers on free ports, and clients that control every byte they send."""

import os
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from http.client import parse_headers
from pathlib import Path
from random import SystemRandom
from typing import Any, NamedTuple, Self, TypeVar

import orjson

ROOT = Path(__file__).parents[2]
# Seconds after which a test fails instead of waiting any longer. No operation takes nearly as
# long, even on a busy machine.
LIMIT = 60
# Seconds in which a client gets its response although others are slow, on a busy machine.
PATIENCE = 8
# Ports below those that Linux itself gives to outgoing connections. Otherwise such a connection
# could take a port before its server binds it, or while the server restarts.
PORTS = range(20000, 32000)
Found = TypeVar("Found")


def tls_context() -> ssl.SSLContext:
    """Return the context of a client that accepts every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def listening(port: int) -> bool:
    """Return whether a server listens on a port of this machine."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of an address that is not in use; each call chooses at random."""
    # hypothesis seeds the default generator: two test runs would choose the same ports.
    for port in SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise AssertionError("100 random ports are all in use")


class Response(NamedTuple):
    """An HTTP response as the client received it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> int:
        """The number of the Error in the body."""
        number: int = orjson.loads(self.body)["error"]
        return number


class Endpoint:
    """What clients connect to: a port of this machine."""

    port: int
    #: Whether clients use TLS by default.
    tls = False

    def connect(self, **options: Any) -> "Connection":
        """Open a connection, with the options of :class:`Connection`."""
        return Connection(self.port, **{"tls": self.tls, **options})

    @contextmanager
    def clients(
        self, number: int, sent: bytes = b"", **options: Any
    ) -> Iterator[list["Connection"]]:
        """Provide connections, each of which has sent these bytes."""
        with ExitStack() as opened:
            clients = []
            for _ in range(number):
                clients.append(opened.enter_context(self.connect(**options)))
                clients[-1].send(sent)
            yield clients

    def request(self, request: bytes) -> Response:
        """Send one request on a new connection and return the response."""
        with self.connect() as connection:
            return connection.request(request)


class Server(AbstractContextManager["Server"], Endpoint):
    """`python -m COMMAND` in the project's folder, or another one, with more variables."""

    def __init__(self, *command: str, cwd: Path = ROOT, **environment: str) -> None:
        # A pipe that is not read would block the server when it is full.
        self._log = tempfile.NamedTemporaryFile(prefix="server-")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            print(self.log)  # In the report of the test that fails.
        self.stop()

    def wait_until_ready(self) -> None:
        """Return when the server accepts connections on ``port``."""
        self.port = int(self.wait_for(r"Listening at: https?://127\.0\.0\.1:(\d+)")[1])

    def stop(self) -> None:
        """Stop the server; return when its process has ended."""
        self.process.terminate()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(LIMIT)
            raise
        finally:
            self._log.close()

    @property
    def log(self) -> str:
        """The server's output until now."""
        return Path(self._log.name).read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server's main process."""
        self.process.send_signal(number)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match of a pattern in the log, as soon as there is one."""
        return self.wait_until(lambda: re.search(pattern, self.log))

    def wait_until(self, condition: Callable[[], Found | None]) -> Found:
        """Return the first true value of a condition. Fail if the server ends before."""
        deadline = time.monotonic() + LIMIT
        while not (found := condition()):
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)
        return found


class Gunicorn(Server):
    """`gunicorn ARGUMENTS`."""

    def __init__(self, *arguments: str, **environment: Any) -> None:
        super().__init__("gunicorn", "--bind", "127.0.0.1:0", *arguments, **environment)


@contextmanager
def together(servers: Iterable[Server]) -> Iterator[list[Server]]:
    """Run several servers."""
    with ExitStack() as running:
        yield [running.enter_context(server) for server in servers]


@contextmanager
def configured(folder: Path, *lines: str, **environment: str) -> Iterator[Gunicorn]:
    """Run the service with its configuration of gunicorn and more lines of Python."""
    config = folder / "gunicorn.py"
    config.write_text("\n".join(["from plantstore.server.config import *", *lines]))
    with Gunicorn("-c", str(config), PLANTSTORE_TOKENS="s3cret", **environment) as server:
        yield server
        assert "Traceback" not in server.log


def constants(**values: float) -> str:
    """Return the lines of a configuration that change constants of the worker."""
    lines = [f"_worker.{name} = {value}" for name, value in values.items()]
    return "\n".join(["from plantstore.server.worker import _worker", *lines])


# The lines of a configuration with small buffers for responses, so that a test can fill them.
SMALL_BUFFERS = """
from socket import SO_SNDBUF, SOL_SOCKET

def when_ready(server):
    for listener in server.LISTENERS:
        listener.sock.setsockopt(SOL_SOCKET, SO_SNDBUF, 1)
"""


class Granian(Server):
    """`granian ARGUMENTS wsgi:app`."""

    def __init__(self, *arguments: str, **environment: Any) -> None:
        command = ("granian", "--interface=wsgi", f"--port={free_port()}", *arguments, "wsgi:app")
        super().__init__(*command, **environment)

    def wait_until_ready(self) -> None:
        """Return when a worker accepts connections: its lines in the log come earlier."""
        super().wait_until_ready()
        self.wait_until(lambda: listening(self.port))


class Connection(AbstractContextManager["Connection"]):
    """A connection that sends exactly the bytes of the test.

    :param path: the path of a Unix socket, to be used instead of the port.
    :param unread: the bytes that it accepts at most before the test reads them; 0 is many.
    :param source: the address of the client.
    """

    def __init__(
        self,
        port: int,
        path: Path | None = None,
        unread: int = 0,
        tls: bool = False,
        source: str = "",
    ) -> None:
        self._socket = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self._socket.settimeout(LIMIT)
        if unread:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, unread)
            # Packets of the size of Ethernet's. Otherwise, one of 64 KiB takes a whole response.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1460)
        try:
            if source:
                self._socket.bind(source if path else (source, 0))
            self._socket.connect(str(path) if path else ("127.0.0.1", port))
            if tls:
                self._socket = tls_context().wrap_socket(self._socket)
        except BaseException:
            self._socket.close()
            raise
        self._input = self._socket.makefile("rb")

    def __exit__(self, *exc: object) -> None:
        self._input.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        self._socket.sendall(data)

    def send_what_is_read(self, data: bytes) -> bool:
        """Send as much of these bytes as the server reads; return whether it reads all of them."""
        with suppress(ConnectionError):
            self.send(data)
            return True
        return False

    def limit(self, seconds: float) -> None:
        """Limit the time in which a later call must end."""
        self._socket.settimeout(seconds)

    def has_response(self, seconds: float) -> bool:
        """Return whether the server sends something within these seconds."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def reset(self) -> None:
        """Close the connection so that the server gets an error instead of the end of input."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.__exit__()

    def finish(self) -> None:
        """End the sending direction: the server reads the end of the input."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive_line(self) -> bytes:
        """Read one line of a response."""
        return self._input.readline()

    def receive_head(self) -> Response:
        """Read the status line and the headers of a response that has no body."""
        status = int(self.receive_line().split()[1])
        headers = parse_headers(self._input)
        return Response(status, {name.lower(): value for name, value in headers.items()}, b"")

    def receive(self) -> Response:
        """Read one response, with the body that its Content-Length declares."""
        head = self.receive_head()
        return head._replace(body=self._input.read(int(head.headers.get("content-length", "0"))))

    def request(self, request: bytes) -> Response:
        """Send one request, and return the response."""
        self.send(request)
        return self.receive()

    def receive_rest(self, until: bytes) -> bytes:
        """Read the rest of a response, which ends with these bytes."""
        received = b""
        while not received.endswith(until):
            piece = self._input.read1(65536)
            assert piece, "the response has ended early"
            received += piece
        return received

    def receive_some(self, size: int) -> bytes:
        """Read at most this number of bytes of a response."""
        return self._input.read1(size)

    def receive_all(self) -> bytes:
        """Read until the server closes the connection."""
        return self._input.read()

    def closed(self) -> bool:
        """Return whether the server closes the connection without sending anything more."""
        return self._input.read(1) == b""


def promptly(server: Server, request: bytes, **options: Any) -> Response:
    """Return the response that another client gets in a reasonable time."""
    with server.connect(**options) as connection:
        connection.limit(PATIENCE)
        return connection.request(request)


def post(body: bytes, *headers: str, length: int | None = None) -> bytes:
    """Return the bytes of a create request with a token; ``headers`` follow the usual ones."""
    lines = ["POST /plants HTTP/1.1", "Host: localhost", "Authorization: Bearer s3cret"]
    lines += ["Content-Type: application/json"]
    lines += [f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*chunks: bytes) -> bytes:
    """Return the bytes of a create request whose body is exactly these chunks."""
    head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    return head + b"".join(chunks)


def chunk(data: bytes) -> bytes:
    """Return one chunk of a body; an empty one is the last."""
    return b"%x\r\n%s\r\n" % (len(data), data)
