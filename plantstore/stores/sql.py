"""Plants in a SQL database, through SQLAlchemy Core: one store for every engine."""

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    bindparam,
    delete,
    exc,
    func,
    insert,
    select,
)
from sqlalchemy.dialects import postgresql

from ..arguments import type_error
from .base import BulkStore, Plant, PlantExists, StoreMisconfigured, StoreUnavailable
from .connections import connections_of, in_transaction
from .tables import create_table, define_table, table_problem

# The maximum number of attempts of an operation. It is retried if it was rolled back because of a
# concurrent transaction.
_ATTEMPTS = 10
# The seconds after which an operation is not retried.
_RETRY_TIMEOUT = 2
# The longest pause between two attempts, in seconds.
_PAUSE = 0.02

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
    return isinstance(error, exc.IntegrityError) or driver_error.args[:1] in [(1205,), (1213,)]


class SQLStore(BulkStore):
    """Plants in a table of a database: after an add, the database has committed it.

    Any number of threads, processes and machines may share the table. The store checks the table
    at first use. While the table cannot store every plant, each method raises
    :exc:`StoreMisconfigured`.

    :param engine: the engine of the database. It may be the engine of a site; then its timeouts
        apply, and the store uses up to five connections of its own.
    :param metadata: the metadata of a site. The table is added to it, and the migrations of the
        site create the table. By default, the store creates the table at first use.
    :param table: the name of the table.
    :raises TypeError: if an argument has the wrong type.
    :raises ValueError: if ``metadata`` has another table with this name, or if the name is empty
        or too long.
    """

    #: The maximum number of plants that an iteration or an import keeps in memory.
    PAGE: ClassVar[int] = 100
    #: The approximate number of characters that an iteration or an import keeps in memory.
    WEIGHT: ClassVar[int] = 1_000_000

    def __init__(
        self, engine: Engine, metadata: MetaData | None = None, *, table: str = "plants"
    ) -> None:
        if not isinstance(engine, Engine):
            raise type_error("engine", "an SQLAlchemy Engine, such as db.engine", engine)
        if not isinstance(metadata, MetaData | None):
            raise type_error("metadata", "an SQLAlchemy MetaData, such as db.metadata", metadata)
        self._site_creates_table = metadata is not None
        self._table = define_table(table, MetaData() if metadata is None else metadata, engine)
        columns = self._table.c
        # Built once, because building them takes a tenth of the time of an add.
        self._insert = insert(self._table)
        self._select = select(columns.id, columns.name, columns.tag)
        self._select_one = self._select.where(columns.id == bindparam("id"))
        self._connections = connections_of(engine)
        self._one_writer = self._connections.one_writer
        self._table_is_checked = False

    def add(self, plant: Plant) -> None:
        """Store a new plant.

        :raises PlantExists: if a plant with its id exists.
        :raises StoreMisconfigured: if the plant violates a constraint of the site, or if a column
            of the site is too short.
        """
        try:
            self._add(plant)
        except exc.DBAPIError as error:
            raise self._refused(error) from error

    @_retried
    def _add(self, plant: Plant) -> None:
        with self._connections.turn(), self._connect() as connection:
            try:
                added = connection.execute(self._insert, plant._asdict()).rowcount
            except exc.IntegrityError:
                if self._find(connection, plant.id) is None:
                    raise  # It violates another constraint, or the other plant was just removed.
                raise PlantExists(plant.id) from None
            self._check_added(added, 1)

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        """Store all new plants, or none of them, in one transaction.

        :param plants: the new plants. An exception that the iterable raises causes a rollback.
        :param skip_existing: if true, a plant whose id exists or is repeated is skipped. By
            default, it is an error.
        :returns: the number of added plants.
        :raises PlantExists: if an id exists or is repeated, and ``skip_existing`` is false.
        """
        add_batch = self._add_new if skip_existing else self._add_batch
        try:
            with self._transaction() as connection:
                batches = self._batches(plants, skip_existing)
                return sum(add_batch(connection, batch) for batch in batches)
        except exc.DBAPIError as error:
            raise self._refused(error) from error

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
        """Check that the database responds and that its table can store plants."""
        with self._connect() as connection:
            self._find(connection, 0)

    def close(self) -> None:
        """Close the idle connections of the store. Those of a site stay open."""
        self._connections.close()

    def _find(self, connection: Connection, id: int) -> Plant | None:
        row = connection.execute(self._select_one, {"id": id}).one_or_none()
        return None if row is None else Plant(*row)

    def _page(self, after: int | None, size: int) -> list[Plant]:
        ordered = self._select.order_by(self._table.c.id).limit(size)
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
            self._insert_all(connection, batch)
        except exc.IntegrityError:
            if self._one_writer:
                raise
            with self._connect() as another:
                self._refuse_taken(another, batch)  # Another client has just added one of them.
            raise
        return len(batch)

    def _insert_all(self, connection: Connection, batch: dict[int, Plant]) -> None:
        added = connection.execute(self._insert, _values(batch)).rowcount
        self._check_added(added, len(batch))

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
                    self._insert_all(connection, free)
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
                if self._one_writer and not in_transaction(connection):
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
    def _connect(self) -> Iterator[Connection]:
        """Yield a connection to the database, whose table can store plants."""
        try:
            with self._connections.connect() as connection:
                if not self._table_is_checked:
                    self._check_table(connection)
                yield connection
        except StoreUnavailable:
            self._table_is_checked = False
            raise

    def _check_table(self, connection: Connection) -> None:
        if not self._site_creates_table:
            create_table(connection, self._table)
        problem = table_problem(connection, self._table)
        if problem is not None:
            raise self._misconfigured(problem)
        connection.commit()
        self._table_is_checked = True

    def _check_added(self, added: int, expected: int) -> None:
        # A negative number is unknown: before 2.0.28, SQLAlchemy does not count with psycopg.
        if 0 <= added != expected:
            raise self._misconfigured("a rule, a trigger or a constraint drops plants")

    def _refused(self, error: exc.DBAPIError) -> StoreMisconfigured:
        self._table_is_checked = False
        return self._misconfigured(f"it refuses a plant: {_without_values(error)}")

    def _misconfigured(self, problem: str) -> StoreMisconfigured:
        return StoreMisconfigured(f"table {self._table.name}: {problem}")


def _without_values(error: exc.DBAPIError) -> str:
    """Return the message of the driver without the values of a plant."""
    # PostgreSQL repeats them after the first line, MySQL and MariaDB in "Duplicate entry '...'".
    first_line, _, _ = str(error.orig).partition("\n")
    return re.sub("entry '.*' for key", "entry for key", first_line)


def _in_int64(id: int) -> bool:
    return -(2**63) <= id < 2**63  # For other ids the driver of SQLite raises OverflowError.


def _weight(plant: Plant) -> int:
    return len(plant.name) + len(plant.tag or "")


def _values(plants: dict[int, Plant]) -> list[dict[str, Any]]:
    return [plant._asdict() for plant in plants.values()]
