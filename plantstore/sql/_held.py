"""A connection that a thread holds."""

import os
import select
import socket
from contextlib import suppress
from threading import local
from typing import Any

from sqlalchemy import Connection, Engine, event

from .engines import Backend, close

# Its attribute ``held`` is the held connection that the current thread opens.
_opening = local()


class HeldConnection:
    """A connection that is opened when it is needed, and replaced when the server has closed it.

    :param engine: the engine. It has no pool.
    :param backend: the entry of the engine.
    """

    def __init__(self, engine: Engine, backend: Backend) -> None:
        self._engine = engine
        self._backend = backend
        self._connection: Connection | None = None
        # Another descriptor of the connection's socket, so that another thread can use it.
        self._socket: socket.socket | None = None

    def get(self) -> tuple[Connection, bool]:
        """Return the connection, and whether it is new. To connect may take any time.

        :raises Exception: if no connection can be opened.
        """
        connection = self._connection
        if connection is not None and not self._is_closed(connection):
            return connection, False
        self.close()
        try:
            return self._open(), True
        except BaseException:  # A connection that is not complete must not be used.
            self.close()
            raise

    @property
    def is_opening(self) -> bool:
        """Whether the driver has connected, and SQLAlchemy has not yet prepared the connection."""
        return self._connection is None and self._socket is not None

    @property
    def server(self) -> object:
        """The address of the server, or ``None`` without a connection to a server."""
        other, address = self._socket, None
        if other is not None:
            with suppress(OSError):
                address = other.getpeername()
        return address

    def shut_down(self) -> None:
        """Let the thread that waits for the server continue, with an error."""
        other = self._socket
        if other is not None:
            with suppress(OSError):
                other.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        other, self._socket = self._socket, None
        if connection is not None:
            close(connection)
        if other is not None:
            other.close()

    def abandon(self) -> None:
        """Close the connection to a server without waiting for the server."""
        if self._socket is not None:
            self.shut_down()
            self.close()

    def note_socket(self, descriptor: int) -> None:
        """Keep the socket of the connection that is being opened."""
        if self._socket is None:
            self._socket = _duplicate(descriptor)

    def _open(self) -> Connection:
        _opening.held = self
        self._connection = connection = self._engine.connect()
        self._backend.watch(connection)
        return connection

    def _is_closed(self, connection: Connection) -> bool:
        if connection.invalidated:
            return True
        if self._socket is None:
            return False
        # If there is data between two statements, it is normally the end of the connection.
        # This poll never waits. A read from the socket could: a process may set a default timeout.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))


def note_sockets(engine: Engine, backend: Backend) -> None:
    """Let held connections know their sockets before SQLAlchemy sends its first statement.

    :param engine: the engine.
    :param backend: the entry of the engine.
    """

    def note(driver: Any, record: object) -> None:
        held, descriptor = getattr(_opening, "held", None), backend.descriptor(driver)
        if held is not None and descriptor is not None:
            try:
                held.note_socket(descriptor)
            except OSError:  # There are too many open files. SQLAlchemy would leave it open.
                driver.close()
                raise

    event.listen(engine, "connect", note, insert=True)


def _duplicate(descriptor: int) -> socket.socket:
    """Return another socket of a connection. It stays open when the driver closes its own."""
    return socket.socket(fileno=os.dup(descriptor))
