"""The interface of a database: everything in which one database differs from another."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

from sqlalchemy import NullPool, Table, Update, create_engine, exc, select, update
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.types import VARCHAR, BigInteger, Text

from ...stores.base import Plant, StoreMisconfigured
from ...stores.deadline import Limits
from ...text import one_line

# The maximum number of connections of a process to a server, by default.
_CONNECTIONS = 24
#: The columns of plants in a statement, in the order of the fields. None of them needs quotes.
COLUMNS = ", ".join(Plant._fields)
#: The ids of plants that were inserted, and the ids that exist.
Added = tuple[Collection[int], Collection[int]]

# The errors of a driver that refuses a statement of ours before the database has it.
_DRIVER_ERRORS = (exc.DataError, exc.NotSupportedError, exc.ProgrammingError)


class Database(ABC):
    """What the stores need to know of a database. There is one object for each kind.

    Each statement on a connection is a transaction, unless a method says otherwise.
    """

    #: Whether only one connection at a time can write.
    one_writer: ClassVar[bool] = False
    #: The types of the column id, and those of the columns name and tag.
    id_type: ClassVar[type[Any]] = BigInteger
    text_types: ClassVar[tuple[type[Any], ...]] = (Text, VARCHAR)
    #: What else can be wrong with a table, with a query that returns a row if it is wrong. They
    #: are executed also if the table is missing.
    table_checks: ClassVar[Mapping[str, str]] = {}

    # How the codes of errors begin: of those after which a job can be repeated, of those of them
    # after which another server may execute it, of others that end by themselves, or with an
    # outage, of those that leave it unknown whether a transaction was committed, and of errors in
    # our own statements.
    conflicts: ClassVar[tuple[str, ...]] = ()
    unready: ClassVar[tuple[str, ...]] = ()
    transient: ClassVar[tuple[str, ...]] = ()
    unknown: ClassVar[tuple[str, ...]] = ()
    faults: ClassVar[tuple[str, ...]] = ()

    # Connections

    @abstractmethod
    def make_engine(self, url: URL) -> Engine:
        """Return an engine that commits each statement.

        :raises ValueError: if an option of the URL is unknown or invalid. The message names it.
        """

    def is_new(self, url: URL) -> bool:
        """Return whether the first connection would create the database. Only SQLite does that."""
        return False

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

    # Changes

    def insert(self, connection: Connection, table: Table, plants: Sequence[Plant]) -> Added:
        """Insert those of the plants whose ids do not exist, in one transaction.

        If the database refuses one of the plants, none is inserted.

        :param plants: plants with different ids, in the order of the ids.
        :returns: the ids. That of a plant that the database has dropped is in none of them.
        """
        try:
            self._insert_atomically(connection, table, plants)
        except exc.IntegrityError:
            with self.transaction(connection):
                return self.insert_locked(connection, table, plants)
        return {plant.id for plant in plants}, ()

    def insert_locked(self, connection: Connection, table: Table, plants: Sequence[Plant]) -> Added:
        """Do the same in the transaction in progress.

        The ids that exist are read by a statement that locks them, so no replica answers it, and
        they are not removed meanwhile.
        """
        new: Sequence[Plant] = plants
        refusal: exc.IntegrityError | None = None
        while True:
            existing = self._existing(connection, table, [plant.id for plant in new])
            if refusal is not None and not existing:
                raise refusal  # It has another reason than an id.
            new = [plant for plant in new if plant.id not in existing]
            try:
                self._insert_all(connection, table, new)
                break
            except exc.IntegrityError as error:  # Another client has just added one of them.
                refusal = error
        added = {plant.id for plant in new}
        return added, {plant.id for plant in plants} - added

    def transaction(self, connection: Connection) -> AbstractContextManager[None]:
        """Provide a transaction, and commit it."""
        raise NotImplementedError

    def _insert_atomically(
        self, connection: Connection, table: Table, plants: Sequence[Plant]
    ) -> None:
        self._insert_all(connection, table, plants)  # A statement is a transaction.

    def _insert_all(self, connection: Connection, table: Table, plants: Sequence[Plant]) -> None:
        if plants:
            statement = insert_statement(connection, table, len(plants))
            values = tuple(chain(*plants))
            if connection.exec_driver_sql(statement, values).rowcount != len(plants):
                raise dropped(table)

    def _existing(self, connection: Connection, table: Table, ids: Collection[int]) -> set[int]:
        found = select(table.c.id).where(table.c.id.in_(ids)).with_for_update(read=True)
        return {*connection.execute(found).scalars()}

    def replace(self, connection: Connection, table: Table, plant: Plant) -> bool:
        """Replace the plant with the id of this one, and return whether there was one."""
        return connection.execute(self._replacement(table, plant)).rowcount != 0

    def _replacement(self, table: Table, plant: Plant) -> Update:
        fields = plant._asdict()
        return update(table).where(table.c.id == fields.pop("id")).values(fields)

    @abstractmethod
    def begin_import(self, connection: Connection, table: Table) -> bool:
        """Begin an import on a connection that nothing else uses until it is closed.

        Return False if another import into the table is in progress.
        """

    def import_batch(self, connection: Connection, table: Table, plants: Sequence[Plant]) -> Added:
        """Add plants to an import. The result is that of :meth:`insert`."""
        return self.insert_locked(connection, table, plants)

    def finish_import(self, connection: Connection, table: Table, skip_existing: bool) -> int:
        """Commit an import, and return how many of its plants have come to exist meanwhile.

        :param skip_existing: whether such plants are skipped.
        :raises PlantExists: otherwise, if there is such a plant.
        """
        connection.exec_driver_sql("COMMIT")
        return 0

    # Errors

    @abstractmethod
    def code(self, error: Exception) -> str:
        """Return the code that the database has given an error, or an empty string."""

    def is_conflict(self, error: BaseException | None) -> bool:
        """Return whether a job was rolled back because of a concurrent transaction."""
        return isinstance(error, exc.DBAPIError) and self.code(error).startswith(self.conflicts)

    def is_transient(self, error: Exception) -> bool:
        """Return whether a job may succeed later, although nobody changes the database."""
        code = self.code(error)
        return not code or code.startswith((*self.conflicts, *self.transient))

    def is_rolled_back(self, error: Exception) -> bool:
        """Return whether a group of adds was certainly rolled back, so that each is added alone."""
        if isinstance(error, exc.DBAPIError):
            code = self.code(error)
            return bool(code) and not (
                error.connection_invalidated or code.startswith(self.unknown)
            )
        return isinstance(error, StoreMisconfigured)

    def is_fault(self, error: Exception) -> bool:
        """Return whether a statement of ours is wrong. Drivers find some of these errors."""
        code = self.code(error)
        return code.startswith(self.faults) or (not code and isinstance(error, _DRIVER_ERRORS))

    def is_outdated(self, error: exc.DBAPIError) -> bool:
        """Return whether a statement was prepared for a table that has changed since."""
        return False

    def describe(self, error: Exception, url: URL) -> str:
        """Return the message of an error in one line, with what an operator needs to know.

        It has no values of a plant.
        """
        message = self.message(error)
        if self.code(error):
            # PostgreSQL repeats them after the first line, MySQL and MariaDB in "Duplicate entry
            # '...' for key", and in "Incorrect string value: '...' for column".
            message = re.sub("(entry|value:) '.*' for ", r"\1 for ", message, flags=re.DOTALL)
            message = message.partition("\n")[0]
        return one_line(message)

    def message(self, error: Exception) -> str:
        """Return the message of the driver."""
        return str(getattr(error, "orig", None) or error)


def misconfigured(table: Table, problem: str) -> StoreMisconfigured:
    """Return the exception for a table that cannot store plants."""
    return StoreMisconfigured(f"table {table.name}: {problem}")


def dropped(table: Table) -> StoreMisconfigured:
    """Return the exception for a table that has not kept a new plant."""
    return misconfigured(table, "a rule, a trigger or a constraint drops plants")


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


def insert_statement(connection: Connection, table: Table, rows: int, clause: str = "") -> str:
    """Return a statement that inserts plants, and ends by a clause. The fields are parameters."""
    marker = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    return _insert(name_of(connection, table), marker, rows, clause)


@lru_cache(1000)
def _insert(table: str, marker: str, rows: int, clause: str) -> str:
    # SQLAlchemy would compile a statement with several rows each time.
    row = f"({', '.join([marker] * len(Plant._fields))})"
    values = ", ".join([row] * rows)
    return f"INSERT INTO {table} ({COLUMNS}) VALUES {values}{clause}"  # noqa: S608


def own_engine(
    url: URL,
    connect_args: Mapping[str, Any],
    timeout: float = Limits.operation,
    connections: int | None = None,
) -> Engine:
    """Return an engine of our own: each statement is a transaction, and there is no pool.

    :param connect_args: arguments of the driver, which override the options of the URL.
    :param timeout: the seconds that a job of the engine may wait.
    :param connections: the maximum number of connections of a process to a server.
    """
    return create_engine(
        url,
        connect_args=connect_args,
        isolation_level="AUTOCOMMIT",
        execution_options={"plantstore": (timeout, connections or _CONNECTIONS)},
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
