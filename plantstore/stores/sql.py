"""Plants in a SQL database, through SQLAlchemy Core: one store for every engine."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from typing import Any, ClassVar, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    exc,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from ..arguments import type_error
from .base import Plant, PlantExists, Store, StoreUnavailable

# The errors of a plant that the table cannot store. Any other error means that the store is not
# available.
_FAULTS = (exc.IntegrityError, exc.DataError)
# The maximum number of attempts of an operation. It is retried if it was rolled back because of a
# concurrent transaction.
_ATTEMPTS = 10
# The seconds after which an operation is not retried.
_RETRY_TIMEOUT = 2
# The longest pause between two attempts, in seconds.
_PAUSE = 0.02
# The seconds that an add into SQLite waits for the adds of other threads. After that, it does not
# wait for them any more.
_TURN_TIMEOUT = 0.5


def _plants_table(metadata: MetaData) -> Table:
    """Return the table ``plants`` of the metadata, the same for every engine.

    :raises ValueError: if the metadata has another table with this name.
    """
    # In MySQL and MariaDB, TEXT is limited to 65,535 bytes.
    unbounded = Text().with_variant(LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
    table = Table(
        "plants",
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", unbounded, nullable=False),
        Column("tag", unbounded),
        keep_existing=True,
        implicit_returning=False,
        sqlite_with_rowid=False,  # One B-tree, with the id as its key, instead of two.
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )
    if table.columns.keys() != ["id", "name", "tag"]:
        raise ValueError("metadata has another table with the name plants")
    return table


_T = TypeVar("_T")
# A method of SQLStore that can be retried.
_Operation = Callable[["SQLStore", _T], None]


def _retried(operation: _Operation[_T]) -> _Operation[_T]:
    """Retry an operation that was rolled back because of a concurrent transaction."""

    @wraps(operation)
    def retried(store: "SQLStore", argument: _T) -> None:
        attempts, until = 0, time.monotonic() + _RETRY_TIMEOUT
        while True:
            attempts += 1
            try:
                return operation(store, argument)
            except (exc.IntegrityError, StoreUnavailable) as error:
                if attempts == _ATTEMPTS or time.monotonic() > until or not _is_conflict(error):
                    raise
            time.sleep(random.uniform(0, _PAUSE))  # noqa: S311

    return retried


def _is_conflict(error: Exception) -> bool:
    driver_error = getattr(error.__cause__, "orig", error)
    # The errors of MySQL and MariaDB for a lock wait timeout (1205) and for a deadlock (1213).
    return isinstance(error, exc.IntegrityError) or driver_error.args[:1] in {(1205,), (1213,)}


def _autocommitting(engine: Engine) -> Engine:
    """Return an engine whose every statement is a transaction and takes one round trip."""
    if engine.get_execution_options().get("plantstore"):
        return engine  # make_engine has set it up.
    return engine.execution_options(isolation_level="AUTOCOMMIT")


class SQLStore(Store):
    """Plants in the table ``plants`` of a database: after an add, the database has committed it.

    Any number of threads, processes and machines may share the table.

    :param engine: the engine of the database. It may be the engine of a site; then its timeouts
        apply.
    :param metadata: the metadata of a site. The table is added to it, and the migrations of the
        site create the table. By default, the store creates the table on first use.
    :raises TypeError: if an argument has the wrong type.
    :raises ValueError: if ``metadata`` has another table with the name ``plants``.
    """

    #: The maximum number of plants that an iteration or an import keeps in memory.
    PAGE: ClassVar[int] = 100
    #: The approximate number of characters that an iteration or an import keeps in memory.
    WEIGHT: ClassVar[int] = 1_000_000

    def __init__(self, engine: Engine, metadata: MetaData | None = None) -> None:
        if not isinstance(engine, Engine):
            raise type_error("engine", "an SQLAlchemy Engine, such as db.engine", engine)
        if not isinstance(metadata, MetaData | None):
            raise type_error("metadata", "an SQLAlchemy MetaData, such as db.metadata", metadata)
        self._table = _plants_table(MetaData() if metadata is None else metadata)
        # Built once, because building them takes a tenth of the time of an add.
        self._insert = insert(self._table)
        self._select_one = select(self._table).where(self._table.c.id == bindparam("id"))
        self._table_exists = self._site_creates_table = metadata is not None
        self._engine = _autocommitting(engine)
        self._add_lock, self._pid = RLock(), os.getpid()
        self._one_writer = engine.dialect.name == "sqlite"
        # SQLAlchemy does not wrap errors of the driver that occur outside of a statement.
        self._failures = (exc.DBAPIError, exc.TimeoutError, engine.dialect.loaded_dbapi.Error)

    @_retried
    def add(self, plant: Plant) -> None:
        """Store a new plant.

        :raises PlantExists: if a plant with its id exists.
        :raises sqlalchemy.exc.IntegrityError: if the plant violates a constraint of the site.
        :raises sqlalchemy.exc.DataError: if a column of the site is too short.
        """
        with self._turn(), self._connect() as connection:
            try:
                connection.execute(self._insert, plant._asdict())
            except exc.IntegrityError:
                if self._find(connection, plant.id) is None:
                    raise  # It violates another constraint, or the other plant was just removed.
                raise PlantExists(plant.id) from None

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        """Store all new plants, or none of them, in one transaction.

        :param plants: the new plants. An exception that the iterable raises causes a rollback.
        :param skip_existing: if true, a plant whose id exists or is repeated is skipped. By
            default, it is an error.
        :returns: the number of added plants.
        :raises PlantExists: if an id exists or is repeated, and ``skip_existing`` is false.
        """
        add_batch = self._add_new if skip_existing else self._add_batch
        with self._transaction() as connection:
            batches = self._batches(plants, skip_existing)
            return sum(add_batch(connection, batch) for batch in batches)

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` when there is none."""
        if not _in_int64(id):
            return None
        with self._connect() as connection:
            return self._find(connection, id)

    @_retried
    def remove(self, id: int) -> None:
        """Remove the plant with this id.

        :raises KeyError: if there is none.
        """
        if not _in_int64(id):
            raise KeyError(id)
        with self._connect() as connection:
            if connection.execute(delete(self._table).where(self._table.c.id == id)).rowcount == 0:
                raise KeyError(id)

    def __iter__(self) -> Iterator[Plant]:
        """Yield the plants in the order of their ids, with one page in memory."""
        after, size = None, self.PAGE // 8  # Small at first: names may be long.
        while True:
            page = self._page(after, size)
            yield from page
            if len(page) < size:
                return
            after, heavy = page[-1].id, sum(map(_weight, page)) > self.WEIGHT / 2
            size = max(1, size // 2) if heavy else min(self.PAGE, size * 2)

    def __len__(self) -> int:
        """Return the number of plants."""
        with self._connect() as connection:
            return connection.execute(select(func.count()).select_from(self._table)).scalar_one()

    def ping(self) -> None:
        """Check that the database responds and has the table."""
        with self._connect() as connection:
            self._find(connection, 0)

    def close(self) -> None:
        """Close the idle connections of the engine, also if it is the engine of a site."""
        self._engine.dispose()

    def _find(self, connection: Connection, id: int) -> Plant | None:
        row = connection.execute(self._select_one, {"id": id}).one_or_none()
        return None if row is None else Plant(*row)

    def _page(self, after: int | None, size: int) -> list[Plant]:
        ordered = select(self._table).order_by(self._table.c.id).limit(size)
        if after is not None:
            ordered = ordered.where(self._table.c.id > after)
        with self._connect() as connection:
            return [Plant(*row) for row in connection.execute(ordered)]

    def _batches(self, plants: Iterable[Plant], skip_existing: bool) -> Iterator[dict[int, Plant]]:
        batch: dict[int, Plant] = {}
        weight = 0
        for plant in plants:
            if plant.id in batch and not skip_existing:
                raise PlantExists(plant.id)
            batch.setdefault(plant.id, plant)
            weight += _weight(plant)
            if len(batch) == self.PAGE or weight > self.WEIGHT:
                yield batch
                batch, weight = {}, 0
        if batch:
            yield batch

    def _add_batch(self, connection: Connection, batch: dict[int, Plant]) -> int:
        self._refuse_taken(connection, batch)
        try:
            connection.execute(self._insert, _values(batch))
        except exc.IntegrityError:
            if self._one_writer:
                raise
            with self._connect() as another:
                self._refuse_taken(another, batch)  # Another client has just added one of them.
            raise
        return len(batch)

    def _add_new(self, connection: Connection, batch: dict[int, Plant]) -> int:
        if connection.dialect.name == "postgresql":
            # After a rollback to a savepoint, psycopg may use a prepared statement that is gone.
            new = postgresql.insert(self._table).on_conflict_do_nothing(index_elements=["id"])
            return len(connection.execute(new.returning(self._table.c.id), _values(batch)).all())
        taken = self._taken(connection, batch)
        free = {id: plant for id, plant in batch.items() if id not in taken}
        try:
            with connection.begin_nested():
                if free:
                    connection.execute(self._insert, _values(free))
        except exc.IntegrityError:
            if not self._taken(connection, free):
                raise
            return self._add_new(connection, free)  # Another client has just added one of them.
        return len(free)

    def _refuse_taken(self, connection: Connection, batch: dict[int, Plant]) -> None:
        taken = self._taken(connection, batch)
        for id in batch:
            if id in taken:
                raise PlantExists(id)

    def _taken(self, connection: Connection, ids: Iterable[int]) -> set[int]:
        id = self._table.c.id
        return set(connection.execute(select(id).where(id.in_(ids))).scalars())

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        # Each statement of the transaction sees the commits of other clients. In SQLite the
        # transaction locks the database instead.
        level = "SERIALIZABLE" if self._one_writer else "READ COMMITTED"
        with self._connect() as connection:
            with connection.execution_options(isolation_level=level).begin():
                if self._one_writer and not _in_transaction(connection):
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    if not self._one_writer:
                        connection.invalidate()  # The server rolls back. That may take long.
                    raise
            if not self._one_writer:
                connection.invalidate()  # Before 2.0.20, SQLAlchemy does not restore AUTOCOMMIT.

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let the threads of this process add to SQLite one after the other, if possible.

        Without this, SQLite makes each waiting thread sleep for longer and longer. After
        _TURN_TIMEOUT, a thread does not wait for the others any more.
        """
        lock = self._add_lock
        acquired = self._one_writer and lock.acquire(timeout=_TURN_TIMEOUT)
        try:
            yield
        finally:
            if acquired:
                lock.release()

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """Yield a connection, and raise StoreUnavailable for any error but those of _FAULTS."""
        self._reset_after_fork()
        try:
            with self._engine.connect() as connection:
                try:
                    self._make_table(connection)
                    yield connection
                    if self._one_writer and _in_transaction(connection):
                        connection.commit()  # The engine of a site may have begun a transaction.
                except self._failures as error:
                    if not isinstance(error, _FAULTS):
                        self._drop(connection)
                    raise
        except self._failures as error:
            if isinstance(error, _FAULTS):
                raise
            self._table_exists = self._site_creates_table
            raise StoreUnavailable(str(getattr(error, "orig", error))) from error

    def _drop(self, connection: Connection) -> None:
        """Remove a connection of unknown state from the connection pool."""
        # An SQLite database in memory would be lost with its only connection.
        if not isinstance(self._engine.pool, SingletonThreadPool | StaticPool):
            connection.invalidate()

    def _reset_after_fork(self) -> None:
        """Use new connections and a new lock after a fork: those of the parent are not safe."""
        if self._pid != os.getpid():
            self._engine.dispose(close=False)
            self._add_lock, self._pid = RLock(), os.getpid()

    def _make_table(self, connection: Connection) -> None:
        if self._table_exists:
            return
        try:
            self._table.create(connection, checkfirst=True)
        except exc.DBAPIError as error:
            if error.connection_invalidated or not inspect(connection).has_table("plants"):
                raise
            # Another worker has created the table since the check.
        connection.commit()
        self._table_exists = True


def _in_int64(id: int) -> bool:
    return -(2**63) <= id < 2**63  # For other ids the driver of SQLite raises OverflowError.


def _weight(plant: Plant) -> int:
    return len(plant.name) + len(plant.tag or "")


def _values(plants: dict[int, Plant]) -> list[dict[str, Any]]:
    return [plant._asdict() for plant in plants.values()]


def _in_transaction(connection: Connection) -> bool:
    """Return whether a connection to SQLite is in a transaction."""
    return bool(connection.connection.dbapi_connection.in_transaction)  # type: ignore[union-attr]
