"""The connections of a SQL store, and the meaning of their errors."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import BoundedSemaphore, RLock
from typing import Any
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, event, exc
from sqlalchemy.engine.base import OptionEngine
from sqlalchemy.pool import Pool, SingletonThreadPool, StaticPool

from .base import StoreUnavailable
from .engines import CONNECT_TIMEOUT, POOL_SIZE

# The errors of MySQL and of MariaDB for a violated CHECK constraint. For PyMySQL they are
# operational errors.
_CHECK_VIOLATIONS = [(3819,), (4025,)]
# The maximum number of connections of a process to the database of a site.
_SITE_POOL_SIZE = 5
# The seconds that an add into SQLite waits for the adds of other threads. After that, it does not
# wait for them any more.
_TURN_TIMEOUT = 0.5


class _OwnPoolEngine(OptionEngine):
    """An engine that shares everything with another one except the connection pool.

    A request may hold a connection of the site's pool while it waits for a connection of this
    pool. If they were one pool, concurrent requests could wait for each other.
    """

    @cached_property
    def pool(self) -> Pool:  # type: ignore[override]  # mypy knows it as an attribute.
        """The connection pool, with the event listeners of the other pool."""
        other: Pool = self._proxied.pool
        pool = other.recreate()
        # The listeners include that of SQLAlchemy that initializes the dialect with the first
        # connection of either pool, while the other pool waits.
        pool.dispatch = other.dispatch
        # If several threads make the pool at the same time, they all use the first one.
        first: Pool = vars(self).setdefault("pool", pool)
        return first

    def dispose(self, close: bool = True) -> None:
        """Forget the connection pool, but not that of the other engine."""
        pool: Pool | None = vars(self).pop("pool", None)
        if pool is not None and close:
            pool.dispose()


class Connections:
    """The connections of one engine. All stores of the engine share them.

    :param engine: the engine of the database. If a site made it, the store uses other connections
        than the site, with the same arguments and event listeners, and at most five at a time. An
        SQLite database in memory has only one connection, which the store shares with the site.
    """

    def __init__(self, engine: Engine) -> None:
        self.one_writer: bool = engine.dialect.name == "sqlite"
        of_site = not engine.get_execution_options().get("plantstore")
        self._size = _SITE_POOL_SIZE if of_site else POOL_SIZE
        # An SQLite database in memory would be lost with its only connection.
        self._shares_connection = self.one_writer and isinstance(
            engine.pool, SingletonThreadPool | StaticPool
        )
        options: Any = {"isolation_level": "AUTOCOMMIT", "preserve_rowcount": True}
        if of_site:
            # When a site has disposed of its engine, it expects that no connection is open.
            event.listen(engine, "engine_disposed", lambda _: self.close())
            shared = engine.execution_options(**options)
            engine = shared if self._shares_connection else _OwnPoolEngine(engine, options)
        self.engine: Engine = engine
        # SQLAlchemy does not wrap errors of the driver that occur outside of a statement.
        self._failures = (exc.DBAPIError, exc.TimeoutError, engine.dialect.loaded_dbapi.Error)
        self._make_locks()

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Yield a connection. By default each statement is a transaction.

        :raises sqlalchemy.exc.DBAPIError: if the database refuses a plant.
        :raises StoreUnavailable: for every other error of the database.
        """
        try:
            with self._slot(), self.engine.connect() as connection:
                try:
                    yield connection
                    if self.one_writer and in_transaction(connection):
                        connection.commit()  # The engine of a site may have begun a transaction.
                except self._failures as error:
                    if not _refuses_plant(error) and not self._shares_connection:
                        connection.invalidate()  # Its state is unknown.
                    raise
        except self._failures as error:
            if _refuses_plant(error):
                raise
            raise StoreUnavailable(_describe(error)) from error

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let the threads of this process write to SQLite one after the other, if possible.

        Without this, SQLite makes each waiting thread sleep for longer and longer. After
        _TURN_TIMEOUT, a thread does not wait for the others any more.
        """
        lock = self._turn_lock
        acquired = self.one_writer and lock.acquire(timeout=_TURN_TIMEOUT)
        try:
            yield
        finally:
            if acquired:
                lock.release()

    def close(self) -> None:
        """Close the idle connections. The connections of a site stay open."""
        if not self._shares_connection:
            # A child process must not close the connections of its parent.
            self.engine.dispose(close=self._pid == os.getpid())

    def after_fork(self) -> None:
        """Replace connections and locks in a child process: those of the parent are not safe."""
        self.close()
        self._make_locks()

    def _make_locks(self) -> None:
        self._pid = os.getpid()
        self._slots = BoundedSemaphore(self._size)
        self._turn_lock = RLock()

    @contextmanager
    def _slot(self) -> Iterator[None]:
        slots = self._slots
        if not slots.acquire(timeout=CONNECT_TIMEOUT):
            raise StoreUnavailable(f"all {self._size} connections of the store are in use")
        try:
            yield
        finally:
            slots.release()


# The connections of each engine. They refer to the engine, so they must not keep it alive.
_connections: WeakKeyDictionary[Engine, ref[Connections]] = WeakKeyDictionary()


def connections_of(engine: Engine) -> Connections:
    """Return the connections of an engine, the same for all its stores."""
    known = _connections.get(engine)
    connections = None if known is None else known()
    if connections is None:
        connections = Connections(engine)
        _connections[engine] = ref(connections)
    return connections


def _after_fork() -> None:
    for connections in filter(None, [known() for known in _connections.values()]):
        connections.after_fork()


if sys.platform != "win32":  # pragma: no branch
    os.register_at_fork(after_in_child=_after_fork)


def in_transaction(connection: Connection) -> bool:
    """Return whether a connection to SQLite is in a transaction."""
    return bool(connection.connection.dbapi_connection.in_transaction)  # type: ignore[union-attr]


def _refuses_plant(error: Exception) -> bool:
    if isinstance(error, exc.IntegrityError | exc.DataError):
        return True
    return getattr(error, "orig", error).args[:1] in _CHECK_VIOLATIONS


def _describe(error: Exception) -> str:
    text = str(getattr(error, "orig", error))
    if "is locked" not in text:
        return text
    return (
        f"{text}: another connection has an open transaction in this SQLite file. If a hook or the"
        " token check of a site uses the file in the same request, it must commit or roll back."
    )
