"""A connection of a client, with limits of time and size for what is read from it."""

import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Any

from gunicorn.http.body import ChunkedReader
from gunicorn.http.errors import InvalidChunkSize, NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.gthread import TConn

if TYPE_CHECKING:
    from .worker import Worker

#: The seconds in which the head of a request must arrive, and then the seconds for its body.
READ_TIMEOUT = 10.0
# The seconds without progress after which the sending of a response ends.
_SEND_TIMEOUT = 5.0
# The maximum size of the head of a request, in bytes.
_MAX_HEAD = 65536
# The maximum size of a chunked body without its content, in bytes. A chunk has at least five.
_MAX_FRAMING = 32768
# The maximum size of the trailers of a chunked body, in bytes.
_MAX_TRAILERS = 8192


class Connection(TConn):
    """A connection that closes without blocking, and that knows what its client must do next.

    :param worker: the worker that has accepted it.
    :param sock: its socket.
    :param client: the address of the client.
    :param server: the address of the server.
    """

    def __init__(self, worker: "Worker", sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(worker.cfg, sock, client, server)
        #: When the worker stops waiting for the client, by the monotonic clock; 0 if it does not.
        self.deadline: float = 0
        self.data_ready = True  # The worker waits for the first byte, not a thread.
        self._worker = worker
        self._low_water_mark = 1  # The bytes that must have arrived before the socket is readable.
        _set_timeout(sock, socket.SO_RCVTIMEO, READ_TIMEOUT)
        _set_timeout(sock, socket.SO_SNDTIMEO, _SEND_TIMEOUT)

    def init(self) -> None:
        """Prepare the connection for its first request. A thread calls this."""
        if self.initialized:
            return
        super().init()
        if not self.is_http2:  # pragma: no branch
            unreader = Unreader(self.sock)
            unreader.buf = self.parser.unreader.buf
            self.parser.unreader, self.parser.mesg_class = unreader, LimitedRequest

    def close(self, graceful: bool = False) -> None:
        """Close the connection. If ``graceful``, the client can still read the last response."""
        if graceful:
            self._worker.linger(self)
        else:
            super().close()

    def awaited_event(self) -> int:
        """Return the event to wait for, so that no thread waits for the client.

        :returns: ``EVENT_WRITE`` if the client must read earlier responses first, ``EVENT_READ`` if
            the head of its request is not complete, or 0 if a thread can handle the request.
        """
        if self.initialized and not _is_ready(self.sock, select.POLLOUT):
            return EVENT_WRITE
        return 0 if self._has_request() else EVENT_READ

    def _has_request(self) -> bool:
        buffered = self.parser.unreader.buf.getvalue() if self.initialized else b""
        # A head inside TLS cannot be examined, and Unix sockets ignore SO_RCVLOWAT.
        if self.cfg.is_ssl or self.sock.family == socket.AF_UNIX:
            return bool(buffered) or _is_ready(self.sock, select.POLLIN)
        arrived = self._peek()
        if arrived is None or _is_parsable(buffered + arrived, self.cfg.limit_request_line):
            self._set_low_water_mark(1)
            return True
        self._set_low_water_mark(len(arrived) + 1)
        return False

    def _peek(self) -> bytes | None:
        """Return what has arrived, or ``None`` if the client will send nothing more."""
        try:
            arrived = self.sock.recv(_MAX_HEAD, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:
            return None
        return arrived if len(arrived) >= self._low_water_mark else None

    def _set_low_water_mark(self, size: int) -> None:
        if size != self._low_water_mark:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            self._low_water_mark = size


class Unreader(SocketUnreader):
    """Reads a request from a socket until its deadline.

    :param sock: the socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        #: The number of bytes that were received from the client.
        self.received = 0
        #: Whether a thread may wait for the client.
        self.waits = True
        self._deadline = 0.0

    def begin(self) -> None:
        """Set the deadline of a new request."""
        self.waits = True
        self._deadline = time.monotonic() + READ_TIMEOUT

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Return what the client has sent.

        :raises NoMoreData: if nothing arrives until the deadline.
        """
        seconds = self._deadline - time.monotonic()
        if not self.waits:
            self.sock.settimeout(0)
        elif seconds > 0:
            _set_timeout(self.sock, socket.SO_RCVTIMEO, seconds)
        else:
            raise NoMoreData
        try:
            data = super().chunk(size_hint)
        except (BlockingIOError, ssl.SSLWantReadError):
            raise NoMoreData from None
        self.received += len(data)
        return data


class LimitedRequest(Request):
    """A request with a deadline, whose head and chunks have a limited size."""

    max_buffer_headers: int

    def __init__(self, cfg: Any, unreader: Unreader, peer_addr: Any, req_number: int = 1) -> None:
        unreader.begin()
        try:
            super().__init__(cfg, unreader, peer_addr, req_number)
        except NoMoreData:
            raise NoMoreData from None  # Its message would have the head, which may have a token.

    def parse(self, unreader: Unreader) -> bytes:
        """Read the head of the request, and return what follows it."""
        self.max_buffer_headers = min(self.max_buffer_headers, _MAX_HEAD)
        return super().parse(unreader)

    def set_body_reader(self) -> None:
        """Prepare the reading of the body."""
        super().set_body_reader()
        reader = self.body.reader
        if isinstance(reader, ChunkedReader):
            reader.limit_trailer_section = _MAX_TRAILERS
            reader.parser = _limit_framing(reader.parser, self.unreader)


def _limit_framing(pieces: Iterator[bytes], unreader: Unreader) -> Iterator[bytes]:
    """Yield the content of a chunked body, until the chunks are unreasonably many or large."""
    content, start = 0, unreader.received
    for piece in pieces:
        content += len(piece)
        if unreader.received - start - content > _MAX_FRAMING:
            raise InvalidChunkSize(b"too many chunks")
        yield piece


def _is_parsable(head: bytes, longest_line: int) -> bool:
    """Return whether gunicorn accepts or refuses a head without waiting for more of it."""
    return (
        b"\r\n\r\n" in head
        or len(head) >= _MAX_HEAD
        or head.count(b"\n") != head.count(b"\r\n")
        or (b"\n" not in head and len(head) > longest_line + 2)
    )


def _is_ready(sock: socket.socket, event: int) -> bool:
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(0))


def _set_timeout(sock: socket.socket, option: int, seconds: float) -> None:
    # The seconds and microseconds of a C timeval. Zero would be no timeout.
    value = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) + 1)
    sock.setsockopt(socket.SOL_SOCKET, option, value)
