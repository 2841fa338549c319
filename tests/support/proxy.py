"""A TCP proxy that makes a database server slow or silent."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from inspect import signature
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread

from pymysql import connections  # type: ignore[import-untyped]
from sqlalchemy import URL, make_url

from tests.support.databases import Place
from tests.support.serving import LIMIT


class Proxy:
    """A proxy on a port of its own, in front of the database server of a place."""

    def __init__(self, place: Place) -> None:
        # The seconds by which each packet to the server, and from it, is late.
        self.request_delay = self.response_delay = 0.0
        # While this event is not set, no response is forwarded.
        self.forwards = Event()
        self.forwards.set()
        # With the next request that has this text, the connections that are then open are silenced.
        self.last_request = b""
        self._silenced: list[Event] = []
        self.clients: set[socket.socket] = set()
        self.accepted = 0
        url = make_url(place.url)
        self._server = ("127.0.0.1", url.port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        self.url = without_tls(url.set(port=self.port)).render_as_string(hide_password=False)
        Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        """Forward no response on the connections that are open now."""
        self._silenced.append(self.forwards)
        self.forwards.clear()
        self.forwards = Event()
        self.forwards.set()

    def close(self) -> None:
        """Close all connections."""
        for forwards in [*self._silenced, self.forwards]:
            forwards.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in [*self.clients]:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        # The listener is closed at the end.
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                self.clients.add(client)
                Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # The server may have been stopped.
        with client, suppress(OSError), socket.create_connection(self._server, LIMIT) as server:
            server.settimeout(None)
            back = Thread(target=self._forward, args=[server, client, "response"], daemon=True)
            back.start()
            self._forward(client, server, "request")
            self.clients.discard(client)
            back.join()
        self.clients.discard(client)  # The server may have refused the connection.

    def _forward(self, source: socket.socket, target: socket.socket, kind: str) -> None:
        forwards = self.forwards
        # Either side may close its connection at any time.
        with suppress(OSError):
            while data := source.recv(65536):
                time.sleep(getattr(self, f"{kind}_delay"))
                if kind == "response":
                    forwards.wait()
                elif self.last_request and self.last_request in data:
                    self.last_request = b""
                    self.silence()
                target.sendall(data)
        if kind == "request":
            self.clients.discard(source)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def without_tls(url: URL) -> URL:
    """Return a URL whose connections a proxy can read: newer drivers use TLS by default."""
    can_disable = "ssl_disabled" in signature(connections.Connection.__init__).parameters
    is_mysql = url.get_backend_name() == "mysql"
    return url.update_query_dict({"ssl_disabled": "true"} if is_mysql and can_disable else {})


def proxy(place: Place) -> closing[Proxy]:
    """Run a proxy for the duration of the block."""
    return closing(Proxy(place))


@contextmanager
def silent_host() -> Iterator[int]:
    """Provide a port that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield listener.getsockname()[1]


@contextmanager
def other_program(greeting: bytes) -> Iterator[int]:
    """Provide a port on which another program greets its clients."""
    handler = type(
        "Greeter", (StreamRequestHandler,), {"handle": lambda it: it.wfile.write(greeting)}
    )
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
