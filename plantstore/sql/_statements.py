"""The statements by which a store reads and writes its table."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, func, select

from ..stores.base import Plant
from ..stores.deadline import Limits
from ._tables import check_table, create_table
from .databases import Added, Database

_T = TypeVar("_T")
#: A function to execute with a connection.
Run = Callable[[Connection], _T]


class Statements:
    """The statements for one table of plants. Each is given a connection."""

    def __init__(self, table: Table, database: Database, creates_table: bool) -> None:
        self.table = table
        #: Whether the table has been checked since the last error.
        self.is_checked = False
        # When an add checks it again. Another client may change it.
        self._next_check = 0.0
        self._database = database
        #: Whether an add creates the table if it is missing.
        self.creates_table = creates_table
        # Built once, and not for each read.
        self._select = select(*(table.c[name] for name in Plant._fields))
        self._select_one = self._select.where(table.c.id == bindparam("id"))
        self._delete = delete(table).where(table.c.id == bindparam("id"))

    def prepare(self, connection: Connection, *, to_add: bool) -> None:
        """Check the table at the first use, after an error, and each minute by one add.

        :param to_add: whether a missing table may be created.
        :raises TableMissing: if the table does not exist.
        :raises StoreMisconfigured: if the table cannot store every plant.
        """
        now = time.monotonic()
        if not self.is_checked or (to_add and now > self._next_check):
            self._next_check = now + Limits.table_check
            if to_add and self.creates_table:
                create_table(connection, self.table)
            check_table(connection, self.table, self._database)
            self.is_checked = True

    def insert(self, connection: Connection, plants: Sequence[Plant]) -> Added:
        """Insert new plants with different ids."""
        self.prepare(connection, to_add=True)
        return self._database.insert(connection, self.table, plants)

    def find(self, connection: Connection, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` if there is none."""
        row = connection.execute(self._select_one, {"id": id}).one_or_none()
        return None if row is None else Plant(*row)

    def page(
        self, connection: Connection, after: int | None, size: int, characters: int
    ) -> tuple[list[Plant], bool]:
        """Return the first plants in the order of their ids, and whether there may be more.

        :param after: an id. Only plants with a greater id are returned, unless it is ``None``.
        :param size: the maximum number of plants.
        :param characters: when the plants have more characters, no other one is read.
        """
        ordered = self._select.order_by(self.table.c.id).limit(size)
        if after is not None:
            ordered = ordered.where(self.table.c.id > after)
        plants = []
        with connection.execute(ordered) as rows:
            for row in rows:
                plants.append(Plant(*row))
                characters -= plants[-1].characters
                if characters < 0:
                    return plants, True
        return plants, len(plants) == size

    def count(self, connection: Connection) -> int:
        """Return the number of plants."""
        return connection.execute(select(func.count()).select_from(self.table)).scalar_one()

    def replace(self, connection: Connection, plant: Plant) -> bool:
        """Replace the plant with the id of this one, and return whether there was one."""
        return self._database.replace(connection, self.table, plant)

    def remove(self, connection: Connection, id: int) -> bool:
        """Remove the plant with this id, and return whether there was one."""
        return connection.execute(self._delete, {"id": id}).rowcount != 0
