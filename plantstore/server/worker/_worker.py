"""A worker of gunicorn: a thread gets a request only when all of it has arrived.

The main thread accepts connections, and looks once a second for clients that are too slow.

The other threads do the rest. Each of them waits for an event of any connection, continues with
this connection until it must wait for its client again, and then waits for the next event. So no
thread waits for a client, except for one that reads a long response in parts.

Whoever uses a connection holds its lock. It also stays locked while its complete request waits in a
queue for a thread.
"""

import os
import resource
import socket
import ssl
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from select import EPOLLIN, EPOLLONESHOT, EPOLLOUT, epoll, select
from threading import Lock, Semaphore, Thread
from typing import Any, ClassVar

from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker as BaseWorker

from ._client import SEND_TIMEOUT, CannotRespond, Client
from ._framing import EndlessBody, head_end, proxy_header_size
from ._heads import max_kept, parse
from ._refusals import FAILED, RefusedRequest, refusal
from ._requests import body_end, respond, send, set_body

# File descriptors for everything but connections of clients: by default, a SQL store has up to 24
# connections to a server with two each, or up to five connections to a file with up to three each.
_RESERVED = 128
# The seconds in which the head of a request must arrive, and then its body.
_READ_TIMEOUT = 10.0
# The seconds in which a client must close a connection that the worker has closed, and the bytes
# that the worker discards meanwhile (RFC 9112 section 9.6).
_LINGER_TIMEOUT = 2.0
_LINGER_SIZE = 16 << 20
# The bytes of requests and responses that may wait in memory, or eight bodies, if this is more.
_MAX_MEMORY = 48 << 20
# What waits is counted once a second, and when so many more bytes wait for their clients.
_UNCOUNTED = 8 << 20


class _Queue:
    """The requests that wait for a thread, of which a number may be executed at a time."""

    def __init__(self, most: int, execute: Callable[[Client], None]) -> None:
        self._waiting: SimpleQueue[Client] = SimpleQueue()
        self._permits = Semaphore(most) if most > 1 else Lock()  # Which takes a tenth of the time.
        self._execute = execute

    def put(self, client: Client) -> None:
        """Execute a request now, or leave it to a thread that is executing another one."""
        self._waiting.put(client)
        # A thread that has released its permit looks again for what waits.
        while not self._waiting.empty() and self._permits.acquire(blocking=False):
            try:
                self._execute(self._waiting.get_nowait())
            except Empty:  # pragma: no cover  # Another thread has taken it.
                pass
            finally:
                self._permits.release()


class Worker(BaseWorker):
    """A worker that other clients can use while some are slow, hostile or do not read.

    A thread handles a request only when all of it has arrived, with TLS too. A body that is larger
    than the limit is not read to its end. The number of connections is limited by that of file
    descriptors.
    """

    #: Paths whose requests need not wait for those of other paths: each path adds a thread.
    urgent_paths: ClassVar[tuple[str, ...]] = ()
    #: The maximum size of a body in bytes. The application gets a part of one that is larger.
    max_body = 65536
    #: Whether the application may have to wait for something. Otherwise, one thread is faster.
    needs_threads = True
    alive: bool
    nr: int

    @staticmethod
    def refuse(
        number: int, message: str, address: str | None, fault: BaseException | None
    ) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers of the response to a request that is refused.

        The number is the HTTP status times 100, plus a counter. The message has no part of the
        request. A client may have no address. ``fault`` is an exception that is not the client's.
        """
        return message.encode(), {"Content-Type": "text/plain"}

    @staticmethod
    def note_queued(seconds: float) -> None:
        """Learn how many seconds the next request of this thread has waited for it."""

    def init_process(self) -> None:
        """Raise the limit of file descriptors, and start."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        most = sys.maxsize if most == resource.RLIM_INFINITY else most
        available = max(most // 2, most - _RESERVED)
        self._most_clients = min(self.cfg.worker_connections, available)
        self._tls: ssl.SSLContext | None = ssl_context(self.cfg) if self.cfg.is_ssl else None
        if self._tls is not None:
            self._tls.set_alpn_protocols(["http/1.1"])
        # The connections. The first one has been waiting for the longest time.
        self._clients: OrderedDict[int, Client] = OrderedDict()
        self._poller = epoll()
        super().init_process()

    # The main thread. It executes no request, which a handler of a signal could interrupt.

    def run(self) -> None:
        """Serve until the worker is asked to stop, or the main process has ended."""
        self._start()
        with suppress(OSError):  # A sandbox may forbid it.
            # A new connection then interrupts no request: with a connection each, a fifth faster.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        listeners, next_check = self.sockets, 0.0
        while self.alive:
            ready, _, _ = select([self.PIPE[0], *listeners], [], [], 1.0)
            if self.PIPE[0] in ready:  # Handlers of signals write to it.
                os.read(self.PIPE[0], 4096)
                ready.remove(self.PIPE[0])
            if not all(map(self._accept, ready)):
                listeners = []  # Until the next second.
            if time.monotonic() >= next_check:
                listeners, next_check = self.sockets, time.monotonic() + 1
                self._check_clients()
        self._stop()

    def _start(self) -> None:
        # gunicorn uses some forty settings for each request. As attributes, they are found faster.
        self.cfg.__dict__.update({name: it.get() for name, it in self.cfg.settings.items()})
        most, urgent = (self.cfg.threads, self.urgent_paths) if self.needs_threads else (1, ())
        self._queue = _Queue(most, self._execute)
        self._urgent = {path: _Queue(1, self._execute) for path in urgent}
        self._batch = 1 if self.needs_threads else 64
        self._names = {sock: sock.getsockname() for sock in self.sockets}
        self._max_kept = max_kept(self.cfg)
        self._max_memory, self._uncounted = max(_MAX_MEMORY, 8 * self.max_body), 0
        for _ in range(most + len(urgent)):
            Thread(target=self._serve, name="gunicorn worker", daemon=True).start()

    def _check_clients(self) -> None:
        """Do what is due once a second: stop waiting for clients that are too slow."""
        self.notify()
        if os.getppid() != self.ppid and self.alive:
            self.log.info("Parent changed, shutting down: %s", self)
            self.alive = False
        now = time.monotonic()
        for client in [*self._clients.values()]:
            if client.deadline <= now and client.lock.acquire(blocking=False):
                self._give_up(client)
        self._limit_memory()

    def _give_up(self, client: Client) -> None:
        """Stop waiting for a client: it gets an Error if only its body is late."""
        left = client.deadline - time.monotonic()
        # Rare: a thread has just renewed its deadline. Or the threads are late, not the client.
        if left > 0 or client.wait(client.event, 0):
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
        for sock in self.sockets:
            while select([sock], [], [], 0)[0] and time.monotonic() < end and self._accept(sock):
                pass
            sock.close()  # The system resets the connections that are left.
        soon = time.monotonic() + _LINGER_TIMEOUT
        for client in [*self._clients.values()]:
            # A request of which a part has arrived has as much time as without the signal.
            if client.event == EPOLLOUT or not client.data:
                client.deadline = min(client.deadline, soon)
        while self._clients and time.monotonic() < end:
            time.sleep(0.05)
            self._check_clients()

    def _accept(self, listener: Any) -> bool:
        """Accept a connection, and return whether another one can be accepted now."""
        reason: str | None = "all of them are busy"
        if len(self._clients) < self._most_clients or self._close_oldest():
            try:
                self._open(listener, *listener.accept())
                return True
            except (BlockingIOError, ConnectionAbortedError):
                return True  # Another worker has taken it, or the client has given it up.
            except OSError as error:
                if self._close_oldest():
                    return True
                reason = error.strerror
        self.log.warning("Connections had to wait: %s", reason)
        return False

    def _open(self, listener: Any, sock: socket.socket, address: Any) -> None:
        sock.setblocking(False)
        with suppress(OSError):  # The client may have given it up.
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            client = Client(sock, _plain_address(address), self._names[listener])
            client.deadline = self._after(_READ_TIMEOUT)
            self._clients[client.fd] = client
            self._poller.register(client.fd, EPOLLIN | EPOLLONESHOT)

    def _close_oldest(self) -> bool:
        """Close a connection: of the half that has waited longest, one whose client loses least.

        Otherwise, clients that send only heads could let each new connection be the one to close.
        """
        older = [*self._clients.values()][: self._most_clients // 2 + 1]
        for client in sorted(older, key=Client.loss):
            if client.lock.acquire(blocking=False):
                self._close(client)
                return True
        return False

    # The main thread, or another one.

    def _limit_memory(self, more: int = _UNCOUNTED) -> None:
        """Close the connections that have waited longest if too much waits for all of them.

        :param more: how many bytes begin to wait. By default, it is time to count all of them.
        """
        self._uncounted += more
        if self._uncounted < _UNCOUNTED:
            return
        self._uncounted = 0
        held = [(client, client.held()) for client in [*self._clients.values()]]
        users = Counter(part for _, parts in held for part in parts)
        # What several clients wait for is in memory once, whoever is disconnected.
        own = [sum(parts[it] for it in parts if users[it] == 1) for _, parts in held]
        left, share = sum(own), self._max_memory // (len(held) or 1)
        for (client, _), size in zip(held, own, strict=True):
            if left > self._max_memory and size > share and client.lock.acquire(blocking=False):
                self._close(client)
                left -= size

    # The other threads.

    def _serve(self) -> None:
        """Handle events of connections, until the process ends."""
        while True:
            for fd, _ in self._poller.poll(-1, self._batch):
                client = self._clients.get(fd)
                # An event may be that of an earlier connection with this number.
                if client is not None and client.lock.acquire(False):  # pragma: no branch
                    try:
                        self._continue(client)
                    except BaseException:
                        self.log.exception("A connection has failed")
                        self._close(client)

    # A thread that has the lock of a connection. Each method releases the lock, or passes it on.

    def _continue(self, client: Client) -> None:
        """Continue with a connection after an event."""
        try:
            if client.to_discard:
                if client.discard():
                    self._wait(client, EPOLLIN)
                else:
                    self._close(client)
            elif client.output:
                self._send(client)
            else:
                self._receive(client)
        except OSError as error:
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                self.log.info("Not valid TLS, from %s: %s", client.address, error)
            client.is_last = True  # Closing it now could destroy an alert of TLS.
            self._send(client)
        except Exception as error:  # noqa: BLE001  # A fault ends neither the thread nor the worker.
            self._refuse(client, *refusal(error), error)

    def _receive(self, client: Client) -> None:
        size = len(client.data)
        while not self._has_request(client):
            if not client.receive():
                self._clients.move_to_end(client.fd)
                self._limit_memory(len(client.data) - size)
                self._wait(client, client.event)
                return
        self._urgent.get(client.request.path, self._queue).put(client)

    def _has_request(self, client: Client) -> bool:
        """Return whether a request has arrived. An exception refuses it, or ends the connection."""
        is_new = client.request is None
        if is_new and not self._has_head(client):
            if client.has_ended:
                raise ConnectionResetError
            return False
        end = None
        try:
            end = body_end(client, self.max_body)
            client.is_last = client.is_last or end is None and client.has_ended
        except EndlessBody:
            client.is_last = True
        if end is None and not client.is_last:
            if is_new and "EXPECT" in client.fields and client.request.version > (1, 0):
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                client.flush()
            return False
        set_body(client, bytes(client.data[client.head_size : end]))
        del client.data[:end]
        client.arrived = time.monotonic()
        return True

    def _has_head(self, client: Client) -> bool:
        """Return whether the head of a request has arrived."""
        start: int | None = 0
        if not client.requests and self.cfg.proxy_protocol not in (False, "off"):
            start = proxy_header_size(client.data)
        end = None if start is None else head_end(client.data, start, client.seen)
        if end is not None:
            parse(self.cfg, client, end, self._max_kept)
        if end is not None or client.data and not client.seen:  # It begins, or is complete.
            client.deadline = time.monotonic() + _READ_TIMEOUT
        client.seen = len(client.data)
        return end is not None

    def _execute(self, client: Client) -> None:
        """Execute a request, in a thread that may."""
        try:
            self.note_queued(time.monotonic() - client.arrived)
            self._count_request()
            is_full = len(self._clients) >= self._most_clients
            is_last = client.is_last or is_full or not self.alive or not self.cfg.keepalive
            client.is_last = not respond(self, client, is_last=is_last)
            self._limit_memory(sum(map(len, client.output)))
            client.forget_request()
            self._clients.move_to_end(client.fd)
        except CannotRespond:
            self._close(client)
        except RefusedRequest as error:
            self._refuse(client, *refusal(error), error)
        except BaseException as error:  # noqa: BLE001  # A SystemExit of the application, too.
            self._refuse(client, *FAILED, error)
        else:
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

    def _refuse(self, client: Client, number: int, message: str, error: BaseException) -> None:
        """Send an Error, and close. No exception of this method could be sent to the client."""
        address = client.address[0] if isinstance(client.address, tuple) else None
        fault = error if number == FAILED[0] else None
        try:
            body, headers = self.refuse(number, message, address, fault)
            send(self, client, number // 100, headers, body)
        except Exception:
            self.log.exception("An Error could not be sent")
            self._close(client)
        else:
            self._send(client)

    def _wait(self, client: Client, event: int, seconds: float | None = None) -> None:
        """Wait for an event of a connection, by default with the time limit that it has."""
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
        """Return a time limit, which is soon if the worker stops."""
        return time.monotonic() + (seconds if self.alive else min(seconds, _LINGER_TIMEOUT))


def _plain_address(address: Any) -> Any:
    """Return the address of a client: a tuple, or for a Unix socket a native string (PEP 3333)."""
    if isinstance(address, tuple):  # A socket for IPv6 has another form for those of IPv4.
        return address[0].removeprefix("::ffff:"), *address[1:]
    return os.fsencode(address).decode("latin-1")
