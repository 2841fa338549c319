"""The connections of a SQL store, and the meaning of their errors."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from functools import cached_property, partial
from threading import Lock, RLock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, event, exc
from sqlalchemy.engine.base import OptionEngine
from sqlalchemy.pool import Pool, SingletonThreadPool, StaticPool

from ..stores.base import Plant, PlantExists, StoreMisconfigured, StoreUnavailable
from ..stores.deadline import TIMEOUT, remaining
from ._background import Background
from ._group import Add, GroupCommit
from ._slots import Slots
from ._statements import Statements
from .engines import POOL_SIZE, Backend, backend_of

# The maximum number of connections of a process to the database of a site.
_SITE_POOL_SIZE = 5
# The maximum number of adds in one transaction.
_GROUP_SIZE = 100
# The longest pause in seconds after the first attempt, and the growth of this limit.
_PAUSE = 0.02
# The seconds before the deadline when no attempt begins any more. MariaDB and MySQL wait for a lock
# for one second.
_ATTEMPT_TIME = 1.1
_NOT_REPLICATED = "the server has committed, but its wait for a standby was cancelled"

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
        self.backend: Backend = backend_of(engine)
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
        # SQLAlchemy does not wrap errors of the driver that occur outside of a statement. No driver
        # wraps the error that a certificate file is missing.
        driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._failures = (exc.DBAPIError, exc.TimeoutError, driver_error, OSError)
        self._make_locks()

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Yield a connection. By default each statement is a transaction.

        :raises sqlalchemy.exc.DBAPIError: if the database refuses a plant.
        :raises StoreUnavailable: for every other error of the database.
        """
        try:
            with self._slots.one(), self.engine.connect() as connection:
                driver = driver_of(connection)
                try:
                    self._slots.check_server(driver, partial(self.backend.working, connection))
                    if not self._of_site:
                        self.backend.limit_waiting(connection)
                    watch = self.backend.watch(driver)
                    yield connection
                    if not connection.invalidated and self.backend.in_transaction(driver):
                        connection.commit()
                    if not watch.is_replicated:
                        raise StoreUnavailable(_NOT_REPLICATED)
                except (PlantExists, StoreMisconfigured):
                    raise
                except BaseException as error:  # The thread may have been interrupted.
                    self._slots.keep(driver)
                    if not self._refuses(error) and not self._shares_connection:
                        connection.invalidate()  # Its state is unknown.
                    raise
        except self._failures as error:
            if self._refuses(error):
                raise
            raise self._unavailable(error) from error

    def add(self, statements: Statements, plant: Plant) -> None:
        """Insert a plant, and return when the database has committed it.

        :raises PlantExists: if a plant with its id exists.
        :raises sqlalchemy.exc.DBAPIError: if the database refuses the plant.
        :raises StoreUnavailable: for every other error of the database.
        """
        if self.backend.one_writer:
            self._group.add(Add(statements, plant))
        else:
            self.retry(lambda connection: statements.insert(connection, plant))

    def retry(self, statement: Callable[[Connection], _T]) -> _T:
        """Execute a statement, and repeat it after conflicts with concurrent transactions."""
        attempts = 0
        while True:
            attempts += 1
            try:
                with self.connect() as connection:
                    return statement(connection)
            except StoreUnavailable as error:
                if not self.is_conflict(error):
                    raise
                pause_before_retry(attempts, error)

    def is_conflict(self, error: StoreUnavailable) -> bool:
        """Return whether an operation can be repeated after a concurrent transaction."""
        cause = error.__cause__
        return isinstance(cause, exc.DBAPIError) and self.backend.is_conflict(cause)

    def is_new(self) -> bool:
        """Return whether the first connection would create the database."""
        return self.backend.is_new(self.engine.url)

    def check_writable(self) -> None:
        """Check the permission to write to the file of the database, if it has one.

        :raises StoreUnavailable: if it is missing.
        """
        self.backend.check_writable(self.engine.url)

    def first_use(self, function: Callable[[], None]) -> None:
        """Call a function before the first use of a table, once for all threads that wait for it.

        With an engine of our own, the function continues in another thread when the deadline has
        passed. So the first use of a slow server succeeds after some time. The event listeners of
        a site may need the thread of the request: there, each thread calls the function, one after
        the other.

        :raises StoreUnavailable: if the deadline passes.
        """
        if self._of_site:
            self._one_at_a_time(function)
        else:
            self._background.call(function)

    def close(self) -> None:
        """Close the idle connections. The connections of a site stay open."""
        self._slots.close()
        self._dispose()

    def after_fork(self) -> None:
        """Replace connections and locks in a child process: those of the parent are not safe."""
        self._dispose()
        self._make_locks()

    def _dispose(self) -> None:
        if not self._shares_connection:
            # A child process must not close the connections of its parent.
            self.engine.dispose(close=self._pid == os.getpid())

    def _make_locks(self) -> None:
        self._pid = os.getpid()
        self._slots = Slots(self._size)
        self._background = Background()
        self._site_lock = RLock()  # An event listener of the site may use another store.
        # The event listeners of a site may write to the database during an add.
        self._group = GroupCommit(self._commit, 1 if self._of_site else _GROUP_SIZE)

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

    def _commit(self, group: list[Add]) -> None:
        if len(group) > 1:
            self._commit_together(group)
            return
        (add,) = group
        with self.connect() as connection:
            add.statements.insert(connection, add.plant)
        add.done = True

    def _commit_together(self, group: list[Add]) -> None:
        with suppress(StoreUnavailable), self.connect() as connection:
            driver = driver_of(connection)
            inserted = False
            try:
                driver.execute("BEGIN IMMEDIATE")
                statements = group[0].statements
                statements.insert_together(connection, [add.plant for add in group])
                inserted = True
                self.backend.limit_waiting(connection)
                driver.execute("COMMIT")
                _finish(group)
            except (*self._failures, StoreMisconfigured, OverflowError, ValueError) as error:
                if driver.in_transaction:
                    driver.execute("ROLLBACK")
                elif inserted:  # It is not known whether the commit has failed completely.
                    _finish(group, self._unavailable(error))
            except BaseException:
                if inserted and not driver.in_transaction:
                    _finish(group)  # The thread was interrupted after the commit.
                raise

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(self.backend.describe(error, self.engine.url))

    def _refuses(self, error: BaseException) -> bool:
        return isinstance(error, exc.DBAPIError) and self.backend.is_refusal(error)


def _finish(group: list[Add], error: StoreUnavailable | None = None) -> None:
    """Set the outcome of adds whose transaction has ended."""
    for add in group:
        add.error = copy(error)  # Each thread needs an exception of its own.
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


def _before_fork() -> None:
    # With an inherited connection, SQLite misjudges its locks: a write-ahead log in use is deleted.
    for connections in filter(None, [known() for known in _connections.values()]):
        if connections.backend.one_writer:
            connections.close()


def _after_fork() -> None:
    global _connections_lock  # noqa: PLW0603
    _connections_lock = Lock()
    for connections in filter(None, [known() for known in _connections.values()]):
        connections.after_fork()


if sys.platform != "win32":  # pragma: no branch
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def driver_of(connection: Connection) -> Any:
    """Return the connection of the driver."""
    return connection.connection.dbapi_connection
