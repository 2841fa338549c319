"""Plants in a SQL database, through SQLAlchemy Core: one store for every engine."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeVar
from weakref import finalize

from sqlalchemy import Connection, Engine, MetaData

from ..stores.base import Plant, Store, StoreMisconfigured, check_plant, int64_fault
from ..stores.batches import batches
from ._lanes import LaneConnections
from ._limits import Sizes
from ._site import SiteConnections
from ._tables import TableMissing, define_table, table_missing
from .databases import Run, database_of, is_new

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
        site create the table. By default, the first plant creates it; the store is empty before.
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
        definition = define_table(table, MetaData() if metadata is None else metadata, engine)
        database = database_of(engine)(engine, definition, creates_table=metadata is None)
        self._database = database
        self._connections: LaneConnections | SiteConnections
        if limits := engine.get_execution_options().get("plantstore"):
            self._connections = LaneConnections(database, *limits)
            finalize(self, self._connections.close)  # Its threads do not end by themselves.
        else:
            self._connections = SiteConnections(database)

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
        repeated = {id for id, times in Counter(map(attrgetter("id"), valid)).items() if times > 1}
        # The first plant of each id, in the order of all transactions, so that none can deadlock.
        ordered = sorted({plant.id: plant for plant in reversed(valid)}.values())
        return repeated.union(*map(self._add_batch, batches(ordered)))

    def _add_batch(self, plants: Sequence[Plant]) -> set[int]:
        """Add plants by one transaction, the rest by another one, or what is refused one by one."""
        existing = set[int]()
        while plants:
            add = partial(self._database.add, plants=plants)
            try:
                added, found = self._connections.call(add, writes=True)
            except StoreMisconfigured:  # One plant may be the reason.
                added = found = ()
            known = {*added, *found}
            if not known:
                return existing | super().add_some(plants)
            existing.update(found)
            plants = [plant for plant in plants if plant.id not in known]
        return existing

    def get_some(self, ids: Iterable[int]) -> dict[int, Plant]:
        """Return the plants with these ids that exist, by their ids: 1,000 by one statement."""
        valid = sorted(id for id in ids if not int64_fault(id))
        plants = list[Plant]()
        for start in range(0, len(valid), Sizes.batch):
            some = valid[start : start + Sizes.batch]
            plants += self._execute(partial(self._database.find_some, ids=some), [])
        return {plant.id: plant for plant in plants}

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
        """Remove the plant with this id; raise KeyError if there is none."""
        run = partial(self._database.remove, id=id)
        if int64_fault(id) or not self._execute(run, False, writes=True):
            raise KeyError(id)

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants in the order of their ids, with one page in memory."""
        if after is not None and int64_fault(after):
            if after > 0:
                return
            after = None
        size = Sizes.page // 8  # Small at first: names may be long.
        while True:
            find = partial(self._database.page, after=after, size=size)
            page, has_more = self._execute(find, (list[Plant](), False))
            yield from page
            if not has_more:
                return
            after = page[-1].id
            # Some drivers read all rows: ask for as many as were used.
            size = min(Sizes.page, size * 8) if len(page) == size else len(page)

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
            database.check_table_if_due(connection, to_add=False)
            return run(connection)

        try:
            if not database.is_checked and is_new(database.engine.url):
                raise table_missing(database.table)
            return self._connections.call(execute, writes=writes)
        except TableMissing:
            if database.creates_table:
                return without_table
            raise
