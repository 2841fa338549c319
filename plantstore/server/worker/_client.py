"""A client: what has arrived of its next request, and what it has not read yet."""

import socket
import ssl
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT, poll
from threading import Lock
from typing import Any

#: The seconds in which a client must read something of a response.
SEND_TIMEOUT = 5.0
# The number of bytes that are received at a time.
_RECEIVED_SIZE = 65536
# The errors of a socket that is not ready.
_NOT_READY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ClientGone(OSError):
    """The client has closed the connection, or reads nothing of the response."""


class Client:
    """A client, with its connection. Its methods do not wait, except :meth:`wait_for_output`.

    :param sock: the socket.
    :param address: its address, as sockets have it.
    :param server: the address of the service.
    """

    def __init__(self, sock: Any, address: Any, server: Any) -> None:
        sock.setblocking(False)
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
        self.output = bytearray()
        #: The number of requests so far, and the client's address from the PROXY protocol.
        self.requests = 0
        self.proxied: dict[str, Any] | None = None
        #: The bytes of the last head before and after the digits of its Content-Length, or None if
        #: an equal head must be parsed, too.
        self.parts: tuple[bytes, bytes] | None = None
        #: What is kept of this head, if it has come twice.
        self.kept: Any = None
        #: Whether the connection ends after the response, and how many bytes are discarded then.
        self.is_last, self.to_discard = False, 0
        self.begin_request()

    def begin_request(self) -> None:
        """Wait for the next request."""
        #: The number of bytes of the head that have been looked at.
        self.seen = 0
        #: The request that gunicorn has parsed from the head, and the size of the head in bytes.
        self.request: Any = None
        self.head_size = 0
        #: Its header fields by their names in upper case, and its body for the application.
        self.fields: dict[str, str] = {}
        self.body: Any = None
        #: A function that returns the position after the body in the bytes that have arrived.
        self.body_end: Any = None
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

    def is_ready(self) -> bool:
        """Return whether the connection's event has already happened."""
        return self._has_event(self.event, 0)

    def _has_event(self, event: int, seconds: float) -> bool:
        waiting = poll()
        waiting.register(self.fd, event)
        return bool(waiting.poll(seconds * 1000))

    def send(self, data: bytes) -> None:
        """Send these bytes. What the client cannot take now waits in :attr:`output`.

        :raises ClientGone: if the client takes nothing more.
        """
        if self.flush():
            data = data[self._send(data) :]
        self.output += data

    def flush(self) -> bool:
        """Send what the client can take now, and return whether this is all.

        :raises ClientGone: if the client takes nothing more.
        """
        while self.output and (sent := self._send(self.output)):
            del self.output[:sent]
        return not self.output

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return int(self.sock.send(data))
        except _NOT_READY:
            return 0
        except OSError as error:
            raise ClientGone(*error.args) from error

    def wait_for_output(self, size: int) -> None:
        """Wait until the client has read so much that at most a number of bytes is left.

        :param size: the number of bytes.
        :raises ClientGone: if it reads nothing for so long.
        """
        while not self.flush() and len(self.output) > size:
            if not self._has_event(EPOLLOUT, SEND_TIMEOUT):
                raise ClientGone("the response was not read")

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
