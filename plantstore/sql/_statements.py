"""The statements by which a store reads and writes its table."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, exc, func, insert, select

from ..stores.base import Plant, PlantExists
from ._tables import check_table, create_table, misconfigured
from .engines import Backend


class Statements:
    """The statements for one table of plants. Each is given a connection.

    :param table: the table.
    :param backend: the entry of its engine.
    """

    def __init__(self, table: Table, backend: Backend) -> None:
        self.table = table
        self._backend = backend
        self._keys: set[Any] = set()
        # Built once, because building them takes a tenth of the time of an add.
        self._insert = insert(table)
        self._insert_new = backend.insert_new(table)
        self._select = select(*(table.c[name] for name in Plant._fields))
        self._select_one = self._select.where(table.c.id == bindparam("id"))
        self._delete = delete(table).where(table.c.id == bindparam("id"))

    def create(self, connection: Connection) -> None:
        """Create the table if it is missing, and check it.

        :raises StoreMisconfigured: if the table cannot store every plant.
        """
        create_table(connection, self.table)
        self.check(connection)

    def check(self, connection: Connection) -> None:
        """Check the table. Must be called before any other method.

        :raises TableMissing: if the table does not exist.
        :raises StoreMisconfigured: if the table cannot store every plant.
        """
        check_table(connection, self.table, self._backend)
        self._keys = {*self._backend.keys(connection, self.table)}
        connection.commit()

    def insert(self, connection: Connection, plant: Plant) -> None:
        """Insert a plant.

        :raises PlantExists: if a plant with its id exists.
        """
        try:
            added = connection.execute(self._insert, plant._asdict()).rowcount
        except exc.IntegrityError as error:
            if self.is_duplicate(error, [plant.id]) or self._has_new_key(connection, error):
                raise PlantExists(plant.id) from None
            raise
        self._check_added(added, 1)

    def insert_all(self, connection: Connection, plants: Mapping[int, Plant]) -> None:
        """Insert plants, given by their ids, in a transaction."""
        if plants:
            added = connection.execute(self._insert, _values(plants)).rowcount
            self._check_added(added, len(plants))

    def insert_together(self, connection: Connection, plants: Sequence[Plant]) -> None:
        """Insert plants by one statement, in a transaction.

        :raises StoreMisconfigured: if the database drops some of them.
        """
        added = self._backend.insert_together(connection, self.table, plants)
        self._check_added(added, len(plants))

    def insert_new(self, connection: Connection, plants: Mapping[int, Plant]) -> int:
        """Insert those of the plants whose ids do not exist, in a transaction.

        :returns: how many were inserted.
        """
        if self._insert_new is not None:
            return len(connection.execute(self._insert_new, _values(plants)).all())
        taken = self.taken(connection, plants)
        new = {id: plant for id, plant in plants.items() if id not in taken}
        savepoint = connection.begin_nested()
        try:
            self.insert_all(connection, new)
        except exc.IntegrityError as error:
            savepoint.rollback()
            # If no id is taken, the duplicate is one of another table, such as that of a trigger.
            if not self.is_duplicate(error, new) or not self.taken(connection, new):
                raise
            return self.insert_new(connection, new)  # Another client has just added one of them.
        savepoint.commit()
        return len(new)

    def is_duplicate(self, error: exc.DBAPIError, ids: Collection[int]) -> bool:
        """Return whether an insert of these ids failed because a plant with one of them exists."""
        return self._backend.is_duplicate(error, self._keys, ids)

    def _has_new_key(self, connection: Connection, error: exc.DBAPIError) -> bool:
        """Return whether an error names a key that the table had not at the last check.

        For example, a partition was added, or the site has chosen another schema.
        """
        connection.rollback()  # PostgreSQL executes nothing in a transaction that has failed.
        keys = {*self._backend.keys(connection, self.table)} - self._keys
        self._keys |= keys
        return bool(keys) and self._backend.is_duplicate(error, keys, ())

    def taken(self, connection: Connection, ids: Collection[int]) -> set[int]:
        """Return those of the ids that exist."""
        id = self.table.c.id
        return {*connection.execute(select(id).where(id.in_(ids))).scalars()}

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

    def remove(self, connection: Connection, id: int) -> bool:
        """Remove the plant with this id, and return whether there was one."""
        return connection.execute(self._delete, {"id": id}).rowcount != 0

    def _check_added(self, added: int, expected: int) -> None:
        # A negative number is unknown: before 2.0.28, SQLAlchemy does not count with psycopg.
        if 0 <= added != expected:
            raise misconfigured(self.table, "a rule, a trigger or a constraint drops plants")


def _values(plants: Mapping[int, Plant]) -> list[dict[str, Any]]:
    return [plant._asdict() for plant in plants.values()]
