"""What every store honours: the plant it keeps, its operations, its two errors."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple


class Plant(NamedTuple):
    """A plant as a store takes it and gives it back (interface section 2, NewPlant).

    ``id`` is within int64; ``name`` and ``tag`` are free of U+0000, which not every
    database can hold. A plant without a tag has ``None`` there.
    """

    id: int
    name: str
    tag: str | None = None


class PlantExists(Exception):
    """A plant with this id is already there; the stored plant stays as it was."""


class StoreUnavailable(Exception):
    """The store can't be reached, or is full: the same call may succeed later."""


class Store(ABC):
    """Plants by id, for any number of threads.

    Whatever :meth:`add` returned for is kept as durably as the engine can. Every
    operation but :meth:`close` raises :exc:`StoreUnavailable` when the engine fails.
    """

    #: Whether the plants live in one process only, so that several must not serve them.
    one_process: ClassVar[bool] = False

    @abstractmethod
    def add(self, plant: Plant) -> None:
        """Keep a new plant.

        Raises :exc:`PlantExists` when its id is taken: of any number of calls with one
        id, from whatever thread, process or machine, one succeeds.
        """

    @abstractmethod
    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` when there is none."""

    @abstractmethod
    def remove(self, id: int) -> None:
        """Forget the plant with this id; raises :exc:`KeyError` when there is none."""

    @abstractmethod
    def __iter__(self) -> Iterator[Plant]:
        """Yield the plants in the order of their ids.

        A plant that is added or removed meanwhile may be among them or not.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Return how many plants there are."""

    def __bool__(self) -> bool:
        """Return True, however few plants there are: an empty store is still a store."""
        return True

    @abstractmethod
    def ping(self) -> None:
        """Return when the store can be used now."""

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds open; closing twice does no harm."""
