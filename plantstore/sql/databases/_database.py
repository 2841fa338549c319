"""A table in a database: the statements on it, and in what one database differs from another."""

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from functools import lru_cache
from itertools import chain, product
from typing import Any, ClassVar, TypeVar, cast, get_args, get_type_hints

from sqlalchemy import NullPool, Table, bindparam, create_engine, exc
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.sql import Select, Update, delete, func, select, update
from sqlalchemy.types import VARCHAR, BigInteger, Text

from ...stores.base import Plant, check_plant
from .._limits import Limits, Sizes
from .._tables import Types, check_table, create_table, dropped
from ._errors import BaseDatabase

#: The columns of plants in a statement, in the order of the fields. None of them needs quotes.
COLUMNS = ", ".join(Plant._fields)
# The types of the values of a plant. Another program can write others, such as a BLOB into SQLite.
_TYPES = {*product(*(get_args(hint) or [hint] for hint in get_type_hints(Plant).values()))}
#: The ids of plants that were inserted, and the ids that exist.
AddedAndExisting = tuple[Collection[int], Collection[int]]

_T = TypeVar("_T")
#: A function to execute with a connection.
Run = Callable[[Connection], _T]


class Database(BaseDatabase):
    """The table of a store, and the statements on it, which are given a connection.

    Each statement on a connection is a transaction, unless a method says otherwise.

    :param creates_table: whether an add creates the table if it is missing.
    """

    #: Whether only one connection at a time can write.
    one_writer: ClassVar[bool] = False
    #: For each type of a column of ours, those that it may have in the table.
    types: ClassVar[Types] = {BigInteger: (BigInteger,), Text: (Text, VARCHAR)}
    #: A query for each other fault, by its message: it returns a row if the table has the fault.
    #: All queries are executed, also if the table is missing.
    table_faults: ClassVar[dict[str, str]] = {}

    def __init__(self, engine: Engine, table: Table, *, creates_table: bool = False) -> None:
        super().__init__(engine, table)
        self.creates_table = creates_table
        #: The engine of a lane that has connected, for all lanes.
        self.shared_engine: Engine | None = None
        #: Whether the table has been checked since the last error.
        self.is_checked: bool = False
        # When an add checks it again. Another client may change it.
        self._next_check = 0.0
        # Built once, and not for each read.
        self._select = select(*(table.c[name] for name in Plant._fields))
        self._select_one = self._select.where(table.c.id == bindparam("id"))
        # As literals: SQLite may allow fewer parameters.
        ids = bindparam("ids", expanding=True, literal_execute=True, type_=table.c.id.type)
        self._has_id = table.c.id.in_(ids)
        self._delete = delete(table).where(table.c.id == bindparam("id"))

    # Connections

    @staticmethod
    @abstractmethod
    def make_engine(url: URL) -> Engine:
        """Return an engine, or raise ValueError if an option of the URL is unknown or invalid."""

    def descriptor(self, driver: Any) -> int | None:
        """Return the file descriptor of the socket of a driver's connection to a server."""
        return None

    def watch(self, connection: Connection) -> None:  # noqa: B027  # Not each database needs it.
        """Prepare a connection for :meth:`check_commits`. May be called again."""

    def check_commits(self, connection: Connection) -> None:  # noqa: B027
        """Raise StoreUnavailable if a commit of a connection is not as durable as it should be."""

    @abstractmethod
    def check_writable(self, connection: Connection) -> None:
        """Raise an exception if the database accepts no changes. This changes nothing."""

    # Jobs

    def execute(self, connection: Connection, run: Run[_T]) -> _T:
        """Execute a function with a connection, and check that its commits are durable.

        After an error that is no conflict, the table is checked again.
        """
        try:
            try:
                return run(connection)
            finally:
                if not connection.invalidated:
                    self.check_commits(connection)
        except BaseException as error:  # The thread may have been interrupted.
            if not self.is_conflict(error):
                self.is_checked = False
            raise

    def retry(self, attempt: Callable[[], _T], expires: float) -> _T:
        """Call a function, and repeat it after conflicts, as long as there is time.

        If the state of its session is outdated, it is repeated once, on a new connection.
        """
        attempts = 0
        while True:
            attempts += 1
            try:
                return attempt()
            except exc.DBAPIError as error:
                pause = random.uniform(0, Limits.pause * attempts)  # noqa: S311
                is_late = time.monotonic() + pause + Limits.attempt > expires
                is_outdated = attempts == 1 and self.is_outdated(error)
                if is_late or not (is_outdated or self.is_conflict(error)):
                    raise
            time.sleep(pause)

    def check_table_if_due(self, connection: Connection, *, to_add: bool) -> None:
        """Check the table at the first use, after an error, and each minute by one add.

        :param to_add: whether a missing table may be created.
        :raises StoreMisconfigured: if the table does not exist, or cannot store every plant.
        """
        now = time.monotonic()
        if not self.is_checked or (to_add and now > self._next_check):
            self._next_check = now + Limits.table_check
            if to_add and self.creates_table:
                create_table(connection, self.table)
            check_table(connection, self.table, self.types, self.table_faults)
            self.is_checked = True

    # Reads

    def find(self, connection: Connection, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` if there is none."""
        try:
            row = connection.execute(self._select_one, {"id": id}).one_or_none()
            return None if row is None else _plant(row)
        except (ValueError, exc.DBAPIError) as error:
            raise self.explain_row(error, f"the row with the id {id!r}")  # noqa: B904

    def find_some(self, connection: Connection, ids: Sequence[int]) -> list[Plant]:
        """Return the plants with these ids that exist."""
        return [*self._plants(connection, self._select.where(self._has_id), {"ids": ids})]

    def page(
        self, connection: Connection, after: int | None, size: int
    ) -> tuple[list[Plant], bool]:
        """Return the first plants in the order of their ids, and whether there may be more.

        A page with many characters ends earlier.

        :param after: an id. Only plants with a greater id are returned, unless it is ``None``.
        """
        ordered = self._select.order_by(self.table.c.id).limit(size)
        if after is not None:
            ordered = ordered.where(self.table.c.id > after)
        plants, room = list[Plant](), Sizes.page_characters
        with closing(self._plants(connection, ordered, {})) as found:
            for plant in found:
                plants.append(plant)
                room -= plant.characters
                if room < 0:
                    return plants, True
        return plants, len(plants) == size

    def _plants(
        self, connection: Connection, query: Select[Any], values: Mapping[str, Any]
    ) -> Generator[Plant, None, None]:
        """Yield the plants of a query. If a row is not a plant, raise StoreMisconfigured."""
        try:
            with connection.execute(query, values) as rows:
                yield from map(_plant, rows)
        except (ValueError, exc.DBAPIError) as error:
            if self.explain_row(error, "a row") is not error:
                of_ids = query.with_only_columns(self.table.c.id)
                with suppress(exc.DBAPIError):  # In SQLite, an id may be a text that is not UTF-8.
                    for id in connection.execute(of_ids, values).scalars().all():
                        self.find(connection, id)  # It names the row.
            raise self.explain_row(error, "a row")  # noqa: B904

    def count(self, connection: Connection) -> int:
        """Return the number of plants."""
        return connection.execute(select(func.count()).select_from(self.table)).scalar_one()

    # Changes

    def add(self, connection: Connection, plants: Sequence[Plant]) -> AddedAndExisting:
        """Check the table if it is time, and :meth:`insert` plants."""
        self.check_table_if_due(connection, to_add=True)
        return self.insert(connection, plants)

    def insert(self, connection: Connection, plants: Sequence[Plant]) -> AddedAndExisting:
        """Insert those of the plants whose ids do not exist, in one transaction.

        If the database refuses one of the plants, none is inserted.

        :param plants: plants with different ids, in the order of the ids.
        :returns: the ids. That of a plant that the database has dropped is in none of them.
        """
        ids = {plant.id for plant in plants}
        try:
            self._insert_atomically(connection, plants)
        except exc.IntegrityError:
            with self.transaction(connection):
                existing = self._insert_missing(connection, plants)
            return ids - existing, existing
        return ids, ()

    def _insert_missing(self, connection: Connection, plants: Sequence[Plant]) -> set[int]:
        """Insert the plants whose ids do not exist, and return the ids that do.

        In the transaction in progress, a statement reads the ids that exist, and locks them. So no
        replica answers it, and nobody removes these plants before the end of the transaction.
        """
        locked = select(self.table.c.id).where(self._has_id).with_for_update(read=True)
        existing, refusal = set[int](), cast(exc.IntegrityError | None, None)
        while True:
            found = {*connection.scalars(locked, {"ids": [plant.id for plant in plants]})}
            if refusal is not None and not found:
                raise refusal  # It has another reason than an id.
            existing |= found
            plants = [plant for plant in plants if plant.id not in found]
            try:
                self._insert_all(connection, plants)
                return existing
            except exc.IntegrityError as error:  # Another client has just added one of them.
                refusal = error

    def transaction(self, connection: Connection) -> AbstractContextManager[None]:
        """Provide a transaction, and commit it."""
        raise NotImplementedError

    def _insert_atomically(self, connection: Connection, plants: Sequence[Plant]) -> None:
        self._insert_all(connection, plants)

    def _insert_all(self, connection: Connection, plants: Sequence[Plant]) -> None:
        if plants:
            statement = self._insertion(connection, len(plants))
            values = tuple(chain(*plants))
            if connection.exec_driver_sql(statement, values).rowcount != len(plants):
                raise dropped(self.table)

    def _insertion(self, connection: Connection, rows: int, clause: str = "") -> str:
        """Return a statement that inserts plants. Their fields are its parameters."""
        marker = "?" if connection.dialect.paramstyle == "qmark" else "%s"
        return _insertion(name_of(connection, self.table), marker, rows, clause)

    def replace(self, connection: Connection, plant: Plant) -> bool:
        """Replace the plant with the id of this one, and return whether there was one."""
        return connection.execute(self._replacement(plant)).rowcount != 0

    def _replacement(self, plant: Plant) -> Update:
        fields = plant._asdict()
        return update(self.table).where(self.table.c.id == fields.pop("id")).values(fields)

    def remove(self, connection: Connection, id: int) -> bool:
        """Remove the plant with this id, and return whether there was one."""
        return connection.execute(self._delete, {"id": id}).rowcount != 0


def _plant(row: Iterable[Any]) -> Plant:
    """Return the plant of a row, or raise ValueError if it is not one."""
    plant = Plant(*row)
    if tuple(map(type, plant)) not in _TYPES:
        check_plant(plant)  # It says what is wrong.
    return plant


def driver_of(connection: Connection) -> Any:
    """Return the connection of the driver."""
    return connection.connection.dbapi_connection


def close(connection: Connection) -> None:
    """Close a connection, also if the server has ended it since its last statement."""
    for _ in range(2):  # SQLAlchemy keeps it in use if the first attempt fails.
        with suppress(Exception):
            connection.close()


def name_of(connection: Connection, table: Table) -> str:
    """Return the name of a table in a statement, with its schema if it has one."""
    quote = connection.dialect.identifier_preparer.quote
    schema = connection.schema_for_object(table)
    return f"{quote(schema)}.{quote(table.name)}" if schema else quote(table.name)


@lru_cache(1000)
def _insertion(table: str, marker: str, rows: int, clause: str) -> str:
    # SQLAlchemy would compile a statement with several rows each time.
    row = f"({', '.join([marker] * len(Plant._fields))})"
    values = ", ".join([row] * rows)
    return f"INSERT INTO {table} ({COLUMNS}) VALUES {values}{clause}"  # noqa: S608


def lane_engine(
    url: URL, arguments: dict[str, Any], connections: int | None, timeout: float = Limits.operation
) -> Engine:
    """Return an engine for lanes: each statement is a transaction, and there is no pool."""
    return create_engine(
        url,
        connect_args=arguments,
        isolation_level="AUTOCOMMIT",
        execution_options={"plantstore": (timeout, connections or Sizes.connections)},
        hide_parameters=True,  # The traceback of a fault shows no plant.
        poolclass=NullPool,
    )


def copy_engine(engine: Engine) -> Engine:
    """Return another engine that connects in the same way. Each statement is a transaction."""
    return create_engine(
        engine.url,
        module=engine.dialect.loaded_dbapi,
        pool=engine.pool.recreate(),
        execution_options={**engine.get_execution_options(), "isolation_level": "AUTOCOMMIT"},
        hide_parameters=True,
    )
