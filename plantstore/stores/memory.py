"""Plants in the memory of one process."""

from bisect import bisect_right
from collections.abc import Iterator
from threading import Lock
from typing import ClassVar

from .base import Plant, PlantExists, Store, check_plant


class MemoryStore(Store):
    """Plants in the memory of this process, until the process ends. It is for evaluation and tests.

    The first iteration after a change sorts the ids, and other operations wait for it.
    """

    one_process: ClassVar[bool] = True

    def __init__(self) -> None:
        self._plants: dict[int, Plant] = {}
        # The ids in order, or None after a change. The list itself never changes.
        self._ids: list[int] | None = None
        self._lock = Lock()  # Whoever changes plants has it, and whoever sorts their ids.

    def add(self, plant: Plant) -> None:
        """Store a new plant, as :meth:`Store.add` says."""
        check_plant(plant)
        with self._lock:
            if plant.id in self._plants:
                raise PlantExists(plant.id)
            self._plants[plant.id] = plant
            self._ids = None

    def replace(self, plant: Plant) -> None:
        """Replace the plant with the id of this one, as :meth:`Store.replace` says."""
        check_plant(plant)
        with self._lock:
            if plant.id not in self._plants:
                raise KeyError(plant.id)
            self._plants[plant.id] = plant

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` if there is none."""
        return self._plants.get(id)

    def remove(self, id: int) -> None:
        """Remove the plant with this id; raise KeyError if there is none."""
        with self._lock:
            del self._plants[id]
            self._ids = None

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants in the order of their ids: all of them, or those with a greater id."""
        with self._lock:
            if self._ids is None:
                self._ids = sorted(self._plants)
            ids = self._ids
        start = 0 if after is None else bisect_right(ids, after)
        for place in range(start, len(ids)):
            plant = self._plants.get(ids[place])
            if plant is not None:  # It may have been removed meanwhile.
                yield plant

    def __len__(self) -> int:
        """Return the number of plants."""
        return len(self._plants)

    def ping(self) -> None:
        """Do nothing: memory is always available."""

    def close(self) -> None:
        """Do nothing: the plants exist as long as the store object."""
