"""Plants in a SQL database, by SQLAlchemy Core: one store for every engine."""

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

from .base import Plant, PlantExists, Store, StoreUnavailable

#: What an engine raises for a plant that no table can hold; all else means "not now".
FAULTS = (exc.IntegrityError, exc.DataError)
ATTEMPTS = 10  # Of an operation that gets into another's way,
PATIENCE = 2  # all begun within so many seconds,
PAUSE = 0.02  # and so many apart at most.
TURN = 0.5  # Seconds that an add into SQLite waits for those of other threads, then tries anyway.


def plants_table(metadata: MetaData) -> Table:
    """Return the table ``plants`` in some metadata, the same for every engine.

    Raises :exc:`ValueError` when another table has that name there.
    """
    # In MySQL and MariaDB plain TEXT ends at 65,535 bytes.
    unbounded = Text().with_variant(LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
    table = Table(
        "plants",
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", unbounded, nullable=False),
        Column("tag", unbounded),
        keep_existing=True,
        implicit_returning=False,
        sqlite_with_rowid=False,  # Else there would be a second tree, for the id.
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )
    if table.columns.keys() != ["id", "name", "tag"]:
        raise ValueError("the metadata has another table that is named plants")
    return table


T = TypeVar("T")
Operation = Callable[["SQLStore", T], None]


def _tried_again(operation: Operation[T]) -> Operation[T]:
    """Have an operation tried again when it only got into another's way and was undone."""

    @wraps(operation)
    def tried(store: "SQLStore", about: T) -> None:
        attempts, until = 0, time.monotonic() + PATIENCE
        while True:
            attempts += 1
            try:
                return operation(store, about)
            except (exc.IntegrityError, StoreUnavailable) as error:
                if attempts == ATTEMPTS or time.monotonic() > until or not _undone(error):
                    raise
            time.sleep(random.uniform(0, PAUSE))  # noqa: S311

    return tried


def _undone(error: Exception) -> bool:
    engines = getattr(error.__cause__, "orig", error)
    # MySQL's and MariaDB's numbers for a lock not had in time, and for a deadlock.
    return isinstance(error, exc.IntegrityError) or engines.args[:1] in {(1205,), (1213,)}


def _autocommitting(engine: Engine) -> Engine:
    """Return an engine whose every statement is a transaction, and one round trip."""
    if engine.get_execution_options().get("plantstore"):
        return engine  # From make_engine, which needs no asking at each connection.
    return engine.execution_options(isolation_level="AUTOCOMMIT")


class SQLStore(Store):
    """Plants in the table ``plants`` of a database, as durable as its engine makes them.

    ``engine`` may be the one that a site has already, with the time limits that the site
    has set. With ``metadata`` the table is put in there and left to the site's migrations;
    without, it is made when it is needed. Any number of threads, processes and machines
    may share the table. Raises :exc:`ValueError` when the metadata has another such table.
    """

    #: The most plants that are in memory at a time,
    PAGE: ClassVar[int] = 100
    #: and about the most characters, unless a single plant has more.
    WEIGHT: ClassVar[int] = 1_000_000

    def __init__(self, engine: Engine, metadata: MetaData | None = None) -> None:
        self._table = plants_table(MetaData() if metadata is None else metadata)
        # Made once: to make them each time takes a tenth of an add.
        self._insert = insert(self._table)
        self._select_one = select(self._table).where(self._table.c.id == bindparam("id"))
        self._made = self._left_to_site = metadata is not None
        self._engine = _autocommitting(engine)
        self._adding, self._pid = RLock(), os.getpid()
        self._one_writer = engine.dialect.name == "sqlite"
        # The driver's own where it is SQLAlchemy itself that uses the connection.
        self._failures = (exc.DBAPIError, exc.TimeoutError, engine.dialect.loaded_dbapi.Error)

    @_tried_again
    def add(self, plant: Plant) -> None:
        """Keep a new plant; raises :exc:`PlantExists` when its id is taken."""
        with self._turn(), self._connect() as connection:
            try:
                connection.execute(self._insert, plant._asdict())
            except exc.IntegrityError:
                if self._find(connection, plant.id) is None:
                    raise  # Another fault; or it was removed since.
                raise PlantExists(plant.id) from None

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        """Keep all of these new plants, or none of them; return how many were added.

        Raises :exc:`PlantExists` with an id that is taken, or that comes twice;
        ``skip_existing`` passes over such plants. Whatever the iterable itself raises
        undoes it all. Takes :attr:`PAGE` plants at a time from it.
        """
        keep = self._add_new if skip_existing else self._add_batch
        with self._transaction() as connection:
            batches = self._batches(plants, skip_existing)
            return sum(keep(connection, batch) for batch in batches)

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` when there is none."""
        if not _in_int64(id):
            return None
        with self._connect() as connection:
            return self._find(connection, id)

    @_tried_again
    def remove(self, id: int) -> None:
        """Forget the plant with this id; raises :exc:`KeyError` when there is none."""
        if not _in_int64(id):
            raise KeyError(id)
        with self._connect() as connection:
            if connection.execute(delete(self._table).where(self._table.c.id == id)).rowcount == 0:
                raise KeyError(id)

    def __iter__(self) -> Iterator[Plant]:
        """Yield the plants in the order of their ids, a page in memory at a time."""
        after, size = None, self.PAGE // 8  # It grows, unless plants turn out to be heavy.
        while True:
            page = self._page(after, size)
            yield from page
            if len(page) < size:
                return
            after, heavy = page[-1].id, sum(map(_weight, page)) > self.WEIGHT / 2
            size = max(1, size // 2) if heavy else min(self.PAGE, size * 2)

    def __len__(self) -> int:
        """Return how many plants there are."""
        with self._connect() as connection:
            return connection.execute(select(func.count()).select_from(self._table)).scalar_one()

    def ping(self) -> None:
        """Return when the database answers, and has the table."""
        with self._connect() as connection:
            self._find(connection, 0)

    def close(self) -> None:
        """Close the connections that are not in use."""
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
                self._refuse_taken(another, batch)  # Somebody was quicker.
            raise
        return len(batch)

    def _add_new(self, connection: Connection, batch: dict[int, Plant]) -> int:
        if connection.dialect.name == "postgresql":
            # Whose driver, when such an insert fails, loses count of what it has prepared.
            new = postgresql.insert(self._table).on_conflict_do_nothing(index_elements=["id"])
            counted = {"preserve_rowcount": True}
            return connection.execute(new, _values(batch), execution_options=counted).rowcount
        taken = self._taken(connection, batch)
        free = {id: plant for id, plant in batch.items() if id not in taken}
        try:
            with connection.begin_nested():
                if free:
                    connection.execute(self._insert, _values(free))
        except exc.IntegrityError:
            if not self._taken(connection, free):
                raise
            return self._add_new(connection, free)  # Somebody was quicker.
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
        # It is to see what others add meanwhile, or else to keep them out.
        level = "SERIALIZABLE" if self._one_writer else "READ COMMITTED"
        with (
            self._connect() as connection,
            connection.execution_options(isolation_level=level).begin(),
        ):
            if self._one_writer and not _begun(connection):
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                if not self._one_writer:
                    connection.invalidate()  # The server undoes it, however long that takes.
                raise

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Have threads add to SQLite one after the other, unless that takes too long.

        By itself it would let each sleep, longer and longer, until it happens to be free.
        """
        adding = self._adding
        mine = self._one_writer and adding.acquire(timeout=TURN)
        try:
            yield
        finally:
            if mine:
                adding.release()

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """Give a connection; from it all that means "not now" becomes StoreUnavailable."""
        self._leave_parent()
        try:
            with self._engine.connect() as connection:
                try:
                    self._make_table(connection)
                    yield connection
                    if self._one_writer and _begun(connection):
                        connection.commit()  # A site's engine may begin by itself.
                except self._failures as error:
                    if not isinstance(error, FAULTS):
                        self._drop(connection)
                    raise
        except self._failures as error:
            if isinstance(error, FAULTS):
                raise
            self._made = self._left_to_site
            raise StoreUnavailable(str(getattr(error, "orig", error))) from error

    def _drop(self, connection: Connection) -> None:
        """Drop a connection that may be in the middle of anything."""
        # But not one that is a database itself, in memory.
        if not isinstance(self._engine.pool, SingletonThreadPool | StaticPool):
            connection.invalidate()

    def _leave_parent(self) -> None:
        """Leave a parent process's connections and lock alone: they must not cross a fork."""
        if self._pid != os.getpid():
            self._engine.dispose(close=False)
            self._adding, self._pid = RLock(), os.getpid()

    def _make_table(self, connection: Connection) -> None:
        if self._made:
            return
        try:
            self._table.create(connection, checkfirst=True)
        except exc.DBAPIError as error:
            if error.connection_invalidated or not inspect(connection).has_table("plants"):
                raise
            # Another worker made it between our look and our attempt.
        connection.commit()
        self._made = True


def _in_int64(id: int) -> bool:
    return -(2**63) <= id < 2**63  # Beyond it SQLite's driver raises OverflowError.


def _weight(plant: Plant) -> int:
    return len(plant.name) + len(plant.tag or "")


def _values(plants: dict[int, Plant]) -> list[dict[str, Any]]:
    return [plant._asdict() for plant in plants.values()]


def _begun(connection: Connection) -> bool:
    """Tell whether SQLite is in a transaction."""
    return bool(connection.connection.dbapi_connection.in_transaction)  # type: ignore[union-attr]
