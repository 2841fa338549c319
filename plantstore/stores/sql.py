"""Plants in a SQL database, by SQLAlchemy Core: one store for every engine."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ClassVar, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Insert,
    MetaData,
    Table,
    Text,
    delete,
    exc,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.mysql import LONGTEXT

from .base import Plant, PlantExists, Store, StoreUnavailable

#: What an engine raises for a plant that no table can hold; all else means "not now".
FAULTS = (exc.IntegrityError, exc.DataError)
ATTEMPTS = 10  # Of an operation that gets into another's way,
PATIENCE = 2  # all begun within so many seconds,
PAUSE = 0.02  # and so many apart at most.


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
        sqlite_with_rowid=False,  # Else a NULL id would do.
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
        until = time.monotonic() + PATIENCE
        for left in reversed(range(ATTEMPTS)):
            try:
                operation(store, about)
                break
            except (exc.IntegrityError, StoreUnavailable) as error:
                if not left or time.monotonic() > until or not _undone(error):
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

    ``engine`` may be the one that a site has already. With ``metadata`` the table is put
    in there and left to the site's migrations; without, it is made when it is needed.
    Any number of threads, processes and machines may share the table.
    """

    #: Plants in memory at a time, of which each may have a megabyte of text.
    PAGE: ClassVar[int] = 100

    def __init__(self, engine: Engine, metadata: MetaData | None = None) -> None:
        self._table = plants_table(MetaData() if metadata is None else metadata)
        self._made = metadata is not None
        self._engine = _autocommitting(engine)
        self._pid = os.getpid()
        # The driver's own where it is SQLAlchemy itself that uses the connection.
        self._failures = (exc.DBAPIError, exc.TimeoutError, engine.dialect.loaded_dbapi.Error)

    @_tried_again
    def add(self, plant: Plant) -> None:
        """Keep a new plant; raises :exc:`PlantExists` when its id is taken."""
        with self._connect() as connection:
            try:
                connection.execute(insert(self._table), plant._asdict())
            except exc.IntegrityError:
                if self._find(connection, plant.id) is None:
                    raise  # Another fault; or it was removed since.
                raise PlantExists(plant.id) from None

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        """Keep all of these new plants, or none of them; return how many were added.

        Raises :exc:`PlantExists` with the first id that is taken, or that comes twice;
        ``skip_existing`` passes over such plants. Whatever the iterable itself raises
        undoes it all. Takes :attr:`PAGE` plants at a time from it.
        """
        with self._transaction() as connection:
            return sum(
                self._add_batch(connection, batch, skip_existing)
                for batch in self._batches(plants, skip_existing)
            )

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` when there is none."""
        if not _in_int64(id):
            return None
        with self._connect() as connection:
            return self._find(connection, id)

    @_tried_again
    def remove(self, id: int) -> None:
        """Forget the plant with this id; raises :exc:`KeyError` when there is none."""
        this = delete(self._table).where(self._table.c.id == id)
        with self._connect() as connection:
            if not _in_int64(id) or connection.execute(this).rowcount == 0:
                raise KeyError(id)

    def __iter__(self) -> Iterator[Plant]:
        """Yield the plants in the order of their ids, a page in memory at a time."""
        page = self._page(None)
        while page:
            yield from page
            page = self._page(page[-1].id)

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
        row = connection.execute(select(self._table).where(self._table.c.id == id)).one_or_none()
        return None if row is None else Plant(*row)

    def _page(self, after: int | None) -> list[Plant]:
        ordered = select(self._table).order_by(self._table.c.id).limit(self.PAGE)
        if after is not None:
            ordered = ordered.where(self._table.c.id > after)
        with self._connect() as connection:
            return [Plant(*row) for row in connection.execute(ordered)]

    def _batches(self, plants: Iterable[Plant], skip_existing: bool) -> Iterator[dict[int, Plant]]:
        batch: dict[int, Plant] = {}
        for plant in plants:
            if batch.setdefault(plant.id, plant) is not plant and not skip_existing:
                raise PlantExists(plant.id)
            if len(batch) == self.PAGE:
                yield batch
                batch = {}
        if batch:
            yield batch

    def _add_batch(self, connection: Connection, batch: dict[int, Plant], skip: bool) -> int:
        values = [plant._asdict() for plant in batch.values()]
        if skip:
            new = _insert_new(self._table, connection.dialect.name)
            kept = connection.execute(new, values, execution_options={"preserve_rowcount": True})
            return kept.rowcount
        self._refuse_taken(connection, batch)
        try:
            connection.execute(insert(self._table), values)
        except exc.IntegrityError:
            # Somebody was quicker. psycopg no longer knows what it has prepared.
            connection.invalidate()
            with self._connect() as another:
                self._refuse_taken(another, batch)
            raise
        return len(batch)

    def _refuse_taken(self, connection: Connection, ids: Iterable[int]) -> None:
        id = self._table.c.id
        taken = set(connection.execute(select(id).where(id.in_(ids))).scalars())
        for first in (id for id in ids if id in taken):
            raise PlantExists(first)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        one_writer = self._engine.dialect.name == "sqlite"
        # It is to see what others add meanwhile, or else to keep them out.
        level = "SERIALIZABLE" if one_writer else "READ COMMITTED"
        with (
            self._connect() as connection,
            connection.execution_options(isolation_level=level).begin(),
        ):
            if one_writer:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """Give a connection; from it all that means "not now" becomes StoreUnavailable."""
        self._leave_parent()
        try:
            with self._engine.connect() as connection:
                try:
                    self._make_table(connection)
                    yield connection
                except FAULTS:
                    raise
                except self._failures:
                    connection.invalidate()  # It may be in the middle of anything.
                    raise
        except FAULTS:
            raise
        except self._failures as error:
            raise StoreUnavailable(str(getattr(error, "orig", error))) from error

    def _leave_parent(self) -> None:
        """Leave a parent process's connections alone: they must not cross a fork."""
        if self._pid != os.getpid():
            self._engine.dispose(close=False)
            self._pid = os.getpid()

    def _make_table(self, connection: Connection) -> None:
        if self._made:
            return
        try:
            self._table.create(connection, checkfirst=True)
        except exc.DBAPIError:
            if not inspect(connection).has_table(self._table.name):
                raise
            # Another worker made it between our look and our attempt.
        connection.commit()
        self._made = True


def _in_int64(id: int) -> bool:
    return -(2**63) <= id < 2**63  # Beyond it SQLite's driver raises OverflowError.


def _insert_new(table: Table, dialect: str) -> Insert:
    """Return the statement that inserts rows, and passes over those whose id is taken."""
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    if dialect == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return insert(table).prefix_with("IGNORE")
