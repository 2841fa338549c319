"""Plants in a SQL database, through SQLAlchemy Core: one store for every engine."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine, MetaData, exc

from ..stores.base import (
    BulkStore,
    Plant,
    StoreMisconfigured,
    StoreUnavailable,
    check_plant,
    int64_fault,
)
from ..stores.deadline import deadline, remaining
from ..text import type_error
from ._connections import connections_of
from ._imports import PAGE, WEIGHT, Import, SourceError
from ._statements import Statements
from ._tables import TableMissing, define_table, misconfigured, table_missing

_T = TypeVar("_T")


class SQLStore(BulkStore):
    """Plants in a table of a database: after an add, the database has committed it.

    Any number of threads, processes and machines may share the table. The store checks the table
    at first use. While the table cannot store every plant, each method raises
    :exc:`StoreMisconfigured`. With an engine of :func:`open_store`, each operation ends within five
    seconds: an add, a get, a page of an iteration, a batch of an import.

    :param engine: the engine of the database. It may be the engine of a site; then its timeouts
        apply, and the store uses up to five connections of its own.
    :param metadata: the metadata of a site. The table is added to it, and the migrations of the
        site create the table. By default, the first :meth:`add` or :meth:`add_all` creates the
        table, and the store has no plants before that.
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
        definition = define_table(table, MetaData() if metadata is None else metadata, engine)
        self._statements = Statements(definition, self._connections.backend)
        self._table_is_checked = False

    def add(self, plant: Plant) -> None:
        """Store a new plant.

        :raises PlantExists: if a plant with its id exists.
        :raises ValueError: if the plant is not valid.
        :raises StoreMisconfigured: if the plant violates a constraint of the site, or if a column
            of the site is too short.
        """
        check_plant(plant)
        with deadline(self._connections.timeout), self._checked(self._create_table):
            self._connections.add(self._statements, plant)

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        """Store all new plants, or none of them, in one transaction.

        :param plants: the new plants. An exception that the iterable raises causes a rollback.
        :param skip_existing: if true, a plant whose id exists or is repeated is skipped. By
            default, it is an error.
        :returns: the number of added plants.
        :raises PlantExists: if an id exists or is repeated, and ``skip_existing`` is false.
        :raises ValueError: if a plant is not valid.
        """
        valid = map(check_plant, plants)
        try:
            with self._checked(self._create_table):
                return Import(self._connections, self._statements, skip_existing).add_all(valid)
        except SourceError as error:
            (original,) = error.args
            raise original from original.__cause__

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` when there is none."""
        if int64_fault(id):  # The driver of SQLite would raise OverflowError.
            return None
        return self._execute(lambda connection: self._statements.find(connection, id), None)

    def remove(self, id: int) -> None:
        """Remove the plant with this id.

        :raises KeyError: if there is none.
        """
        if int64_fault(id):
            raise KeyError(id)
        if not self._execute(lambda connection: self._statements.remove(connection, id), False):
            raise KeyError(id)

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants in the order of their ids, with one page in memory."""
        if after is not None and int64_fault(after):
            if after > 0:
                return
            after = None
        size = PAGE // 8  # Small at first: names may be long.
        while True:
            page, has_more = self._page(after, size)
            yield from page
            if not has_more:
                return
            after = page[-1].id
            # Some drivers read all rows: ask for as many as were used.
            size = min(PAGE, size * 8) if len(page) == size else len(page)

    def __len__(self) -> int:
        """Return the number of plants."""
        return self._execute(self._statements.count, 0)

    def ping(self) -> None:
        """Check that the database responds, and that its table can store plants if it exists.

        Of the permission to write, only that for an SQLite file is checked.
        """
        self.get(0)
        self._connections.check_writable()

    def close(self) -> None:
        """Close the idle connections of the store. Those of a site stay open."""
        self._connections.close()

    def _page(self, after: int | None, size: int) -> tuple[list[Plant], bool]:
        return self._execute(
            lambda connection: self._statements.page(connection, after, size, WEIGHT),
            (list[Plant](), False),
        )

    def _execute(self, statement: Callable[[Connection], _T], without_table: _T) -> _T:
        """Execute a statement that creates nothing.

        :param without_table: the result if the store has not created its table yet.
        """
        try:
            with deadline(self._connections.timeout), self._checked(self._check_table):
                return self._connections.retry(statement)
        except TableMissing:
            if self._site_creates_table:
                raise
            return without_table

    @contextmanager
    def _checked(self, check: Callable[[], None]) -> Iterator[None]:
        """Check the table before its first use, and also after an error."""
        is_used = False
        try:
            if not self._table_is_checked:
                with deadline(self._connections.timeout):
                    self._connections.first_use(check)
            is_used = True
            yield
        except StoreUnavailable:
            # If a slow server needs more time, another check would delay all threads.
            if is_used and remaining():
                self._table_is_checked = False
            raise
        except exc.DBAPIError as error:
            self._table_is_checked = False
            raise self._refused(error) from error

    def _check_table(self) -> None:
        if self._connections.is_new():
            raise table_missing(self._statements.table)
        self._first_use(self._statements.check)

    def _create_table(self) -> None:
        site = self._site_creates_table
        self._first_use(self._statements.check if site else self._statements.create)

    def _first_use(self, statement: Callable[[Connection], None]) -> None:
        if not self._table_is_checked:  # Another thread may have just checked it.
            self._connections.retry(statement)
            self._table_is_checked = True

    def _refused(self, error: exc.DBAPIError) -> StoreMisconfigured:
        message = _without_values(self._connections.backend.message(error))
        return misconfigured(self._statements.table, f"it refuses an operation: {message}")


def _without_values(message: str) -> str:
    """Return the message of the driver without the values of a plant."""
    # PostgreSQL repeats them after the first line, MySQL and MariaDB in "Duplicate entry '...' for
    # key", and in "Incorrect string value: '...' for column".
    message = re.sub("(entry|value:) '.*' for ", r"\1 for ", message, flags=re.DOTALL)
    return message.partition("\n")[0]
