"""A client: what has arrived of its next request, and what it has not read yet."""

import socket
import ssl
from collections import deque
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT, poll
from threading import Lock
from typing import Any

from ._framing import ChunkedBody

#: The seconds in which a client must read something of a response.
SEND_TIMEOUT = 5.0
# The number of bytes that are received at a time.
_RECEIVED_SIZE = 65536
# The application produces nothing more while more bytes than these wait for the client.
_MAX_OUTPUT = 1 << 20
# Parts of a response are joined up to this size in bytes, so that they are sent together. A larger
# one is not copied: many clients may wait for the same one, such as a file that is kept in memory.
_JOINED_SIZE = 16384
# The errors of a socket that is not ready.
_NOT_READY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class CannotRespond(OSError):
    """A response cannot be completed: the client does not read it, or the application failed."""


class Head:
    """A head: gunicorn's request object, the environ that the application gets, and its lines."""

    def __init__(self, request: Any, lines: list[bytes], size: int) -> None:
        #: The environ is empty until the request is executed. No other head comes before that.
        self.request, self.environ = request, dict[str, Any]()
        #: The last lines for which it was used, and the size in bytes that they cannot exceed.
        self.lines, self.size = lines, size


class Client:
    """A client: its socket, its address, and the address at which the service listens."""

    def __init__(self, sock: Any, address: Any, server: Any) -> None:
        self.sock = sock
        self.fd: int = sock.fileno()
        self.address, self.server = address, server
        #: A thread that has this lock is responsible for the client. Others leave it alone.
        self.lock = Lock()
        #: The event for which the client waits, and its time limit by the monotonic clock.
        self.event, self.deadline = EPOLLIN, 0.0
        #: The bytes that have arrived of the next requests, and whether the client sends no more.
        self.data, self.has_ended = bytearray(), False
        #: What the client has not read yet.
        self.output: deque[bytes | memoryview] = deque()
        #: The number of requests so far, and the client's address from the PROXY protocol.
        self.requests = 0
        self.proxied: dict[str, Any] | None = None
        #: The heads that are kept, by their numbers of lines.
        self.heads: dict[int, Head] = {}
        #: Whether the connection ends after the response, and how many bytes are discarded then.
        self.is_last, self.to_discard = False, 0
        self.forget_request()

    def forget_request(self) -> None:
        """Forget the request that was executed, so that the next one can arrive."""
        #: The number of bytes of the head that have been looked at.
        self.seen = 0
        #: The head, the request that gunicorn has parsed from it, and its size in bytes.
        self.head: Any = None
        self.request: Any = None
        self.head_size = 0
        #: Its header fields by their names in upper case, and its body for the application.
        self.fields: dict[str, str] = {}
        self.body: Any = None
        #: It finds the end of a chunked body. None for another body.
        self.chunks: ChunkedBody | None = None
        #: When the whole request had arrived.
        self.arrived = 0.0

    def receive(self) -> bool:
        """Receive what has arrived, and return whether this has changed anything.

        With TLS, it begins with the handshake.
        """
        try:
            received = self.sock.recv(_RECEIVED_SIZE)
        except _NOT_READY as error:
            self.event = EPOLLOUT if isinstance(error, ssl.SSLWantWriteError) else EPOLLIN
            return False
        self.data += received
        self.has_ended = not received
        return True

    def has_buffered(self) -> bool:
        """Return whether something has arrived for which the system does not wait any more."""
        return bool(self.data) or isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def wait(self, event: int, seconds: float) -> bool:
        """Wait for an event of the connection, at most so long; return whether it has happened."""
        waiting = poll()
        waiting.register(self.fd, event)
        return bool(waiting.poll(seconds * 1000))

    def sendall(self, data: bytes) -> None:
        """Add bytes to those that the next :meth:`flush` sends. gunicorn calls this method."""
        if self.output and len(self.output[-1]) + len(data) <= _JOINED_SIZE:
            data = b"".join((self.output.pop(), data))
        self.output.append(data)

    def limit_output(self) -> None:
        """Wait until at most 1 MiB waits for the client.

        :raises CannotRespond: if it reads nothing for :data:`SEND_TIMEOUT` seconds.
        """
        while sum(map(len, self.output)) > _MAX_OUTPUT:
            if not self.wait(EPOLLOUT, SEND_TIMEOUT):
                raise CannotRespond("the response was not read")
            self.flush()

    def flush(self) -> bool:
        """Send what the client can take now, and return whether this is all.

        :raises CannotRespond: if the connection is broken.
        """
        try:
            while self.output:
                part = self.output[0]
                sent = self.sock.send(part)
                if sent == len(part):
                    self.output.popleft()
                else:
                    self.output[0] = memoryview(part)[sent:]
        except _NOT_READY:
            return False
        except OSError as error:
            raise CannotRespond(*error.args) from error
        return True

    def loss(self) -> tuple[bool, bool, bool]:
        """Return what the client would lose: a response, a request with its head, another one."""
        has_head = self.request is not None and not self.to_discard
        return bool(self.output), has_head, bool(self.data or self.to_discard)

    def held(self) -> dict[int, int]:
        """Return the size of each object that the client holds in memory, by its identity."""
        parts = [getattr(part, "obj", part) for part in [*self.output]]
        return {id(part): len(part) for part in [self.data, *parts]}

    def discard(self) -> bool:
        """Discard what the client still sends, and return whether it may send more."""
        size = len(socket.socket.recv(self.sock, _RECEIVED_SIZE))  # TLS has ended.
        self.to_discard -= size
        return size > 0 and self.to_discard > 0

    def finish(self) -> None:
        """Send nothing more."""
        with suppress(ValueError, ssl.SSLError):
            if isinstance(self.sock, ssl.SSLSocket):
                self.sock.unwrap()
        socket.socket.shutdown(self.sock, socket.SHUT_WR)
