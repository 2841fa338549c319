"""Plants in a SQL database, through SQLAlchemy Core: one store for every engine."""

import logging
import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from threading import RLock
from typing import TypeVar
from weakref import finalize, ref

from sqlalchemy import Connection, Engine, MetaData

from ..stores.base import BulkStore, Plant, PlantExists, check_plant, int64_fault
from ..stores.deadline import Limits
from ._lanes import OwnConnections
from ._site import SiteConnections
from ._tables import TableMissing, define_table, dropped, table_missing
from .databases import Database, Run, Session, database_of, is_new

#: The maximum number of plants in memory, and the approximate number of their characters.
_PAGE, _WEIGHT = 100, 1_000_000
# The number of characters in a statement, unless one plant has more. They take up to 250,000 bytes,
# some of them twice as many in a statement. MariaDB may refuse more than a mebibyte.
_ROOM = 60_000

_log = logging.getLogger("plantstore")

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
    :raises TypeError: if ``engine`` is not an engine.
    :raises ValueError: if ``metadata`` has another table with this name, if the name is empty
        or too long, or if the database is not SQLite, PostgreSQL, MariaDB or MySQL.
    """

    def __init__(
        self, engine: Engine, metadata: MetaData | None = None, *, table: str = "plants"
    ) -> None:
        if not isinstance(engine, Engine):
            raise TypeError(
                "engine must be an SQLAlchemy Engine, such as db.engine,"
                f" not {type(engine).__name__}"
            )
        kind, own = database_of(engine), engine.get_execution_options().get("plantstore")
        definition = define_table(table, MetaData() if metadata is None else metadata, engine)
        self._database = kind(engine, definition, creates_table=metadata is None)
        if own:
            self._executor: OwnConnections | SiteConnections = OwnConnections(self._database, *own)
            finalize(self, self._executor.close)  # Its threads do not end by themselves.
        else:
            self._executor = SiteConnections(self._database)
        with _forking:
            _stores.add(ref(self, _stores.discard))

    def add(self, plant: Plant) -> None:
        """Store a new plant.

        :raises PlantExists: if a plant with its id exists.
        :raises ValueError: if the plant is not valid.
        :raises StoreMisconfigured: also if the plant violates a constraint of the site, or if a
            column of the site is too short.
        """
        self._executor.add(check_plant(plant))

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        """Store all new plants, or none of them, in one transaction; return how many were added.

        :param plants: the new plants. An exception that the iterable raises causes a rollback.
        :param skip_existing: if true, a plant whose id exists or is repeated is skipped.
        :raises PlantExists: otherwise, if an id exists or is repeated.
        :raises ValueError: if a plant is not valid.
        """
        valid = map(check_plant, plants)
        with self._executor.session() as execute:
            return _add_all(self._database, execute, valid, skip_existing)

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` if there is none."""
        if int64_fault(id):  # The driver of SQLite would raise OverflowError.
            return None
        return self._execute(partial(self._database.find, id=id), None)

    def replace(self, plant: Plant) -> None:
        """Replace the plant with the id of this one.

        :raises KeyError: if there is none.
        :raises ValueError: if the plant is not valid.
        :raises StoreMisconfigured: as for :meth:`add`.
        """
        run = partial(self._database.replace, plant=check_plant(plant))
        if not self._execute(run, False, writes=True):
            raise KeyError(plant.id)

    def remove(self, id: int) -> None:
        """Remove the plant with this id.

        :raises KeyError: if there is none.
        """
        run = partial(self._database.remove, id=id)
        if int64_fault(id) or not self._execute(run, False, writes=True):
            raise KeyError(id)

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants in the order of their ids, with one page in memory."""
        if after is not None and int64_fault(after):
            if after > 0:
                return
            after = None
        size = _PAGE // 8  # Small at first: names may be long.
        while True:
            find = partial(self._database.page, after=after, size=size, characters=_WEIGHT)
            page, has_more = self._execute(find, (list[Plant](), False))
            yield from page
            if not has_more:
                return
            after = page[-1].id
            # Some drivers read all rows: ask for as many as were used.
            size = min(_PAGE, size * 8) if len(page) == size else len(page)

    def __len__(self) -> int:
        """Return the number of plants."""
        return self._execute(self._database.count, 0)

    def ping(self) -> None:
        """Check that the database responds and can be written, and the table if it exists.

        Nothing is written. So the permission to write to the table is not checked.
        """
        self.get(0)
        if not is_new(self._database.engine.url):
            self._executor.call(self._database.check_writable)

    def close(self) -> None:
        """Close the idle connections of the store. Those of a site stay open."""
        self._executor.close()

    def _execute(self, run: Run[_T], without_table: _T, *, writes: bool = False) -> _T:
        """Execute a function that creates nothing, or return a value if there is no table yet."""
        database = self._database

        def execute(connection: Connection) -> _T:
            database.prepare(connection, to_add=False)
            return run(connection)

        try:
            if not database.is_checked and is_new(database.engine.url):
                raise table_missing(database.table)
            return self._executor.call(execute, writes=writes)
        except TableMissing:
            if database.creates_table:
                return without_table
            raise


def _add_all(
    database: Database, execute: Session, plants: Iterable[Plant], skip_existing: bool
) -> int:
    """Add plants, all of them or none, and return how many were added.

    :param execute: executes each step with the same connection, which is closed after the import.
    :param skip_existing: whether plants that exist are skipped.
    :raises PlantExists: if an id exists or is repeated, and existing plants are not skipped.
    """
    count = 0
    execute(partial(database.prepare, to_add=True))
    _begin_import(database, execute)
    for batch in _batches(plants, skip_existing):
        ordered = [batch[id] for id in sorted(batch)]  # In the order of all transactions.
        added, existing = execute(partial(database.import_batch, plants=ordered))
        for id in batch:
            if id in existing and not skip_existing:
                raise PlantExists(id)
            if id not in added and id not in existing:
                raise dropped(database.table)
        count += len(added)
    skipped: int = execute(partial(database.finish_import, skip_existing=skip_existing))
    return count - skipped


def _begin_import(database: Database, execute: Session) -> None:
    """Begin an import, as soon as no other one is in progress."""
    if not execute(database.begin_import):
        _log.info("Another import is in progress. This one begins when it has ended.")
        while not execute(database.begin_import):
            time.sleep(Limits.import_pause)


def _batches(plants: Iterable[Plant], skip_existing: bool) -> Iterator[dict[int, Plant]]:
    batch: dict[int, Plant] = {}
    room = _ROOM
    for plant in plants:
        if plant.id in batch and not skip_existing:
            raise PlantExists(plant.id)
        if batch and (len(batch) == _PAGE or plant.characters > room):
            yield batch
            batch, room = {}, _ROOM
        batch.setdefault(plant.id, plant)
        room -= plant.characters
    if batch:
        yield batch


# The stores of this process. Each operation on the set is atomic: a fork may occur at any time.
_stores = set[ref[SQLStore]]()
_forking = RLock()  # Only one thread forks at a time. Its hooks may make another store.


def _executors() -> list[OwnConnections | SiteConnections]:
    return [store._executor for known in [*_stores] if (store := known()) is not None]  # noqa: SLF001


def _before_fork() -> None:
    _forking.acquire()
    for executor in _executors():
        executor.before_fork()


def _after_fork(*, in_child: bool) -> None:
    for executor in _executors():
        executor.after_fork(in_child=in_child)
    _forking.release()


if hasattr(os, "register_at_fork"):  # pragma: no branch  # Windows has no fork.
    in_parent, in_child = partial(_after_fork, in_child=False), partial(_after_fork, in_child=True)
    os.register_at_fork(before=_before_fork, after_in_parent=in_parent, after_in_child=in_child)
