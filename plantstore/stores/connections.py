"""The connections of a SQL store, and the meaning of their errors."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import count
from threading import BoundedSemaphore, Lock, RLock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, event, exc
from sqlalchemy.engine.base import OptionEngine
from sqlalchemy.pool import Pool, SingletonThreadPool, StaticPool

from .base import PlantExists, StoreMisconfigured, StoreUnavailable
from .deadline import TIMEOUT, deadline, remaining
from .engines import POOL_SIZE, backend_of
from .group import Add, GroupCommit, Insert
from .threads import start

# The maximum number of connections of a process to the database of a site.
_SITE_POOL_SIZE = 5
# The maximum number of adds in one transaction.
_GROUP_SIZE = 100
# The seconds that the first use of a slow server may take in the background.
_FIRST_USE_TIMEOUT = 60
# The longest pause in seconds after the first attempt, and the growth of this limit.
_PAUSE = 0.02
# The seconds before the deadline when no attempt begins any more. MariaDB and MySQL wait for a lock
# for one second.
_ATTEMPT_TIME = 1.1

_T = TypeVar("_T")


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
    :raises ValueError: if the engine is not one of those that :mod:`.engines` knows.
    """

    def __init__(self, engine: Engine) -> None:
        self.backend = backend_of(engine)
        timeout = engine.get_execution_options().get("plantstore")
        #: The seconds until the deadline of an operation.
        self.timeout: float = TIMEOUT if timeout is None else timeout
        self._of_site = timeout is None
        self._size = _SITE_POOL_SIZE if self._of_site else POOL_SIZE
        # An SQLite database in memory would be lost with its only connection.
        self._shares_connection = self.backend.one_writer and isinstance(
            engine.pool, SingletonThreadPool | StaticPool
        )
        options: Any = {"isolation_level": "AUTOCOMMIT", "preserve_rowcount": True}
        if self._of_site:
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
                    if not self._of_site:
                        self.backend.limit_waiting(connection)
                    yield connection
                    if self.backend.one_writer and in_transaction(connection):
                        connection.commit()  # The engine of a site may have begun a transaction.
                except self._failures as error:
                    if not self._refuses(error) and not self._shares_connection:
                        connection.invalidate()  # Its state is unknown.
                    raise
        except self._failures as error:
            if self._refuses(error):
                raise
            raise StoreUnavailable(_describe(error)) from error

    def write(self, insert: Insert) -> None:
        """Insert a plant by one statement, and return when the database has committed it.

        :raises sqlalchemy.exc.DBAPIError: if the database refuses the plant.
        :raises StoreUnavailable: for every other error of the database.
        """
        if self.backend.one_writer:
            self._group.add(insert)
        else:
            self.retry(insert)

    def retry(self, statement: Callable[[Connection], _T]) -> _T:
        """Execute a statement, and repeat it after conflicts with concurrent transactions."""
        for attempt in count(1):
            try:
                with self.connect() as connection:
                    return statement(connection)
            except StoreUnavailable as error:
                if not self.is_conflict(error):
                    raise
                pause_before_retry(attempt, error)
        raise AssertionError

    def is_conflict(self, error: StoreUnavailable) -> bool:
        """Return whether an operation can be repeated after a concurrent transaction."""
        cause = error.__cause__
        return isinstance(cause, exc.DBAPIError) and self.backend.is_conflict(cause)

    def once(self, function: Callable[[], None]) -> None:
        """Call a function, once for all threads that call this method at the same time.

        With an engine of our own, the function runs in another thread, and continues there when
        the deadline has passed. So the first use of a slow server succeeds after some time. The
        event listeners of a site may need the thread of the request: there, the threads call the
        function one after the other.

        :raises StoreUnavailable: if the deadline passes.
        """
        if self._of_site:
            self._one_at_a_time(function)
            return
        with self._lock:
            if function not in self._running:
                self._running[function] = start(self._run, function)
            running = self._running[function]
        if not wait([running], remaining()).done:
            raise StoreUnavailable("the first use of the database has not finished yet")
        error = running.exception()
        if error is not None:
            raise copy(error) from error  # Each thread needs an exception of its own.

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
        self._lock = Lock()
        self._site_lock = RLock()  # An event listener of the site may use another store.
        self._running: dict[Callable[[], None], Future[None]] = {}
        # The event listeners of a site may write to the database during an add.
        self._group = GroupCommit(self._commit, 1 if self._of_site else _GROUP_SIZE)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        slots = self._slots
        if not slots.acquire(timeout=remaining()):
            raise StoreUnavailable(f"all {self._size} connections of the store are in use")
        try:
            yield
        finally:
            slots.release()

    def _one_at_a_time(self, function: Callable[[], None]) -> None:
        # If several threads open the first connection at once, SQLAlchemy can, very rarely, use one
        # before it has initialized the dialect.
        lock = self._site_lock
        if not lock.acquire(timeout=remaining()):
            raise StoreUnavailable("the first use of the database has not finished yet")
        try:
            function()
        finally:
            lock.release()

    def _run(self, function: Callable[[], None]) -> None:
        try:
            with deadline(_FIRST_USE_TIMEOUT):
                function()
        finally:
            with self._lock:
                del self._running[function]

    def _commit(self, group: list[Add]) -> None:
        with self.connect() as connection:
            if len(group) > 1:
                self._commit_together(connection, group)
                return
            group[0].insert(connection)
        _finish(group)

    def _commit_together(self, connection: Connection, group: list[Add]) -> None:
        """Commit adds in one transaction of SQLite."""
        driver: Any = connection.connection.dbapi_connection
        inserted = False
        driver.execute("BEGIN IMMEDIATE")
        try:
            for add in group:
                self._insert(connection, add)
            inserted = True
            self.backend.limit_waiting(connection)
            driver.execute("COMMIT")
            _finish(group)
        except BaseException as error:
            if driver.in_transaction:
                driver.execute("ROLLBACK")
            elif inserted:  # The commit has ended, well or not, or the thread was interrupted then.
                _finish(group, error if isinstance(error, self._failures) else None)
            raise

    def _insert(self, connection: Connection, add: Add) -> None:
        try:
            add.insert(connection)
        except (PlantExists, StoreMisconfigured, exc.DBAPIError) as error:
            # After a RAISE(ROLLBACK) of a trigger, there is no transaction any more.
            if not in_transaction(connection) or not self._refuses(error):
                raise
            add.error = error

    def _refuses(self, error: Exception) -> bool:
        if isinstance(error, exc.DBAPIError):
            return self.backend.is_refusal(error)
        return isinstance(error, PlantExists | StoreMisconfigured)


def _finish(group: list[Add], failure: Exception | None = None) -> None:
    """Set the outcome of adds whose transaction has ended."""
    for add in group:
        if failure is not None:
            add.error = StoreUnavailable(_describe(failure))
        add.done = True


def pause_before_retry(attempt: int, error: Exception) -> None:
    """Wait for a random time before the next attempt, or raise the error if it is too late."""
    pause = random.uniform(0, _PAUSE * attempt)  # noqa: S311
    if pause + _ATTEMPT_TIME > remaining():
        raise error
    time.sleep(pause)


# The connections of each engine. They refer to the engine, so they must not keep it alive.
_connections: WeakKeyDictionary[Engine, ref[Connections]] = WeakKeyDictionary()
_connections_lock = Lock()


def connections_of(engine: Engine) -> Connections:
    """Return the connections of an engine, the same for all its stores."""
    with _connections_lock:
        known = _connections.get(engine)
        connections = None if known is None else known()
        if connections is None:
            connections = Connections(engine)
            _connections[engine] = ref(connections)
        return connections


def _after_fork() -> None:
    global _connections_lock  # noqa: PLW0603
    _connections_lock = Lock()
    for connections in filter(None, [known() for known in _connections.values()]):
        connections.after_fork()


if sys.platform != "win32":  # pragma: no branch
    os.register_at_fork(after_in_child=_after_fork)


def in_transaction(connection: Connection) -> bool:
    """Return whether a connection to SQLite is in a transaction."""
    return bool(connection.connection.dbapi_connection.in_transaction)  # type: ignore[union-attr]


def _describe(error: Exception) -> str:
    text = str(getattr(error, "orig", error))
    if "is locked" not in text:
        return text
    return (
        f"{text}: another connection has an open transaction in this SQLite file. If a hook or the"
        " token check of a site uses the file in the same request, it must commit or roll back."
    )
