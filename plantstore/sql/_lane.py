"""A lane: a thread, its connection, and the jobs that it executes."""

import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread, current_thread
from typing import Any

from sqlalchemy import Connection, Engine

from ._jobs import Job, WaitingJobs
from .databases import Database, close


class Lane(Thread):
    """A thread, the connection that it holds, and its jobs.

    :param engine: an engine without a pool.
    """

    def __init__(
        self, engine: Engine, database: Database, serve: "Serve", queue: WaitingJobs
    ) -> None:
        # It does not delay the end of the process.
        super().__init__(target=serve, args=(self, queue), name="plantstore store", daemon=True)
        self._engine, self._database = engine, database
        self._connection: Connection | None = None
        # Another descriptor of the connection's socket, so that another thread can use it.
        self._socket: socket.socket | None = None
        self.jobs: list[Job] = []
        self.is_connecting = True
        #: Whether it has been ended: it does not connect again.
        self.is_over = False
        #: When it began to connect, or to execute its jobs.
        self.began = time.monotonic()
        #: When its connection was opened, or has had a response last.
        self.proven = 0.0

    @property
    def is_free(self) -> bool:
        """Whether it waits for jobs, or does so at once."""
        return not self.is_connecting and (not self.jobs or self.jobs[-1].is_finished)

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

    def end(self) -> None:
        """Let the thread end soon, whatever it does."""
        self.is_over = True
        self.shut_down()

    def shut_down(self) -> None:
        """Let the thread that waits for the server continue, with an error."""
        other = self._socket
        if other is not None:
            with suppress(OSError):
                other.shutdown(socket.SHUT_RDWR)

    # The thread of the lane

    def connection(self) -> Connection:
        """Return the connection. To open it may take any time.

        :raises Exception: if it cannot be opened.
        """
        if self._connection is None:
            try:
                self._connection = self._engine.connect()
                self._database.watch(self._connection)
            except Exception as error:
                self.close()  # A connection that is not complete must not be used.
                # The frames of a driver refer to the error: its connection would stay open.
                for failure in filter(None, (error, error.__cause__)):
                    failure.__traceback__ = None
                raise
        return self._connection

    def abandon(self) -> None:
        """Close the connection after an error."""
        self.shut_down()  # To send the end to the server could take any time.
        self.close()

    def close(self) -> None:
        """Close the connection, without waiting for a response of the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # Otherwise, the server would have to respond to a rollback.
            close(connection)
        other, self._socket = self._socket, None
        if other is not None:
            other.close()

    def note_socket(self, descriptor: int) -> None:
        """Keep the socket of the connection that is being opened."""
        if self._socket is None:
            # It stays open when the driver closes its own.
            self._socket = socket.socket(fileno=os.dup(descriptor))
        if self.is_over:
            self.shut_down()


#: What the thread of a lane does with it and a queue.
Serve = Callable[[Lane, WaitingJobs], None]


def note_socket(database: Database, driver: Any, _record: object) -> None:
    """Let a lane that connects know its socket before SQLAlchemy sends its first statement."""
    lane, descriptor = current_thread(), database.descriptor(driver)
    if isinstance(lane, Lane) and descriptor is not None:
        try:
            lane.note_socket(descriptor)
        except OSError:  # There are too many open files. SQLAlchemy would leave it open.
            driver.close()
            raise
