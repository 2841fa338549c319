"""A real gunicorn on a free port, and raw bytes to and from it."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Self

import orjson

ROOT = Path(__file__).parent.parent
LIMIT = 60  # Seconds that anything may take before a test gives up on it.


def listening(port: int) -> bool:
    """Tell whether anything listens on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Answer(NamedTuple):
    """An HTTP answer as it came over the socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> int:
        """The number of the Error in the body."""
        number: int = orjson.loads(self.body)["error"]
        return number


class Server(AbstractContextManager["Server"]):
    """`python -m COMMAND` in the project's folder, with these environment variables."""

    def __init__(self, *command: str, **environment: str) -> None:
        # A file, since nobody reads a pipe while the tests run.
        self._log = tempfile.NamedTemporaryFile(prefix="server-")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        listening = self.wait_for(r"Listening at: http://127\.0\.0\.1:(\d+)")
        self.port = int(listening[1])
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait(LIMIT)
        self._log.close()

    @property
    def log(self) -> str:
        """All that the server has said so far."""
        return Path(self._log.name).read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server's first process."""
        self.process.send_signal(number)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match in the log, once it is there."""
        until = time.monotonic() + LIMIT
        while (found := re.search(pattern, self.log)) is None:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.01)
        return found

    def connect(self) -> "Connection":
        """Open a connection."""
        return Connection(self.port)

    def ask(self, request: bytes) -> Answer:
        """Send one request on a connection of its own and return the answer."""
        with self.connect() as connection:
            connection.send(request)
            return connection.receive()


class Gunicorn(Server):
    """`gunicorn ARGUMENTS`."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        super().__init__("gunicorn", "--bind", "127.0.0.1:0", *arguments, **environment)


class Granian(Server):
    """`granian ARGUMENTS wsgi:app`."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        port = str(free_port())
        command = ("granian", "--interface", "wsgi", "--port", port, *arguments, "wsgi:app")
        super().__init__(*command, **environment)

    def __enter__(self) -> Self:
        super().__enter__()
        self.wait_for("Started worker-1")
        return self


class Connection(AbstractContextManager["Connection"]):
    """A connection whose every byte is the test's own."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        self._input = self._socket.makefile("rb")

    def __exit__(self, *exc: object) -> None:
        self._input.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        self._socket.sendall(data)

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive_head(self) -> Answer:
        """Read one answer that has no body: its status line and headers."""
        status = int(self._input.readline().split()[1])
        headers = {}
        while (line := self._input.readline().decode("latin-1").rstrip("\r\n")) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return Answer(status, headers, b"")

    def receive(self) -> Answer:
        """Read one answer, with as much body as its headers say."""
        head = self.receive_head()
        return head._replace(body=self._input.read(int(head.headers.get("content-length", "0"))))

    def closed(self) -> bool:
        """Tell whether the server has nothing more to say and has closed."""
        return self._input.read(1) == b""


def post(body: bytes, *headers: str, length: int | None = None) -> bytes:
    """Return the bytes of a creation, with a token; more headers follow the usual ones."""
    lines = [
        "POST /plants HTTP/1.1",
        "Host: localhost",
        "Authorization: Bearer s3cret",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*chunks: bytes, coding: str = "chunked") -> bytes:
    """Return the bytes of a creation whose body is sent like this; nothing is added."""
    head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: " + coding.encode())
    return head + b"".join(chunks)


def chunk(data: bytes) -> bytes:
    """Return one chunk; that of no bytes is the last."""
    return b"%x\r\n%s\r\n" % (len(data), data)
