"""The import of many plants into a SQL store, in one transaction."""

from collections.abc import Iterable, Iterator
from functools import partial

from ..stores.base import Plant, PlantExists
from ._tables import dropped
from .databases import Database, Session

#: The maximum number of plants in memory.
PAGE = 100
#: The approximate number of characters in memory.
WEIGHT = 1_000_000
# The number of characters in a statement, unless one plant has more. They take up to 250,000 bytes,
# some of them twice as many in a statement. MariaDB may refuse more than a mebibyte.
_ROOM = 60_000


def add_all(
    database: Database, execute: Session, plants: Iterable[Plant], skip_existing: bool
) -> int:
    """Add plants, all of them or none, and return how many were added.

    :param execute: executes each step with the same connection, which is closed after the import.
    :param skip_existing: whether plants that exist are skipped.
    :raises PlantExists: if an id exists or is repeated, and existing plants are not skipped.
    """
    count = 0
    execute(partial(database.prepare, to_add=True))
    execute(database.begin_import)
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


def _batches(plants: Iterable[Plant], skip_existing: bool) -> Iterator[dict[int, Plant]]:
    batch: dict[int, Plant] = {}
    room = _ROOM
    for plant in plants:
        if plant.id in batch and not skip_existing:
            raise PlantExists(plant.id)
        if batch and (len(batch) == PAGE or plant.characters > room):
            yield batch
            batch, room = {}, _ROOM
        batch.setdefault(plant.id, plant)
        room -= plant.characters
    if batch:
        yield batch
