"""The import of many plants into a SQL store, in one transaction."""

import pickle
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from tempfile import SpooledTemporaryFile
from typing import Self

from sqlalchemy import Connection, exc

from ..stores.base import Plant, PlantExists, StoreUnavailable
from ..stores.deadline import deadline
from ._connections import Connections, driver_of, pause_before_retry
from ._statements import Statements

#: The maximum number of plants in memory.
PAGE = 100
#: The approximate number of characters in memory.
WEIGHT = 1_000_000
# The maximum number of attempts.
_ATTEMPTS = 10

_Batch = dict[int, Plant]


class SourceError(Exception):
    """The iterable that an import reads has raised an exception, which is its argument.

    It is not an exception of the database, although it may look like one.
    """


class Import:
    """Adds plants to a table, all of them or none.

    Each batch of plants has the deadline of an operation. If the database has rolled back the
    transaction because of another one, the import starts again, up to ten times in all.

    :param skip_existing: whether plants that exist are skipped.
    """

    def __init__(
        self, connections: Connections, statements: Statements, skip_existing: bool
    ) -> None:
        self._connections = connections
        self._statements = statements
        self._skip_existing = skip_existing
        # The ids that were inserted last.
        self._ids: Collection[int] = ()

    def add_all(self, plants: Iterable[Plant]) -> int:
        """Add plants, and return how many were added.

        :raises PlantExists: if an id exists or is repeated, and existing plants are not skipped.
        :raises SourceError: if the iterable raises an exception.
        """
        batches = self._batches(_read(plants))
        if self._connections.backend.one_writer:
            return self._add_all(batches)  # There are no concurrent transactions.
        with _RepeatableBatches(batches) as repeatable:
            attempts = 0
            while True:
                attempts += 1
                try:
                    return self._add_all(repeatable)
                except (StoreUnavailable, exc.IntegrityError) as error:
                    if attempts == _ATTEMPTS or not self._is_conflict(error):
                        raise
                    with deadline(self._connections.timeout):
                        pause_before_retry(attempts, error)

    def _is_conflict(self, error: StoreUnavailable | exc.IntegrityError) -> bool:
        if isinstance(error, StoreUnavailable):
            return self._connections.is_conflict(error)
        # Another client has just added one of the plants. The next attempt finds it.
        return self._statements.is_duplicate(error, self._ids)

    def _add_all(self, batches: Iterable[_Batch]) -> int:
        timeout, added = self._connections.timeout, 0
        with ExitStack() as transaction:
            with deadline(timeout):
                connection = transaction.enter_context(self._transaction())
            for batch in batches:
                self._ids = batch
                with deadline(timeout):
                    added += self._add_batch(connection, batch)
            with deadline(timeout):
                transaction.close()
        return added

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        # Each statement of the transaction sees the commits of other clients. In SQLite the
        # transaction locks the database instead.
        backend = self._connections.backend
        one_writer = backend.one_writer
        level = "SERIALIZABLE" if one_writer else "READ COMMITTED"
        with self._connections.connect() as connection:
            with connection.execution_options(isolation_level=level).begin():
                if one_writer and not backend.in_transaction(driver_of(connection)):
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    if not one_writer:
                        connection.invalidate()  # The server rolls back. That may take long.
                    raise
            if not one_writer:
                connection.invalidate()  # Before 2.0.20, SQLAlchemy does not restore AUTOCOMMIT.

    def _add_batch(self, connection: Connection, batch: _Batch) -> int:
        if self._skip_existing:
            return self._statements.insert_new(connection, batch)
        taken = self._statements.taken(connection, batch)
        for id in batch:
            if id in taken:
                raise PlantExists(id)
        self._statements.insert_all(connection, batch)
        return len(batch)

    def _batches(self, plants: Iterable[Plant]) -> Iterator[_Batch]:
        batch: _Batch = {}
        characters = 0
        for plant in plants:
            if plant.id in batch and not self._skip_existing:
                raise PlantExists(plant.id)
            batch.setdefault(plant.id, plant)
            characters += plant.characters
            if len(batch) == PAGE or characters > WEIGHT:
                yield batch
                batch, characters = {}, 0
        if batch:
            yield batch


def _read(plants: Iterable[Plant]) -> Iterator[Plant]:
    try:
        yield from plants
    except Exception as error:
        raise SourceError(error) from error


class _RepeatableBatches:
    """Batches of plants that can be iterated again, although their source can be read only once.

    The batches that have been read are in a temporary file.
    """

    def __init__(self, batches: Iterator[_Batch]) -> None:
        self._new = batches
        self._file = SpooledTemporaryFile(max_size=WEIGHT)  # noqa: SIM115  # See __exit__.
        self._stored = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # If the disk is full, the import has already ended.
            self._file.close()

    def __iter__(self) -> Iterator[_Batch]:
        try:
            self._file.seek(0)
            for _ in range(self._stored):
                yield pickle.load(self._file)  # noqa: S301
            for batch in self._new:
                pickle.dump(batch, self._file)
                self._stored += 1
                yield batch
        except OSError as error:
            raise StoreUnavailable(f"cannot use a temporary file: {error}") from error
