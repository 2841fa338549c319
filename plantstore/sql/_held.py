"""A connection that a thread holds."""

import os
import socket
from contextlib import suppress

from sqlalchemy import Connection, Engine

from .engines import Backend, close, driver_of


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
        self._connection = connection = self._engine.connect()
        descriptor = self._backend.descriptor(driver_of(connection))
        if descriptor is not None:
            self._socket = _duplicate(descriptor)
        self._backend.watch(connection)
        return connection, True

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

    def _is_closed(self, connection: Connection) -> bool:
        if connection.invalidated:
            return True
        if self._socket is None:
            return False
        try:
            # If there is data between two statements, it is normally the end of the connection.
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError as error:
            return not isinstance(error, BlockingIOError)
        return True


def _duplicate(descriptor: int) -> socket.socket:
    """Return another socket of a connection. It stays open when the driver closes its own."""
    blocks = os.get_blocking(descriptor)
    other = socket.socket(fileno=os.dup(descriptor))
    os.set_blocking(descriptor, blocks)  # The default timeout of a socket may have changed it.
    return other
