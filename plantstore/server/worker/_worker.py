"""A worker of gunicorn with threads, in which no thread waits for a slow client."""

import errno
import resource
import select
import socket
import struct
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, ClassVar

from gunicorn.http import errors
from gunicorn.workers.gthread import TConn, ThreadWorker

from ._head import MAX_BODY, MAX_HEAD, body_size, head_size
from ._refusals import refusal, response

# File descriptors for everything but connections of clients: a SQL store has up to 16 connections,
# each with up to three files in SQLite.
_RESERVED = 128
# The seconds in which the head of a request must arrive, and then its body. If a thread reads the
# body, the seconds in which another byte must arrive.
_READ_TIMEOUT = 10.0
# The seconds without progress after which the sending of a response ends.
_SEND_TIMEOUT = 5.0
# The longest time in seconds that a thread may be occupied with one request.
_LONGEST_REQUEST = 30.0
# The seconds in which a client must close a connection that the worker has closed, and the bytes
# that the worker discards meanwhile (RFC 9112 section 9.6).
_LINGER_TIMEOUT = 2.0
_LINGER_SIZE = 16 << 20
# The errors of a connection that its client has already given up, or that another worker has taken.
_TRANSIENT = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED}


class _Connection(TConn):
    """A connection, and what the worker waits for."""

    client: Any

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.data_ready: bool = not self.cfg.is_ssl  # gunicorn need not wait for the first byte.
        #: When the worker stops waiting, by the monotonic clock.
        self.deadline: float = 0.0
        #: The least number of bytes that make the socket readable.
        self.low_water: int = 1
        #: The number of bytes that are still discarded until the connection is closed.
        self.discarded: int = 0
        #: When it was given to the threads.
        self.enqueued: float = 0.0
        self.begin_request()

    def begin_request(self) -> None:
        """Wait for another request."""
        #: The number of bytes of the request that had arrived at the last look.
        self.received: int = 0
        #: The size of its head in bytes, or 0 if it has not arrived.
        self.head: int = 0
        #: Whether it is a HEAD request.
        self.is_head: bool = False
        #: Whether a thread has to wait for the rest of it.
        self.is_long: bool = False
        #: Whether its body has not arrived in time.
        self.is_late: bool = False
        #: The threads that handle it, if it must not wait for the usual ones.
        self.threads: ThreadPoolExecutor | None = None

    def set_low_water(self, size: int) -> None:
        """Set the least number of bytes that make the socket readable."""
        if size != self.low_water:
            self.low_water = size
            with suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def is_writable(self) -> bool:
        """Return whether the client reads the responses: there is room for another one."""
        return self._has(select.POLLOUT)

    def has_ended(self) -> bool:
        """Return whether the client sends nothing more. Only Linux knows."""
        return self._has(getattr(select, "POLLRDHUP", 0))

    def _has(self, event: int) -> bool:
        poll = select.poll()
        poll.register(self.sock, event)
        return bool(poll.poll(0))


class Worker(ThreadWorker):
    """A worker that other clients can use while some are slow, hostile or do not read.

    A thread handles a connection only when a request has arrived, and when the client has read the
    earlier responses. Half of the threads may wait for bodies that are chunked or large. The
    worker waits for everything else in its main loop, and for the client to close a connection.
    The number of connections is limited by that of file descriptors. With TLS, the connections are
    handled as gunicorn does it.
    """

    #: The beginnings of requests for the health of the service. For each of them, there are two
    #: threads, so that they are answered while all other threads are busy.
    health: ClassVar[tuple[bytes, ...]] = ()

    nr_conns: int
    worker_connections: int

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
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        most = sys.maxsize if most == resource.RLIM_INFINITY else most
        available = max(most // 2, most - _RESERVED)
        self.worker_connections = min(self.worker_connections, available)
        # The connections whose client the worker waits for, in the order in which this began, and
        # the event for which the poller waits.
        self._waiting: dict[_Connection, int] = {}
        # The connections that threads handle, and when this began.
        self._handled: dict[_Connection, float] = {}
        self._long = 0  # The number of those for which a thread may have to wait.
        # The connections that wait for such a thread, in the order in which this began.
        self._queued: dict[_Connection, None] = {}
        self._next_check = 0.0
        self._exhausted: str | None = None  # Why a connection could not be accepted.
        self._received = bytearray(MAX_HEAD + MAX_BODY)
        self._health = {start: ThreadPoolExecutor(2) for start in self.health}
        super().init_process()

    def accept(self, listener: socket.socket) -> bool:
        """Accept a connection, and return whether there was one that the system could accept."""
        try:
            sock, client = listener.accept()
        except OSError as error:
            if error.errno not in _TRANSIENT:  # pragma: no branch  # Rare, with several workers.
                self._exhausted = error.strerror
                if not self._close_oldest():
                    time.sleep(0.1)  # The listener stays readable: the main loop does not pause.
            return False
        self.nr_conns += 1
        conn = _Connection(self.cfg, sock, client, listener.getsockname())
        _set_timeout(sock, socket.SO_RCVTIMEO, _READ_TIMEOUT)
        _set_timeout(sock, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        conn.deadline = self._after(_READ_TIMEOUT)
        if self.nr_conns >= self.worker_connections:
            self._close_oldest()
        self.enqueue_req(conn)
        return True

    def enqueue_req(self, conn: _Connection) -> None:
        """Let a thread handle a connection, as soon as a request has arrived."""
        try:
            self._enqueue_or_wait(conn)
        except OSError:
            self._close(conn)
        except errors.LimitRequestHeaders as error:
            self.handle_error(None, conn.sock, conn.client, error)
            self._linger(conn)

    def _enqueue_or_wait(self, conn: _Connection) -> None:
        if self.cfg.is_ssl:
            self._submit(conn)
        elif not self._has_request(conn):
            self._wait(conn, EVENT_READ)
        elif conn.initialized and not conn.is_writable():
            self._wait(conn, EVENT_WRITE)
        elif conn.is_long and self._long >= max(1, self.cfg.threads // 2):
            self._stop_waiting(conn)
            self._queued[conn] = None
        else:
            self._submit(conn)

    def handle(self, conn: _Connection) -> Any:
        """Handle a request on a connection, in a thread; return whether it stays open."""
        now = time.monotonic()
        self.set_waited(now - conn.enqueued)
        self._handled[conn] = now
        try:
            return super().handle(conn)
        finally:
            del self._handled[conn]

    def handle_request(self, req: Any, conn: _Connection) -> bool:
        """Handle a request whose head was read, in a thread."""
        if conn.is_late or self.nr_conns >= self.worker_connections:
            req.force_close()  # Connections that pipeline requests must not keep others out.
        try:
            return super().handle_request(req, conn)
        except (BlockingIOError, TimeoutError):  # gunicorn would log a traceback.
            raise ConnectionResetError(errno.ECONNRESET, "the response was not read") from None

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        """Refuse a request that is not valid HTTP, with an Error (interface section 7).

        gunicorn would log a part of the request, which may contain a token.
        """
        number, message = refusal(exc)
        address = addr[0] if isinstance(addr, tuple) else None
        body, headers = self.refuse(number, message, address, exc if number == 50001 else None)
        is_head = any(conn.is_head for conn in [*self._handled] if conn.sock is client)
        with suppress(OSError):
            client.sendall(response(number // 100, body, headers, with_body=not is_head))

    def finish_request(self, conn: _Connection, fs: Future[Any]) -> None:
        """Continue with a connection that a thread has handled."""
        if self.cfg.is_ssl:
            super().finish_request(conn, fs)
            return
        if conn.is_long:
            self._long -= 1
            self._begin_long()
        if fs.exception() is None and fs.result() and not conn.is_late:
            conn.begin_request()
            conn.deadline = self._after(self.cfg.keepalive)
            self.enqueue_req(conn)
        else:
            self._linger(conn)

    def murder_pending(self) -> None:
        """Close connections whose client was too slow. The main loop of gunicorn calls this."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + 1
        if self._exhausted:
            self.log.warning("Connections had to wait: %s", self._exhausted)
            self._exhausted = None
        if self.cfg.is_ssl:
            super().murder_pending()
            return
        for conn in [waiting for waiting in self._waiting if waiting.deadline <= now]:
            self._give_up(conn)
        handled = self._handled.copy()  # Threads change the original.
        for conn, began in handled.items():
            if began + _LONGEST_REQUEST <= now:
                # The thread no longer waits for the body, and later not for the client at all.
                is_first, conn.is_late = not conn.is_late, True
                with suppress(OSError):
                    conn.sock.shutdown(socket.SHUT_RD if is_first else socket.SHUT_RDWR)

    def _keepalive_after(self, conn: _Connection, keepalive: bool) -> bool:
        """Return whether the connection can have another request."""
        try:
            return bool(super()._keepalive_after(conn, keepalive))
        except errors.ParseException:  # The rest of a body that was refused is malformed.
            return False

    def _cap_keepalive(self, deadline: float) -> None:
        """Refuse new connections, and do not wait long for clients, when the worker stops."""
        super()._cap_keepalive(deadline)
        self.alive = False  # gunicorn does not set it when the main process has been killed.
        for conn in self._waiting:
            conn.deadline = min(conn.deadline, deadline)
        for listener in self.sockets:
            while self.accept(listener):
                pass  # At the close, the system resets the connections that are left.
            listener.close()

    def _has_request(self, conn: _Connection) -> bool:
        """Look at what has arrived, and return whether a thread can handle it.

        :raises OSError: if the client has closed the connection.
        :raises LimitRequestHeaders: if the head is too large.
        """
        buffered, size = self._look(conn)
        is_unchanged = conn in self._waiting and size == conn.received
        if size and not conn.received and conn.initialized:
            conn.deadline = self._after(_READ_TIMEOUT)
        conn.received = size
        missing = self._missing(conn)
        if missing and is_unchanged:
            if not conn.head and conn.has_ended():
                raise ConnectionResetError
            # The system cannot wait for more: a Unix socket never can. A thread waits.
            conn.is_long, missing = True, 0
        conn.set_low_water(max(1, size - buffered + missing if missing else 1))
        return not missing

    def _look(self, conn: _Connection) -> tuple[int, int]:
        """Return how much of a request has been read, and how much of it has arrived in all."""
        read = conn.parser.unreader.buf.getvalue() if conn.initialized else b""
        read = read[: MAX_HEAD + MAX_BODY]
        self._received[: len(read)] = read
        rest = memoryview(self._received)[len(read) :]
        try:
            arrived = conn.sock.recv_into(rest, 0, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return len(read), len(read)
        if not arrived and not read:
            raise ConnectionResetError
        return len(read), len(read) + arrived

    def _missing(self, conn: _Connection) -> int:
        """Return how many bytes must arrive, at least, before a thread can handle a request."""
        if not conn.head:
            conn.head = head_size(self._received, conn.received)
            if conn.head:
                conn.is_head = self._received.startswith(b"HEAD ")
                conn.deadline = self._after(_READ_TIMEOUT)
            elif conn.received >= MAX_HEAD:
                raise errors.LimitRequestHeaders("")
            else:
                return 1
        body = body_size(self._received, conn.head)
        conn.is_long = body is None
        if body == 0:
            starts = (start for start in self._health if self._received.startswith(start))
            conn.threads = self._health.get(next(starts, b""))
        return max(0, conn.head + (body or 0) - conn.received)

    def _submit(self, conn: _Connection) -> None:
        """Let a thread handle a connection."""
        self._stop_waiting(conn)
        self._long += conn.is_long
        conn.enqueued = time.monotonic()
        threads = conn.threads or self.tpool
        future = threads.submit(self.handle, conn)
        future.add_done_callback(
            lambda future: self.method_queue.defer(self.finish_request, conn, future)
        )

    def _begin_long(self) -> None:
        """Let a thread wait for the body of the next long request."""
        conn = next(iter(self._queued), None)
        if conn is not None:
            self._submit(conn)

    def _after(self, seconds: float) -> float:
        return time.monotonic() + (seconds if self.alive else min(seconds, _LINGER_TIMEOUT))

    def _wait(self, conn: _Connection, event: int) -> None:
        """Wait for an event of a connection: the client sends or reads something."""
        if self._waiting.get(conn) != event:  # Otherwise, it keeps its place.
            self._stop_waiting(conn)
            self.poller.register(conn.sock, event, partial(self._continue, conn))
            self._waiting[conn] = event

    def _continue(self, conn: _Connection, _: socket.socket) -> None:
        # Another event of the same moment may have closed the connection.
        if conn in self._waiting:  # pragma: no branch  # Rare.
            if conn.discarded:
                self._discard(conn)
            else:
                self.enqueue_req(conn)

    def _stop_waiting(self, conn: _Connection) -> None:
        self._queued.pop(conn, None)
        if self._waiting.pop(conn, None) is not None:
            self.poller.unregister(conn.sock)

    def _linger(self, conn: _Connection) -> None:
        """Close a connection as soon as its client has done so, or after some time."""
        conn.begin_request()
        conn.set_low_water(1)
        conn.deadline = self._after(_LINGER_TIMEOUT)
        conn.discarded = _LINGER_SIZE
        try:
            conn.sock.shutdown(socket.SHUT_WR)
            self._wait(conn, EVENT_READ)
        except OSError:
            self._close(conn)

    def _discard(self, conn: _Connection) -> None:
        """Discard what a client still sends on a connection that the worker has closed."""
        size = 0
        with suppress(OSError):
            size = conn.sock.recv_into(self._received, 0, socket.MSG_DONTWAIT)
        conn.discarded -= size
        if not size or conn.discarded <= 0:
            self._close(conn)

    def _give_up(self, conn: _Connection) -> None:
        """Stop waiting for a client: it gets an Error if only its body is late."""
        if conn.head and self._waiting[conn] == EVENT_READ:
            conn.is_late = True
            with suppress(OSError):
                # A thread does not wait for the rest, and the connection is closed.
                conn.sock.shutdown(socket.SHUT_RD)
            self._submit(conn)
        else:
            self._close(conn)

    def _close_oldest(self) -> bool:
        """Close the connection that has waited for the longest time, if any does.

        Some wait for their clients, others for a thread. The larger group loses its oldest one.
        """
        oldest = max([*self._waiting], [*self._queued], key=len)[:1]
        for conn in oldest:
            self._close(conn)
        return bool(oldest)

    def _close(self, conn: _Connection) -> None:
        self._stop_waiting(conn)
        self.nr_conns -= 1
        conn.close()


def _set_timeout(sock: socket.socket, option: int, seconds: float) -> None:
    # The seconds and microseconds of a C timeval. Zero would be no timeout.
    value = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) + 1)
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, option, value)
