"""Plants in a SQL database, through SQLAlchemy Core: one store for every engine."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from threading import RLock
from typing import TypeVar
from weakref import finalize, ref

from sqlalchemy import Connection, Engine, MetaData

from ..stores.base import Plant, Store, StoreMisconfigured, check_plant, int64_fault
from ..stores.batches import batches
from ._lanes import OwnConnections
from ._site import SiteConnections
from ._tables import TableMissing, define_table, table_missing
from .databases import Run, database_of, is_new

#: The maximum number of plants in memory, and the approximate number of their characters.
_PAGE, _WEIGHT = 100, 1_000_000

_id = attrgetter("id")

_T = TypeVar("_T")


class SQLStore(Store):
    """Plants in a table of a database: after an add, the database has committed it.

    Any number of threads, processes and machines may share the table. The store checks the table
    at first use. While the table cannot store every plant, each method raises
    :exc:`StoreMisconfigured`. With an engine of :func:`open_store`, each operation ends within five
    seconds: an add, a get, a page of an iteration, a batch of plants.

    :param engine: the engine of the database. It may be the engine of a site; then its timeouts
        apply, and the store uses up to five connections of its own.
    :param metadata: the metadata of a site. The table is added to it, and the migrations of the
        site create the table. By default, the first plant creates the table, and the store has no
        plants before that.
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
            self._connections: OwnConnections | SiteConnections = OwnConnections(
                self._database, *own
            )
            finalize(self, self._connections.close)  # Its threads do not end by themselves.
        else:
            self._connections = SiteConnections(self._database)
        with _forking:
            _all_connections.add(ref(self._connections, _all_connections.discard))

    def add(self, plant: Plant) -> None:
        """Store a new plant.

        :raises PlantExists: if a plant with its id exists.
        :raises ValueError: if the plant is not valid.
        :raises StoreMisconfigured: also if the plant violates a constraint of the site, or if a
            column of the site is too short.
        """
        self._connections.add(check_plant(plant))

    def add_some(self, plants: Iterable[Plant]) -> set[int]:
        """Add those of the plants whose ids do not exist, and return the ids that do.

        Up to 1,000 plants, with up to 60,000 characters, are one transaction.

        :raises ValueError: if a plant is not valid. Then none is added.
        :raises StoreMisconfigured: as for :meth:`add`.
        """
        valid = [check_plant(plant) for plant in plants]
        repeated = {id for id, times in Counter(map(_id, valid)).items() if times > 1}
        # The first plant of each id, in the order of all transactions, so that none can deadlock.
        first = {plant.id: plant for plant in reversed(valid)}
        ordered = sorted(first.values(), key=_id)
        return repeated.union(*map(self._add_batch, batches(ordered)))

    def _add_batch(self, plants: Sequence[Plant]) -> set[int]:
        added: Collection[int] = ()
        existing: Collection[int] = ()
        with suppress(StoreMisconfigured):  # One plant may be the reason.
            add = partial(self._database.add, plants=plants)
            added, existing = self._connections.call(add, writes=True)
        known = {*added, *existing}
        others = [plant for plant in plants if plant.id not in known]
        return super().add_some(others).union(existing)

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
            self._connections.call(self._database.check_writable)

    def close(self) -> None:
        """Close the idle connections of the store. Those of a site stay open."""
        self._connections.close()

    def _execute(self, run: Run[_T], without_table: _T, *, writes: bool = False) -> _T:
        """Execute a function that creates nothing, or return a value if there is no table yet."""
        database = self._database

        def execute(connection: Connection) -> _T:
            database.prepare(connection, to_add=False)
            return run(connection)

        try:
            if not database.is_checked and is_new(database.engine.url):
                raise table_missing(database.table)
            return self._connections.call(execute, writes=writes)
        except TableMissing:
            if database.creates_table:
                return without_table
            raise


# The connections of all stores of this process. Each operation on the set is atomic: a fork may
# occur at any time.
_all_connections = set[ref[OwnConnections | SiteConnections]]()
_forking = RLock()  # Only one thread forks at a time. Its hooks may make another store.


def _existing_connections() -> list[OwnConnections | SiteConnections]:
    return [it for known in [*_all_connections] if (it := known()) is not None]


def _before_fork() -> None:
    _forking.acquire()
    for connections in _existing_connections():
        connections.before_fork()


def _after_fork(*, in_child: bool) -> None:
    for connections in _existing_connections():
        connections.after_fork(in_child=in_child)
    _forking.release()


if hasattr(os, "register_at_fork"):  # pragma: no branch  # Windows has no fork.
    in_parent, in_child = partial(_after_fork, in_child=False), partial(_after_fork, in_child=True)
    os.register_at_fork(before=_before_fork, after_in_parent=in_parent, after_in_child=in_child)
