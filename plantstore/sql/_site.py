"""The engine of a site: the thread of a request executes the statements itself."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore, RLock
from typing import TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from ..stores.base import Plant, PlantExists, StoreUnavailable
from ..stores.deadline import Limits, remaining
from ._failures import Failures, Session
from ._statements import Run, Statements
from .databases import Database, close, copy_engine, dropped

#: The maximum number of connections of a process to the database of a site.
CONNECTIONS = 5
_ALL_IN_USE = f"all {CONNECTIONS} connections of the store are in use"
_SHARED_IN_USE = "the connection of the database in memory is in use"

_T = TypeVar("_T")


class SiteConnections:
    """Connections to the database of a site, in a pool of their own.

    A request may hold a connection of the site's pool while it waits for one of the store. If they
    were one pool, concurrent requests could wait for each other. An SQLite database in memory has
    only one connection, which is shared.
    """

    def __init__(self, engine: Engine, database: Database) -> None:
        self.database = database
        self._site = engine
        self._failures = Failures(engine, database)
        # An SQLite database in memory would be lost with its only connection.
        in_memory = isinstance(engine.pool, SingletonThreadPool | StaticPool)
        self._is_shared = database.one_writer and in_memory
        self._reset()
        # When a site has disposed of its engine, it expects that no connection is open.
        event.listen(engine, "engine_disposed", lambda _: self.close())

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._own: Engine | None = None
        # Two threads must not use one connection. One may, for an import that reads.
        self._free = RLock() if self._is_shared else BoundedSemaphore(CONNECTIONS)
        self._first_use = RLock()  # An event listener of the site may use another store.

    def add(self, statements: Statements, plant: Plant) -> None:
        """Insert a plant, as :meth:`OwnConnections.add` does."""
        added, existing = self.call(statements, partial(statements.insert, plants=[plant]))
        if not added:
            raise PlantExists(plant.id) if existing else dropped(statements.table)

    def call(self, statements: Statements, run: Run[_T], *, writes: bool = False) -> _T:
        """Execute a function, as :meth:`OwnConnections.call` does."""

        def attempt() -> _T:
            with self._connect(statements) as connection:
                return self._failures.checked(connection, partial(_commit, run))

        expires = time.monotonic() + remaining(Limits.operation)
        return self._failures.explained(statements, lambda: self._failures.retry(attempt, expires))

    @contextmanager
    def session(self, statements: Statements) -> Iterator[Session]:
        """Provide a connection, as :meth:`OwnConnections.session` does."""
        with self._connect(statements) as connection:
            # Until its last step, an import into SQLite changes only a temporary table.
            commits = self.database.one_writer

            def step(run: Run[_T]) -> _T:
                used = partial(_commit, run) if commits else run
                return self._failures.step(statements, connection, used)

            try:
                yield step
            finally:
                if not self._is_shared:
                    connection.invalidate()  # The server rolls back what is not committed.

    def close(self) -> None:
        """Close the connections. Those of the site stay open."""
        own, self._own = self._own, None
        if own is not None and not self._is_shared:
            # A child process must not close the connections of its parent.
            own.dispose(close=self._pid == os.getpid())

    def after_fork(self) -> None:
        """Replace connections and locks in a child process: those of the parent are not safe."""
        self.close()
        self._reset()

    @contextmanager
    def _connect(self, statements: Statements) -> Iterator[Connection]:
        if not self._free.acquire(timeout=remaining(Limits.operation)):
            raise StoreUnavailable(_SHARED_IN_USE if self._is_shared else _ALL_IN_USE)
        try:
            connection = self._failures.explained(statements, self._open)
            try:
                self.database.watch(connection)
                yield connection
            except BaseException as error:  # The thread may have been interrupted.
                if not self.database.is_conflict(error):
                    statements.is_checked = False
                if self._failures.breaks_connection(error) and not self._is_shared:
                    connection.invalidate()
                raise
            finally:
                close(connection)
        finally:
            self._free.release()

    def _open(self) -> Connection:
        own = self._own
        if own is not None:
            return own.connect()
        # SQLAlchemy initializes an engine with its first connection, and others must wait.
        if not self._first_use.acquire(timeout=remaining(Limits.operation)):
            raise StoreUnavailable("the first use of the database has not finished yet")
        try:
            if not self._is_shared and self._site.dialect.server_version_info is None:
                with self._site.connect() as connection:
                    connection.detach()  # It is closed, and not returned to the pool.
            # Its connection can call an event listener of the site, which may use another store.
            own = self._own or self._copy()
            connection = own.connect()
            self._own = own
        finally:
            self._first_use.release()
        return connection

    def _copy(self) -> Engine:
        if self._is_shared:
            return self._site.execution_options(isolation_level="AUTOCOMMIT")
        return copy_engine(self._site)


def _commit(run: Run[_T], connection: Connection) -> _T:
    """Execute a function, and commit: a listener of the site may have begun a transaction."""
    result = run(connection)
    connection.commit()
    return result
