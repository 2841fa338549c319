"""The import of many plants into a SQL store, in one transaction."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ..stores.base import Plant, PlantExists, StoreUnavailable
from ..stores.deadline import Limits
from ._tables import dropped
from .databases import Database, Session

#: The maximum number of plants in memory.
PAGE = 100
#: The approximate number of characters in memory.
WEIGHT = 1_000_000
# The number of characters in a statement, unless one plant has more. With up to four bytes for
# each, they are 250,000 bytes, with the ids. A server limits them: MariaDB may refuse more than a
# mebibyte, and some characters take two bytes in a statement.
_ROOM = 60_000

_log = logging.getLogger("plantstore")


def add_all(
    database: Database, execute: Session, plants: Iterable[Plant], skip_existing: bool
) -> int:
    """Add plants, all of them or none, and return how many were added.

    Each batch of plants has the deadline of an operation.

    :param execute: executes each step with the same connection, which is closed after the import.
    :param skip_existing: whether plants that exist are skipped.
    :raises PlantExists: if an id exists or is repeated, and existing plants are not skipped.
    """
    call, count = partial(_call, database, execute), 0
    call(partial(database.prepare, to_add=True))
    _begin(call, database.begin_import)
    for batch in _batches(plants, skip_existing):
        ordered = [batch[id] for id in sorted(batch)]  # In the order of all transactions.
        added, existing = call(partial(database.import_batch, plants=ordered))
        for id in batch:
            if id in existing and not skip_existing:
                raise PlantExists(id)
            if id not in added and id not in existing:
                raise dropped(database.table)
        count += len(added)
    skipped: int = call(partial(database.finish_import, skip_existing=skip_existing))
    return count - skipped


def _call(database: Database, execute: Session, step: Callable[..., Any]) -> Any:
    try:
        return execute(step)
    except StoreUnavailable as error:
        if database.is_conflict(error.__cause__):
            message = f"nothing was stored, run the import again: {error}"
            raise StoreUnavailable(message) from error.__cause__
        raise


def _begin(call: Session, begin: Callable[..., bool]) -> None:
    """Begin an import, as soon as no other one is in progress."""
    if not call(begin):
        _log.info("Another import is in progress. This one begins when it has ended.")
        while not call(begin):
            time.sleep(Limits.import_pause)


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
