"""A worker of gunicorn: a thread gets a request only when all of it has arrived.

The threads do all of the work. Each of them waits for an event of any connection, continues with
this connection until it must wait for its client again, and then waits for the next event. So no
thread waits for a client.

The main thread looks once a second for connections whose client is too slow.

Whoever uses a connection holds its lock. It also stays locked while its complete request waits in a
queue for a thread.
"""

import errno
import os
import resource
import socket
import ssl
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from select import EPOLLIN, EPOLLONESHOT, EPOLLOUT, epoll, select
from threading import Lock, Thread
from typing import Any, ClassVar

from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker as BaseWorker

from ._client import SEND_TIMEOUT, Client, ClientGone
from ._framing import EndlessBody, head_end, proxy_header_end
from ._heads import parse
from ._refusals import InvalidTLS, refusal, response
from ._requests import ResponseFailed, body_of, expects_continue, respond, set_body

# File descriptors for everything but connections of clients: by default, a SQL store has up to 24
# connections to a server with two each, or up to five connections to a file with up to three each.
_RESERVED = 128
# The seconds in which the head of a request must arrive, and then its body.
_READ_TIMEOUT = 10.0
# The seconds in which a client must close a connection that the worker has closed, and the bytes
# that the worker discards meanwhile (RFC 9112 section 9.6).
_LINGER_TIMEOUT = 2.0
_LINGER_SIZE = 16 << 20
# The errors of a connection that its client has already given up, or that another worker has taken.
# EBADF: the main thread has closed the listener.
_TRANSIENT = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EBADF}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Queue:
    """The requests that wait for a thread, of which a number may be executed at a time."""

    def __init__(self, most: int) -> None:
        self._waiting: deque[Client] = deque()
        self._permits = [None] * most

    def put(self, client: Client, run: Callable[[Client], None]) -> None:
        """Execute a request now, or let a thread do so that executes another one.

        :param run: executes a request.
        """
        self._waiting.append(client)
        # When another thread returns its permit, it looks again for what waits.
        while self._waiting and self._take_permit():
            try:
                with suppress(IndexError):
                    run(self._waiting.popleft())
            finally:
                self._permits.append(None)

    def _take_permit(self) -> bool:
        with suppress(IndexError):
            self._permits.pop()
            return True
        return False


class Worker(BaseWorker):
    """A worker that other clients can use while some are slow, hostile or do not read.

    A thread handles a request only when all of it has arrived, with TLS too. A body that is larger
    than the limit is not read to its end. The number of connections is limited by that of file
    descriptors.
    """

    #: Paths whose requests do not wait for other requests: each has a thread of its own.
    urgent_paths: ClassVar[tuple[str, ...]] = ()
    #: The maximum size of a body in bytes. The application gets a part of one that is larger.
    max_body = 65536
    #: Whether the application may have to wait for something. Otherwise, one thread is faster.
    may_wait = True

    alive: bool
    nr: int

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
        self._most_clients = min(self.cfg.worker_connections, available)
        self._tls = _tls_context(self.cfg) if self.cfg.is_ssl else None
        # The connections, in the order in which they began to wait for a request.
        self._clients: OrderedDict[int, Client] = OrderedDict()
        self._accepting = Lock()  # Whoever has it may have a connection that is not in the list.
        self._exhausted: str | None = None  # Why a connection could not be accepted.
        self._poller = epoll()
        super().init_process()

    def run(self) -> None:
        """Serve until the worker is asked to stop, or the main process has ended."""
        self._start()
        while self.alive:
            if os.getppid() != self.ppid:
                self.log.info("Parent changed, shutting down: %s", self)
                break
            self.notify()
            has_signal, _, _ = select([self.PIPE[0]], [], [], 1.0)  # Handlers write to this pipe.
            if has_signal:
                os.read(self.PIPE[0], 4096)
            self._check_connections()
        self._stop()

    # The main thread.

    def _start(self) -> None:
        # gunicorn uses some forty settings for each request. As attributes, they are found faster.
        found = {name: setting.get() for name, setting in self.cfg.settings.items()}
        self.cfg.__dict__.update(found)
        most = self.cfg.threads if self.may_wait else 1
        self._batch = 1 if self.may_wait else 64
        self._queue = _Queue(most)
        self._urgent = {path: _Queue(1) for path in self.urgent_paths} if self.may_wait else {}
        self._listeners = {listener.fileno(): listener.sock for listener in self.sockets}
        for fd, listener in self._listeners.items():
            listener.setblocking(False)
            self._poller.register(fd, EPOLLIN | EPOLLONESHOT)
        # One more thread receives, and responds to what is urgent, while the others are busy.
        for _ in range(most + len(self._urgent)):
            Thread(target=self._serve, name="gunicorn worker", daemon=True).start()

    def _check_connections(self) -> None:
        """Close connections whose client is too slow, and try again to accept others."""
        now = time.monotonic()
        for client in [*self._clients.values()]:
            if client.deadline <= now and client.lock.acquire(blocking=False):
                self._give_up(client)
        if self._exhausted is not None:
            self.log.warning("Connections had to wait: %s", self._exhausted)
            self._exhausted = None
            for fd in self._listeners:
                self._listen(fd)

    def _give_up(self, client: Client) -> None:
        """Stop waiting for a client: it gets an Error if only its body is late."""
        left = client.deadline - time.monotonic()
        # Rare: a thread has just renewed its deadline. Or the threads are late, not the client.
        if left > 0 or client.is_ready():
            self._wait(client, client.event, max(left, 1.0))
        elif client.request is None or client.is_last:
            self._close(client)
        else:
            client.is_last = True
            self._wait(client, EPOLLOUT, _READ_TIMEOUT)

    def _stop(self) -> None:
        """Finish the requests that have arrived, as long as gunicorn lets the worker."""
        self.alive = False
        end = time.monotonic() + self.cfg.graceful_timeout
        listeners, self._listeners = self._listeners, {}
        for fd, listener in listeners.items():
            self._poller.unregister(fd)  # The main process has the same socket.
            is_accepted: bool | None = True
            while is_accepted:
                is_accepted = self._accept(listener)
            listener.close()  # The system resets the connections that are left.
        soon = self._after(_LINGER_TIMEOUT)
        for client in [*self._clients.values()]:
            client.deadline = min(client.deadline, soon)
        while self._clients and time.monotonic() < end:
            self.notify()
            time.sleep(0.05)
            self._check_connections()

    # All threads.

    def _serve(self) -> None:
        """Handle one event after the other, until the process ends."""
        while True:
            for fd, _ in self._poller.poll(-1, self._batch):
                listener, client = self._listeners.get(fd), self._clients.get(fd)
                if listener is not None:
                    if self._accept(listener) is not None:
                        self._listen(fd)
                # Otherwise, the event was for an earlier connection with this number.
                elif client is not None and client.lock.acquire(
                    blocking=False
                ):  # pragma: no branch
                    self._continue(client)

    def _listen(self, fd: int) -> None:
        with suppress(OSError):  # The worker may have been stopped.
            self._poller.modify(fd, EPOLLIN | EPOLLONESHOT)

    def _accept(self, listener: socket.socket) -> bool | None:
        """Accept a connection if one waits, and return whether it does.

        :returns: ``None`` if none can be accepted now. The main thread then tries it again.
        """
        with self._accepting:
            return self._try_to_accept(listener)

    def _try_to_accept(self, listener: socket.socket) -> bool | None:
        if len(self._clients) >= self._most_clients and not self._close_oldest():
            self._exhausted = "all of them are busy"
            return None
        try:
            server = listener.getsockname()  # After the accept, the main thread may close it.
            sock, address = listener.accept()
        except OSError as error:
            if error.errno in _TRANSIENT:
                return False
            self._exhausted = error.strerror
            return False if self._close_oldest() else None
        with suppress(OSError):  # The client may have given it up.
            self._open(sock, address, server)
        return True

    def _open(self, sock: socket.socket, address: Any, server: Any) -> None:
        sock.setblocking(False)
        if self._tls is not None:
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        client = Client(sock, _plain_address(address), server)
        client.deadline = self._after(_READ_TIMEOUT)
        self._clients[client.fd] = client
        self._poller.register(client.fd, EPOLLIN | EPOLLONESHOT)

    def _close_oldest(self) -> bool:
        """Close the connection that has waited for its client for the longest time, if any does.

        If possible, it is not one whose client still receives a response.
        """
        clients = [*self._clients.values()]
        idle = (client for client in clients if not client.output and not client.to_discard)
        for client in chain(idle, clients):
            if client.lock.acquire(blocking=False):
                self._close(client)
                return True
        return False

    # A thread that has the lock of a connection. Each method releases the lock, or passes it on.

    def _continue(self, client: Client) -> None:
        """Continue with a connection after an event."""
        try:
            if client.to_discard:
                self._discard(client)
            elif client.output:
                self._send(client)
            else:
                self._receive(client)
        except OSError as error:
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                self._refuse(client, InvalidTLS(error.reason or "unknown reason"))
            else:
                self._close(client)
        except Exception as error:  # noqa: BLE001  # A fault ends neither the thread nor the worker.
            self._refuse(client, error)

    def _receive(self, client: Client) -> None:
        while not self._has_request(client):
            if not client.receive():
                self._wait(client, client.event)
                return
        self._urgent.get(client.request.path, self._queue).put(client, self._execute)

    def _has_request(self, client: Client) -> bool:
        """Return whether a request has arrived.

        :raises ConnectionResetError: if the client sends no more of its head.
        :raises Exception: if its head is refused.
        """
        is_new = client.request is None
        if is_new and not self._has_head(client):
            if client.has_ended:
                raise ConnectionResetError
            return False
        end = None
        try:
            end = client.body_end(client.data)
            client.is_last = client.is_last or end is None and client.has_ended
        except EndlessBody:
            client.is_last = True
        if end is None and not client.is_last:
            if is_new and expects_continue(client):
                client.send(_CONTINUE)
            return False
        set_body(client, bytes(client.data[client.head_size : end]))
        del client.data[:end]
        client.arrived = time.monotonic()
        return True

    def _has_head(self, client: Client) -> bool:
        """Return whether the head of a request has arrived."""
        start: int | None = 0
        if not client.requests and self.cfg.proxy_protocol not in (False, "off"):
            start = proxy_header_end(client.data)
        end = None if start is None else head_end(client.data, start, client.seen)
        if end is None:
            if client.requests and client.data and not client.seen:
                client.deadline = self._after(_READ_TIMEOUT)
            client.seen = len(client.data)
            return False
        client.request = parse(self.cfg, client, end)
        client.fields, client.head_size = dict(client.request.headers), end
        client.body_end = body_of(client, end, self.max_body)
        client.deadline = self._after(_READ_TIMEOUT)
        return True

    def _execute(self, client: Client) -> None:
        """Execute a request, in a thread that may."""
        self.set_waited(time.monotonic() - client.arrived)
        self._count_request()
        is_full = len(self._clients) >= self._most_clients
        is_last = client.is_last or is_full or not self.alive or not self.cfg.keepalive
        try:
            client.is_last = not respond(self, client, is_last=is_last)
        except ClientGone:
            self._close(client)
        except ResponseFailed:
            self.log.exception("The application has failed")
            self._close(client)
        except BaseException as error:  # noqa: BLE001  # See above.
            self._refuse(client, error)
        else:
            client.begin_request()
            self._clients.move_to_end(client.fd)  # It is the last one that began to wait.
            self._send(client)

    def _count_request(self) -> None:
        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            self.log.info("Autorestarting worker after current request.")
            self.alive = False

    def _send(self, client: Client) -> None:
        """Send what the client has not read, and then wait for its next request."""
        try:
            is_sent = client.flush()
            if is_sent and client.is_last:
                client.finish()
        except OSError:
            self._close(client)
            return
        if not is_sent:
            self._wait(client, EPOLLOUT, SEND_TIMEOUT)
        elif client.is_last:  # Closing it now could destroy the response.
            client.to_discard = _LINGER_SIZE
            self._wait(client, EPOLLIN, _LINGER_TIMEOUT)
        elif client.has_buffered():
            self._wait(client, EPOLLOUT, SEND_TIMEOUT)  # The requests of other clients are first.
        else:
            self._wait(client, EPOLLIN, self.cfg.keepalive)

    def _discard(self, client: Client) -> None:
        if client.discard():
            self._wait(client, EPOLLIN)
        else:
            self._close(client)

    def _refuse(self, client: Client, error: BaseException) -> None:
        """Refuse what is not valid HTTP with an Error, and close."""
        number, message = refusal(error)
        address = client.address[0] if isinstance(client.address, tuple) else None
        body, headers = self.refuse(number, message, address, error if number == 50001 else None)
        if not isinstance(error, InvalidTLS):
            request = client.request
            is_head = request.method == "HEAD" if request else client.data[:5] == b"HEAD "
            client.output += response(number // 100, body, headers, with_body=not is_head)
        client.is_last = True
        self._send(client)

    def _wait(self, client: Client, event: int, seconds: float | None = None) -> None:
        """Wait for an event of a connection.

        :param seconds: the time limit. By default it stays.
        """
        if seconds is not None:
            client.deadline = self._after(seconds)
        client.event = event
        client.lock.release()
        with suppress(OSError):  # The main thread may have closed it.
            self._poller.modify(client.fd, event | EPOLLONESHOT)

    def _close(self, client: Client) -> None:
        self._clients.pop(client.fd, None)
        client.sock.close()

    def _after(self, seconds: float) -> float:
        return time.monotonic() + (seconds if self.alive else min(seconds, _LINGER_TIMEOUT))


def _tls_context(cfg: Any) -> ssl.SSLContext:
    context: ssl.SSLContext = ssl_context(cfg)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _plain_address(address: Any) -> Any:
    """Return the address of a client: a tuple, or for a Unix socket a native string (PEP 3333).

    A socket for IPv6 has another form for the addresses of IPv4, which is converted.
    """
    if not isinstance(address, tuple):
        return os.fsencode(address).decode("latin-1")
    if address[0].startswith("::ffff:"):
        return address[0].removeprefix("::ffff:"), address[1]
    return address
