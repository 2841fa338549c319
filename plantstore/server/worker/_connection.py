"""A connection of a client, with limits of time and size for what is read from it."""

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from gunicorn.http import get_parser
from gunicorn.http.body import ChunkedReader
from gunicorn.http.errors import InvalidChunkSize, NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.unreader import SocketUnreader
from gunicorn.sock import is_http2_negotiated, ssl_wrap_socket
from gunicorn.workers.gthread import TConn

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
    """A connection that closes without blocking, and whose head is read without waiting.

    :param cfg: the configuration of gunicorn.
    :param linger: closes a connection as soon as its client has done so.
    :param sock: its socket.
    :param client: the address of the client.
    :param server: the address of the server.
    """

    def __init__(
        self,
        cfg: Any,
        linger: Callable[["Connection"], None],
        sock: socket.socket,
        client: Any,
        server: Any,
    ) -> None:
        super().__init__(cfg, sock, client, server)
        #: When the worker stops waiting for the client, by the monotonic clock; 0 if it does not.
        self.deadline: float = 0
        #: When the worker gave it to the threads, by the monotonic clock.
        self.enqueued: float = 0
        #: The event that the client must cause before a thread handles the connection, or 0.
        self.awaited_event: int = 0
        self.data_ready = True  # The worker waits for the first byte, not a thread.
        self._linger = linger
        _set_timeout(sock, socket.SO_RCVTIMEO, READ_TIMEOUT)
        _set_timeout(sock, socket.SO_SNDTIMEO, _SEND_TIMEOUT)

    def init(self) -> None:
        """Prepare the connection for its first request. A thread calls this."""
        if self.initialized:
            return
        if self.cfg.is_ssl:
            self._handshake()
            self.is_http2: bool = is_http2_negotiated(self.sock)
            self.parser: Any = get_parser(self.cfg, self.sock, self.client, self.is_http2)
            if self.is_http2:  # pragma: no cover  # gunicorn offers it only on request.
                self.parser.initiate_connection()
        super().init()
        if not self.is_http2:  # pragma: no branch
            unreader = Unreader(self.sock)
            unreader.buf = self.parser.unreader.buf
            self.parser.unreader, self.parser.mesg_class = unreader, LimitedRequest

    def _handshake(self) -> None:
        """Continue with the handshake of TLS, without waiting."""
        if not isinstance(self.sock, ssl.SSLSocket):
            self.sock: socket.socket = ssl_wrap_socket(self.sock, self.cfg)
        self.sock.setblocking(False)
        try:
            self.sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise Unfinished from None

    def close(self, graceful: bool = False) -> None:
        """Close the connection. If ``graceful``, the client can still read the last response."""
        if graceful:
            self._linger(self)
        else:
            super().close()

    def is_read(self) -> bool:
        """Return whether the client reads the responses: there is room for another one."""
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT)
        return bool(poll.poll(0))


class Unfinished(BaseException):
    """The handshake of TLS or the head of a request is not complete.

    gunicorn would catch a subclass of Exception.
    """


class Unreader(SocketUnreader):
    """Reads the head of a request without waiting, and its body until a deadline.

    :param sock: the socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        #: The number of bytes that were received from the client.
        self.received: int = 0
        #: The time until which a thread may wait for the client, or ``None`` if it may not wait.
        self.deadline: float | None = None
        self._head: list[bytes] = []  # What has been read of the head.

    def begin_head(self) -> None:
        """Begin to read a request."""
        self.deadline, self._head = None, [self.buf.getvalue()]

    def restore_head(self) -> None:
        """Undo the reading of a head that is not complete."""
        self.buf: BytesIO = BytesIO()
        self.buf.write(b"".join(self._head))

    def take_pending(self) -> None:
        """Read what TLS has already decrypted. It no longer makes the socket readable."""
        if isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
            self.unread(self.sock.recv(self.sock.pending()))

    def begin_body(self) -> None:
        """Begin to read the body of the request."""
        self.deadline, self._head = time.monotonic() + READ_TIMEOUT, []

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Return what the client has sent.

        :raises BlockingIOError: if it has sent nothing more, and a thread may not wait for it.
        :raises NoMoreData: if it sends nothing until the deadline.
        """
        data = self._receive() if self.deadline is None else self._wait(self.deadline, size_hint)
        self.received += len(data)
        return data

    def _receive(self) -> bytes:
        if isinstance(self.sock, ssl.SSLSocket):
            data = self._receive_tls()
        else:
            data = self.sock.recv(self.mxchunk, socket.MSG_DONTWAIT)
        self._head.append(data)
        return data

    def _wait(self, deadline: float, size_hint: int | None) -> bytes:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise NoMoreData
        try:
            if isinstance(self.sock, ssl.SSLSocket):
                return self._wait_tls(seconds, size_hint)
            _set_timeout(self.sock, socket.SO_RCVTIMEO, seconds)
            return super().chunk(size_hint)
        except (BlockingIOError, TimeoutError):
            raise NoMoreData from None

    def _receive_tls(self) -> bytes:
        # A TLS socket accepts no flag for this.
        self.sock.setblocking(False)
        try:
            return self.sock.recv(self.mxchunk)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        finally:
            self.sock.settimeout(_SEND_TIMEOUT)

    def _wait_tls(self, seconds: float, size_hint: int | None) -> bytes:
        # A TLS socket continues to wait after the timeout of the system.
        self.sock.settimeout(seconds)
        try:
            return super().chunk(size_hint)
        finally:
            self.sock.settimeout(_SEND_TIMEOUT)


class LimitedRequest(Request):
    """A request whose head and chunks have a limited size.

    :raises Unfinished: if its head is not complete. Another attempt can be made later.
    """

    max_buffer_headers: int

    def __init__(self, cfg: Any, unreader: Unreader, peer_addr: Any, req_number: int = 1) -> None:
        unreader.begin_head()
        try:
            super().__init__(cfg, unreader, peer_addr, req_number)
        except BlockingIOError:
            unreader.restore_head()
            raise Unfinished from None
        except NoMoreData:
            raise NoMoreData from None  # Its message would have the head, which may have a token.
        unreader.begin_body()

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


def _set_timeout(sock: socket.socket, option: int, seconds: float) -> None:
    # The seconds and microseconds of a C timeval. Zero would be no timeout.
    value = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) + 1)
    sock.setsockopt(socket.SOL_SOCKET, option, value)
