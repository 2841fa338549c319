"""Plants in a SQL database, through SQLAlchemy Core: one store for every engine."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

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

from ..arguments import type_error
from .base import BulkStore, Plant, PlantExists, StoreMisconfigured, StoreUnavailable
from .bulk import PAGE, WEIGHT, Import, weight
from .connections import connections_of
from .deadline import deadline, remaining
from .tables import check_added, check_table, create_table, define_table, misconfigured


class SQLStore(BulkStore):
    """Plants in a table of a database: after an add, the database has committed it.

    Any number of threads, processes and machines may share the table. The store checks the table
    at first use. While the table cannot store every plant, each method raises
    :exc:`StoreMisconfigured`. Each method but :meth:`add_all` and iteration returns or raises an
    exception within five seconds.

    :param engine: the engine of the database. It may be the engine of a site; then its timeouts
        apply, and the store uses up to five connections of its own.
    :param metadata: the metadata of a site. The table is added to it, and the migrations of the
        site create the table. By default, the store creates the table at first use.
    :param table: the name of the table.
    :raises TypeError: if an argument has the wrong type.
    :raises ValueError: if ``metadata`` has another table with this name, if the name is empty
        or too long, or if the database is not SQLite, PostgreSQL, MariaDB or MySQL.
    """

    def __init__(
        self, engine: Engine, metadata: MetaData | None = None, *, table: str = "plants"
    ) -> None:
        if not isinstance(engine, Engine):
            raise type_error("engine", "an SQLAlchemy Engine, such as db.engine", engine)
        if not isinstance(metadata, MetaData | None):
            raise type_error("metadata", "an SQLAlchemy MetaData, such as db.metadata", metadata)
        self._connections = connections_of(engine)
        self._site_creates_table = metadata is not None
        self._table = define_table(table, MetaData() if metadata is None else metadata, engine)
        columns = self._table.c
        # Built once, because building them takes a tenth of the time of an add.
        self._insert = insert(self._table)
        self._select = select(columns.id, columns.name, columns.tag)
        self._select_one = self._select.where(columns.id == bindparam("id"))
        self._table_is_checked = False
        self._keys: Collection[Any] = ()

    def add(self, plant: Plant) -> None:
        """Store a new plant.

        :raises PlantExists: if a plant with its id exists.
        :raises StoreMisconfigured: if the plant violates a constraint of the site, or if a column
            of the site is too short.
        """
        with self._operation():
            self._connections.write(lambda connection: self._insert_plant(connection, plant))

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        """Store all new plants, or none of them, in one transaction.

        :param plants: the new plants. An exception that the iterable raises causes a rollback.
        :param skip_existing: if true, a plant whose id exists or is repeated is skipped. By
            default, it is an error.
        :returns: the number of added plants.
        :raises PlantExists: if an id exists or is repeated, and ``skip_existing`` is false.
        """
        with self._checked():
            one = Import(self._connections, self._table, self._keys, skip_existing)
            return one.add_all(plants)

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` when there is none."""
        if not _in_int64(id):
            return None
        with self._operation(), self._connections.connect() as connection:
            return self._find(connection, id)

    def remove(self, id: int) -> None:
        """Remove the plant with this id.

        :raises KeyError: if there is none.
        """
        if not _in_int64(id):
            raise KeyError(id)
        statement = delete(self._table).where(self._table.c.id == id)
        with self._operation():
            removed = self._connections.retry(lambda one: one.execute(statement).rowcount)
        if removed == 0:
            raise KeyError(id)

    def __iter__(self) -> Iterator[Plant]:
        """Yield the plants in the order of their ids, with one page in memory."""
        after, size = None, PAGE // 8  # Small at first: names may be long.
        while True:
            page = self._page(after, size)
            yield from page
            if len(page) < size:
                return
            after, heavy = page[-1].id, sum(map(weight, page)) > WEIGHT / 2
            size = max(1, size // 2) if heavy else min(PAGE, size * 2)

    def __len__(self) -> int:
        """Return the number of plants."""
        with self._operation(), self._connections.connect() as connection:
            return connection.execute(select(func.count()).select_from(self._table)).scalar_one()

    def ping(self) -> None:
        """Check that the database responds and that its table can store plants."""
        self.get(0)

    def close(self) -> None:
        """Close the idle connections of the store. Those of a site stay open."""
        self._connections.close()

    @contextmanager
    def _operation(self) -> Iterator[None]:
        """Set the deadline of an operation, and check the table if necessary."""
        with deadline(self._connections.timeout), self._checked():
            yield

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Check the table before its first use, and also after an error."""
        try:
            if not self._table_is_checked:
                with deadline(self._connections.timeout):
                    self._connections.once(self._check_table)
            yield
        except StoreUnavailable:
            # A deadline that has passed says nothing about the table. On a slow server, the other
            # threads would have to wait for another check.
            self._table_is_checked = self._table_is_checked and not remaining()
            raise
        except exc.DBAPIError as error:
            self._table_is_checked = False
            raise self._refused(error) from error

    def _check_table(self) -> None:
        if self._table_is_checked:
            return  # Another thread has just checked it.
        with self._connections.connect() as connection:
            if not self._site_creates_table:
                create_table(connection, self._table)
            check_table(connection, self._table, self._connections.backend)
            self._keys = self._connections.backend.keys(connection, self._table)
            connection.commit()
        self._table_is_checked = True

    def _insert_plant(self, connection: Connection, plant: Plant) -> None:
        try:
            added = connection.execute(self._insert, plant._asdict()).rowcount
        except exc.IntegrityError as error:
            if self._connections.backend.is_duplicate(error, self._keys, [plant.id]):
                raise PlantExists(plant.id) from None
            raise
        check_added(self._table, added, 1)

    def _find(self, connection: Connection, id: int) -> Plant | None:
        row = connection.execute(self._select_one, {"id": id}).one_or_none()
        return None if row is None else Plant(*row)

    def _page(self, after: int | None, size: int) -> list[Plant]:
        ordered = self._select.order_by(self._table.c.id).limit(size)
        if after is not None:
            ordered = ordered.where(self._table.c.id > after)
        with self._operation(), self._connections.connect() as connection:
            return [Plant(*row) for row in connection.execute(ordered)]

    def _refused(self, error: exc.DBAPIError) -> StoreMisconfigured:
        return misconfigured(self._table, f"it refuses an operation: {_without_values(error)}")


def _without_values(error: exc.DBAPIError) -> str:
    """Return the message of the driver without the values of a plant."""
    # PostgreSQL repeats them after the first line, MySQL and MariaDB in "Duplicate entry '...'".
    first_line, _, _ = str(error.orig).partition("\n")
    return re.sub("entry '.*' for key", "entry for key", first_line)


def _in_int64(id: int) -> bool:
    return -(2**63) <= id < 2**63  # For other ids the driver of SQLite raises OverflowError.
