"""Connections to a server, opened in threads: no driver limits the whole time to connect."""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, event, exc

from ...stores.deadline import start
from .._background import finished
from .._sockets import is_readable


class Opening:
    """Opens the connections of an engine, and waits for each until the deadline at most.

    Name resolution, several hosts, TLS and authentication together may take longer. A connection
    that is open too late is for the next operation that needs one.

    :param engine: the engine.
    :param connect: the function of the driver that opens a connection.
    :param socket: a function that returns the socket of a connection, or its file descriptor.
    """

    def __init__(
        self, engine: Engine, connect: Callable[..., Any], socket: Callable[[Any], Any]
    ) -> None:
        self._connect = connect
        self._socket = socket
        self._pid = os.getpid()
        self._late: deque[Future[Any]] = deque()
        event.listen(engine, "do_connect", self._open)
        event.listen(engine, "checkout", self._check_out)
        event.listen(engine, "engine_disposed", self._forget)

    def _open(self, dialect: object, record: object, arguments: Any, options: Any) -> Any:
        while self._late:
            with suppress(IndexError):  # Another thread has just taken the last one.
                late = self._finished(self._late.popleft())
                # The reason why an earlier attempt failed may have been corrected.
                if late.exception() is None and not is_readable(self._socket(late.result())):
                    return late.result()
                _close(late)
        return self._finished(start(self._try, *arguments, **options)).result()

    def _try(self, *arguments: Any, **options: Any) -> Any:
        try:
            return self._connect(*arguments, **options)
        except Exception as error:
            # The frames of psycopg refer to the error. Its connection would stay open with them.
            error.__traceback__ = None
            raise

    def _finished(self, opening: Future[Any]) -> Future[Any]:
        is_open = False
        try:
            is_open = finished(opening)
        finally:
            if not is_open:
                self._late.append(opening)
        if not is_open:
            raise exc.TimeoutError("no connection to the database server within the deadline")
        return opening

    def _check_out(self, connection: Any, *_: object) -> None:
        # If there is data between two statements, it is normally the end of the connection.
        if is_readable(self._socket(connection)):
            raise exc.DisconnectionError  # SQLAlchemy replaces the connection.
        connection.is_used = True

    def _forget(self, engine: Engine) -> None:
        late, self._late = self._late, deque()
        if self._pid == os.getpid():  # A child process must not close connections of its parent.
            for opening in late:
                opening.add_done_callback(_close)
        self._pid = os.getpid()


def _close(opening: Future[Any]) -> None:
    if opening.exception() is None:
        opening.result().close()
