"""The engine of a site: the thread of a request executes the statements itself."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore, RLock
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from ..stores.base import Plant, PlantExists, StoreUnavailable
from ..stores.deadline import remaining
from ._limits import Limits
from ._tables import dropped
from .databases import Database, Run, close, copy_engine

#: The maximum number of connections of a process to the database of a site.
CONNECTIONS = 5
_ALL_IN_USE = f"all {CONNECTIONS} connections of the store are in use"
_SHARED_IN_USE = "the connection of the database in memory is in use"

_T = TypeVar("_T")


class SiteConnections:
    """The connections of a store on the engine of a site, as :class:`OwnConnections`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pool = _pool_of(database.engine)

    def add(self, plant: Plant) -> None:
        added, existing = self.call(partial(self._database.add, plants=[plant]))
        if not added:
            raise PlantExists(plant.id) if existing else dropped(self._database.table)

    def call(self, run: Run[_T], *, writes: bool = False) -> _T:
        def attempt() -> _T:
            with self._pool.connect(self._database) as connection:
                return self._database.execute(connection, partial(_commit, run))

        expires = time.monotonic() + remaining(Limits.operation)
        return self._database.call_explained(lambda: self._database.retry(attempt, expires))

    def close(self) -> None:
        """Close the connections of all stores of the engine. Those of the site stay open."""
        self._pool.close()

    def before_fork(self) -> None:
        if self._database.one_writer:
            self._pool.close()

    def after_fork(self, *, in_child: bool) -> None:
        """Replace connections and locks: those of the parent process are not safe in a child."""
        if in_child:
            self._pool.reset()


class _Pool:
    """Connections to the database of a site, for all stores of its engine.

    A request may hold a connection of the site's pool while it waits for one of the store. If they
    were one pool, concurrent requests could wait for each other. An SQLite database in memory has
    only one connection, which is shared.
    """

    _own: Engine | None = None

    def __init__(self, engine: Engine) -> None:
        self._site = engine
        # An SQLite database in memory would be lost with its only connection.
        in_memory = isinstance(engine.pool, SingletonThreadPool | StaticPool)
        self.is_shared = engine.dialect.name == "sqlite" and in_memory
        self.reset()

    def reset(self) -> None:
        self.close()
        self._pid = os.getpid()
        # Two threads must not use one connection. One may: an event listener of the site.
        self._free = RLock() if self.is_shared else BoundedSemaphore(CONNECTIONS)
        self._first_use = RLock()  # An event listener of the site may use another store.

    def close(self) -> None:
        own, self._own = self._own, None
        if own is not None and not self.is_shared:
            # A child process must not close the connections of its parent.
            own.dispose(close=self._pid == os.getpid())

    @contextmanager
    def connect(self, database: Database) -> Iterator[Connection]:
        if not self._free.acquire(timeout=remaining(Limits.operation)):
            raise StoreUnavailable(_SHARED_IN_USE if self.is_shared else _ALL_IN_USE)
        try:
            connection = database.call_explained(self._open)
            try:
                database.watch(connection)
                yield connection
            except BaseException as error:  # The thread may have been interrupted.
                if database.breaks_connection(error) and not self.is_shared:
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
            if not self.is_shared and self._site.dialect.server_version_info is None:
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
        if self.is_shared:
            return self._site.execution_options(isolation_level="AUTOCOMMIT")
        return copy_engine(self._site)


# The pool of each engine. The reference is weak: a pool refers to its engine, and would keep both.
_pools: WeakKeyDictionary[Engine, ref[_Pool]] = WeakKeyDictionary()


def _pool_of(engine: Engine) -> _Pool:
    """Return the pool of an engine, the same for all its stores."""
    new = _Pool(engine)
    pool = _pools.setdefault(engine, ref(new))() or new
    if pool is new:
        # When a site has disposed of its engine, it expects that no connection is open. The
        # listener keeps the pool as long as the engine.
        event.listen(engine, "engine_disposed", lambda _: new.close())
    return pool


def _commit(run: Run[_T], connection: Connection) -> _T:
    """Execute a function, and commit: a listener of the site may have begun a transaction."""
    result = run(connection)
    connection.commit()
    return result
