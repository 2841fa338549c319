"""A connection that a lane holds."""

import os
import select
import socket
from contextlib import suppress
from threading import local
from typing import Any

from sqlalchemy import Connection, Engine, event

from .databases import Database, close

# Its attribute ``held`` is the held connection that the current thread opens.
_opening = local()


class HeldConnection:
    """A connection of an engine without a pool, opened when it is needed."""

    def __init__(self, engine: Engine, database: Database) -> None:
        self._engine = engine
        self._database = database
        self._connection: Connection | None = None
        # Another descriptor of the connection's socket, so that another thread can use it.
        self._socket: socket.socket | None = None

    def get(self) -> Connection:
        """Return the connection. To open it may take any time.

        :raises Exception: if it cannot be opened.
        """
        if self._connection is None:
            try:
                _opening.held = self
                self._connection = self._engine.connect()
                self._database.watch(self._connection)
            except Exception as error:
                self.close()  # A connection that is not complete must not be used.
                # The frames of a driver refer to the error: its connection would stay open.
                for failure in filter(None, (error, error.__cause__)):
                    failure.__traceback__ = None
                raise
        return self._connection

    @property
    def is_lost(self) -> bool:
        """Whether there is no connection, or the server has closed it."""
        if self._connection is None or self._connection.invalidated:
            return True
        if self._socket is None:
            return False
        # If there is data between two statements, it is normally the end of the connection.
        # This poll never waits. A read from the socket could: a process may set a default timeout.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def shut_down(self) -> None:
        """Let the thread that waits for the server continue, with an error."""
        other = self._socket
        if other is not None:
            with suppress(OSError):
                other.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Close the connection without waiting for the server."""
        self.shut_down()
        if self._connection is not None:
            self._connection.invalidate()
        self.close()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            close(connection)  # It may wait for the server: until then, it can be shut down.
        other, self._socket = self._socket, None
        if other is not None:
            other.close()

    def note_socket(self, descriptor: int) -> None:
        """Keep the socket of the connection that is being opened."""
        if self._socket is None:
            # It stays open when the driver closes its own.
            self._socket = socket.socket(fileno=os.dup(descriptor))


def note_sockets(engine: Engine, database: Database) -> None:
    """Let held connections know their sockets before SQLAlchemy sends its first statement."""

    def note(driver: Any, record: object) -> None:
        held, descriptor = getattr(_opening, "held", None), database.descriptor(driver)
        if held is not None and descriptor is not None:
            try:
                held.note_socket(descriptor)
            except OSError:  # There are too many open files. SQLAlchemy would leave it open.
                driver.close()
                raise

    event.listen(engine, "connect", note, insert=True)
