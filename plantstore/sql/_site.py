"""The engine of a site: the thread of a request executes the statements itself."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore, RLock
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from ..stores.base import Plant, PlantExists, StoreUnavailable
from ..stores.deadline import remaining
from ._limits import Limits, Sizes
from ._tables import dropped
from .databases import Database, Run, close, copy_engine, is_in_memory

_ALL_IN_USE = f"all {Sizes.site_connections} connections of the store are in use"
_SHARED_IN_USE = "the connection of the database in memory is in use"

_T = TypeVar("_T")


class SiteConnections:
    """The connections of a store on the engine of a site, as :class:`LaneConnections`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pool = _pool_of(database.engine)

    def add(self, plant: Plant) -> None:
        added, existing = self.call(partial(self._database.add, plants=[plant]))
        if not added:
            raise PlantExists(plant.id) if existing else dropped(self._database.table)

    def call(self, run: Run[_T], *, writes: bool = False) -> _T:
        def commit(connection: Connection) -> _T:
            result = run(connection)
            connection.commit()  # A listener of the site may have begun a transaction.
            return result

        def attempt() -> _T:
            with self._pool.connect(self._database) as connection:
                return self._database.execute(connection, commit)

        expires = time.monotonic() + remaining(Limits.operation)
        try:
            return self._database.retry(attempt, expires)
        except Exception as error:  # noqa: BLE001  # The caller gets it.
            # No variable for the new exception: its traceback would keep the connection in use.
            raise self._database.explain(error)  # noqa: B904  # It has a cause.

    def close(self) -> None:
        """Close the connections of all stores of the engine. Those of the site stay open."""
        self._pool.close()


class _Pool:
    """Connections to the database of a site, for all stores of its engine.

    A request may hold a connection of the site's pool while it waits for one of the store. If they
    were one pool, concurrent requests could wait for each other. An SQLite database in memory has
    only one connection, which is shared.
    """

    _engine: Engine | None = None

    def __init__(self, engine: Engine) -> None:
        self._site = engine
        # An SQLite database in memory would be lost with its only connection.
        kinds = (StaticPool, SingletonThreadPool) if is_in_memory(engine.url) else (StaticPool,)
        self.is_shared = engine.dialect.name == "sqlite" and isinstance(engine.pool, kinds)
        self.reset()

    def reset(self) -> None:
        """Begin without connections and locks. Those of a parent process are not safe."""
        self.close()
        self._pid = os.getpid()
        # Two threads must not use one connection. One may: an event listener of the site.
        self._free = RLock() if self.is_shared else BoundedSemaphore(Sizes.site_connections)
        self._first_use = RLock()  # An event listener of the site may use another store.

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            # A child process must not close the connections of its parent.
            engine.dispose(close=self._pid == os.getpid())

    @contextmanager
    def connect(self, database: Database) -> Iterator[Connection]:
        if not self._free.acquire(timeout=remaining(Limits.operation)):
            raise StoreUnavailable(_SHARED_IN_USE if self.is_shared else _ALL_IN_USE)
        try:
            connection = self._open()
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
        if self.is_shared:
            return self._site.connect().execution_options(isolation_level="AUTOCOMMIT")
        engine = self._engine
        if engine is not None:
            return engine.connect()
        # SQLAlchemy initializes an engine with its first connection, and others must wait.
        if not self._first_use.acquire(timeout=remaining(Limits.operation)):
            raise StoreUnavailable("the first use of the database has not finished yet")
        try:
            if self._site.dialect.server_version_info is None:
                with self._site.connect() as connection:
                    connection.detach()  # It is closed, and not returned to the pool.
            # Its connection can call an event listener of the site, which may use another store.
            engine = self._engine or copy_engine(self._site)
            connection = engine.connect()
            self._engine = engine
            return connection
        finally:
            self._first_use.release()


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


def _for_each_pool(call: Callable[[_Pool], None]) -> None:
    engines = [engine for known in _pools.keyrefs() if (engine := known()) is not None]
    for pool in filter(None, [_pools[engine]() for engine in engines]):
        call(pool)


if hasattr(os, "register_at_fork"):  # pragma: no branch  # Windows has no fork.
    os.register_at_fork(
        # A child would misjudge the locks of SQLite files that are open.
        before=partial(_for_each_pool, _Pool.close),
        after_in_child=partial(_for_each_pool, _Pool.reset),
    )
