"""A worker of gunicorn with threads, in which no thread waits for a slow client."""

import errno
import resource
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from operator import attrgetter
from selectors import EVENT_READ, EVENT_WRITE
from threading import Event
from types import FrameType
from typing import Any

from gunicorn import util
from gunicorn.http import errors
from gunicorn.workers.gthread import ThreadWorker

from ._connection import READ_TIMEOUT, Connection, Unfinished

# File descriptors for everything but connections of clients: a SQL store has up to 16 connections,
# each with up to three files in SQLite.
_RESERVED = 128
# The seconds in which a client must close a connection that the worker has closed, and the bytes
# that the worker discards meanwhile (RFC 9112 section 9.6).
_LINGER_TIMEOUT = 2.0
_LINGER_SIZE = 65536
# The seconds in which a new connection is not closed to make room for others.
_GRACE = 0.5
# The longest time in seconds that a thread may be occupied with one request.
_LONGEST_REQUEST = 30.0
# The errors of a connection that its client has already given up, or that another worker has taken.
_TRANSIENT = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED}
# The signals by which the main process of gunicorn stops a worker.
_STOPPING = {signal.SIGTERM, signal.SIGQUIT}
# The Error for a fault of the service.
_FAILED = (50001, "The service failed. The reason is in its log.")
# The numbers and the messages of the Errors for the exceptions by which gunicorn refuses a request.
_REFUSALS: dict[type[Exception], tuple[int, str]] = {
    errors.ForbiddenProxyRequest: (40300, "The proxy is not allowed."),
    errors.LimitRequestLine: (41400, "The request line is too long."),
    errors.ExpectationFailed: (41700, "The Expect header must be 100-continue."),
    errors.LimitRequestHeaders: (43100, "The headers are too many or too large."),
    errors.UnsupportedTransferCoding: (50100, "The Transfer-Encoding must be chunked."),
    errors.ConfigurationProblem: _FAILED,
    errors.InvalidResponseHeader: _FAILED,
    errors.InvalidResponseHeaderName: _FAILED,
    errors.InvalidRequestLine: (40000, "The request line is invalid."),
    errors.InvalidRequestMethod: (40000, "The method is invalid."),
    errors.InvalidHTTPVersion: (40000, "The version of HTTP is invalid."),
    errors.InvalidHeader: (40000, "A header is invalid."),
    errors.InvalidHeaderName: (40000, "The name of a header is invalid."),
    errors.ObsoleteFolding: (40000, "A header must be on one line."),
    errors.ParseException: (40000, "The request is not valid HTTP."),
    ssl.SSLError: (40000, "The request is not valid TLS."),
    Exception: _FAILED,
}


class Worker(ThreadWorker):
    """A worker that other clients can use while some are slow, hostile or do not read.

    A thread handles a connection only when the head of a request is complete and the client has
    read the earlier responses. The worker waits for both in its main loop, and also for the client
    to close a connection (gunicorn itself blocks its main loop meanwhile since its pull request
    3590). The number of connections is limited by that of file descriptors.
    """

    worker_connections: int
    nr_conns: int

    @staticmethod
    def refuse(
        number: int, message: str, address: str | None, fault: BaseException | None
    ) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers of the response to what is not valid HTTP.

        A subclass may override it, and write it to its log.

        :param number: the number of the error: its HTTP status times 100, plus a counter.
        :param message: what is wrong. It has no part of the request.
        :param address: the address of the client, or ``None`` if it has none.
        :param fault: the exception if the server itself has failed, or ``None``.
        """
        return message.encode(), {"Content-Type": "text/plain"}

    @staticmethod
    def set_waited(seconds: float) -> None:
        """Take notice of the time that the request of the current thread has waited for it.

        A subclass may use it. This class does nothing.
        """

    def init_process(self) -> None:
        """Raise the limit of file descriptors, and start."""
        _exit_on_signals()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        most = sys.maxsize if most == resource.RLIM_INFINITY else most
        available = max(most // 2, most - _RESERVED)
        self.worker_connections = min(self.worker_connections, available)
        self.max_keepalived: int = self.worker_connections - self.cfg.threads
        # The connections whose client the worker waits for, in the order in which this began.
        self._waiting: dict[Connection, _Continue] = {}
        # The connections that threads handle, and when this began.
        self._handled: dict[Connection, float] = {}
        self._next_check = 0.0
        self._exhausted: str | None = None  # Why a connection could not be accepted.
        super().init_process()

    def get_thread_pool(self) -> ThreadPoolExecutor:
        """Return the threads, all of them started.

        If a thread could not be started later, the worker would end, and with it the plants in its
        memory.
        """
        pool: ThreadPoolExecutor = super().get_thread_pool()
        started = Event()
        try:
            for _ in range(self.cfg.threads):
                pool.submit(started.wait)
        finally:
            started.set()
        return pool

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at once.

        The thread pool is not shut down: the signal may have interrupted a method of it, which has
        locked it.
        """
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        super(ThreadWorker, self).handle_quit(sig, frame)

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection, unless the system has no resources for it."""
        try:
            sock, client = listener.accept()
        except OSError as error:
            if error.errno not in _TRANSIENT:  # pragma: no branch  # Rare, with several workers.
                self._exhausted = error.strerror
                self._close_oldest()
            return
        self.nr_conns += 1
        server = listener.getsockname()
        self._await(Connection(self.cfg, self.linger, sock, client, server), EVENT_READ)

    def linger(self, conn: Connection) -> None:
        """Close a connection as soon as its client has done so, or after some time."""
        self.nr_conns += 1  # It is still open.
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(conn)
        else:
            conn.deadline = time.monotonic() + _LINGER_TIMEOUT
            self._wait(conn, EVENT_READ, partial(self._drain, _LINGER_SIZE))

    def murder_pending(self) -> None:
        """Close connections whose client was too slow, or that use up all connections."""
        now = time.monotonic()
        if self.nr_conns >= self.worker_connections:
            self._make_room(now)
        if now >= self._next_check:
            self._next_check = now + 1
            self._check_connections(now)

    def _check_connections(self, now: float) -> None:
        if self._exhausted:
            self.log.warning("Connections had to wait: %s", self._exhausted)
            self._exhausted = None
        for conn in [one for one in self._waiting if one.deadline <= now]:
            self._give_up(conn)
        handled = self._handled.copy()  # Threads change the original.
        for conn in [one for one in handled if handled[one] + _LONGEST_REQUEST <= now]:
            with suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RDWR)

    def enqueue_req(self, conn: Connection) -> None:
        """Let a thread handle a connection, as soon as one is free."""
        conn.enqueued = time.monotonic()
        super().enqueue_req(conn)

    def handle(self, conn: Connection) -> bool:
        """Handle a request on a connection, in a thread.

        If all threads wait for a database, requests that wait for them are answered in time too.

        :returns: whether the connection stays open.
        """
        self.set_waited(time.monotonic() - conn.enqueued)
        if conn.initialized and not conn.is_read():
            conn.awaited_event = EVENT_WRITE
            return True
        self._handled[conn] = time.monotonic()
        try:
            return super().handle(conn)
        except Unfinished:
            if conn.initialized:
                conn.parser.req_count -= 1
            conn.awaited_event = EVENT_READ
            return True
        finally:
            del self._handled[conn]

    def finish_request(self, conn: Connection, fs: Future[bool]) -> None:
        """Continue with a connection that a thread has handled."""
        event, conn.awaited_event = conn.awaited_event, 0
        if event:
            self._await(conn, event)
        else:
            conn.deadline = 0
            super().finish_request(conn, fs)

    def handle_request(self, req: Any, conn: Connection) -> bool:
        """Handle a request whose head was read, in a thread."""
        if self.nr_conns >= self.worker_connections:
            req.force_close()  # Connections that pipeline requests must not keep others out.
        try:
            return super().handle_request(req, conn)
        except (BlockingIOError, TimeoutError):  # gunicorn would log a traceback.
            raise ConnectionResetError(errno.ECONNRESET, "the response was not read") from None

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Refuse a request that is not valid HTTP, with an Error (interface section 7).

        gunicorn would log a part of the request, which may contain a token.
        """
        number, message = _refusal(exc)
        address = addr[0] if isinstance(addr, tuple) else None
        body, headers = self.refuse(number, message, address, exc if number == 50001 else None)
        with suppress(OSError):
            client.sendall(_response(number // 100, body, headers))

    def _keepalive_after(self, conn: Connection, keepalive: bool) -> bool:
        """Return whether the connection can have another request.

        The rest of a body that was refused is discarded only if it has already arrived.
        """
        conn.parser.unreader.deadline = None
        try:
            kept = keepalive and conn.parser.finish_body(max_bytes=_LINGER_SIZE)
        except (OSError, errors.ParseException):
            return False
        if kept:
            conn.parser.unreader.take_pending()
        return kept

    def _await(self, conn: Connection, event: int) -> None:
        """Let a thread handle a connection after an event: the client sends or reads something."""
        seconds = READ_TIMEOUT if self.alive else _LINGER_TIMEOUT
        conn.deadline = conn.deadline or time.monotonic() + seconds
        self._wait(conn, event, self.enqueue_req)

    def _wait(self, conn: Connection, event: int, then: "_Continue") -> None:
        conn.sock.setblocking(False)
        self._waiting[conn] = then
        self.poller.register(conn.sock, event, partial(self._continue, conn))

    def _continue(self, conn: Connection, _: socket.socket) -> None:
        # Another event of the same moment may have closed the connection.
        if conn in self._waiting:  # pragma: no branch  # Rare.
            self._stop_waiting(conn)(conn)

    def _stop_waiting(self, conn: Connection) -> "_Continue":
        self.poller.unregister(conn.sock)
        return self._waiting.pop(conn)

    def _drain(self, limit: int, conn: Connection) -> None:
        """Discard what a client still sends on a connection that the worker has closed."""
        received = 0
        with suppress(OSError):
            received = len(conn.sock.recv(limit))
        if 0 < received < limit:
            self._wait(conn, EVENT_READ, partial(self._drain, limit - received))
        else:
            self._close(conn)

    def _make_room(self, now: float) -> None:
        """Close the connection that has waited for its client for the longest time."""
        conn = self._oldest()
        if conn is not None and conn.deadline <= now + READ_TIMEOUT - _GRACE:
            self._give_up(conn)

    def _close_oldest(self) -> None:
        conn = self._oldest()
        if conn is None:
            time.sleep(0.1)  # The listener stays readable, so the main loop does not pause.
        else:
            self._give_up(conn)

    def _oldest(self) -> Connection | None:
        return min(self._waiting, key=attrgetter("deadline"), default=None)

    def _give_up(self, conn: Connection) -> None:
        self._stop_waiting(conn)
        self._close(conn)

    def _close(self, conn: Connection) -> None:
        self.nr_conns -= 1
        conn.close()

    def _cap_keepalive(self, deadline: float) -> None:
        """Wait no longer than this for clients when the worker stops."""
        super()._cap_keepalive(deadline)
        for conn in self._waiting:
            conn.deadline = min(conn.deadline, deadline)


def _exit_on_signals() -> None:
    """Let a signal that stops the service end this process, also if it came after the fork.

    gunicorn loses such a signal until the worker has its own handlers, and then waits for the
    graceful timeout.
    """
    inherited: Any = signal.getsignal(signal.SIGTERM)  # A method of the main process.
    for number in _STOPPING:
        signal.signal(number, lambda *_: sys.exit(0))
    queue = inherited.__self__.SIG_QUEUE
    if _STOPPING.intersection(queue.get_nowait() for _ in range(queue.qsize())):
        sys.exit(0)


# A function that continues with a connection after the event that it has waited for.
_Continue = Callable[[Connection], None]


def _refusal(error: BaseException) -> tuple[int, str]:
    if isinstance(error, errors.InvalidHeader) and error.hdr == "HOST":
        return 40005, "There must be one Host header."
    return next(_REFUSALS[kind] for kind in _REFUSALS if isinstance(error, kind))


def _response(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    """Return the response to a request, after which the connection is closed."""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Connection: close",
        f"Date: {util.http_date()}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    )
    return "\r\n".join([*head, "", ""]).encode() + body
