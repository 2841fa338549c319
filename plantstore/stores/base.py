"""The plant that a store keeps, the interface of every store, and its two exceptions."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple


class Plant(NamedTuple):
    """A plant as a store takes it and returns it (interface section 2, NewPlant).

    ``id`` is within int64. ``name`` and ``tag`` do not contain U+0000, because not every
    database can store it. The tag of a plant without one is ``None``.
    """

    id: int
    name: str
    tag: str | None = None


class PlantExists(Exception):
    """A plant with this id already exists. The stored plant is unchanged."""


class StoreUnavailable(Exception):
    """The store cannot be reached, or is full. The same call may succeed later."""


class Store(ABC):
    """Plants by id, for any number of threads.

    A plant whose :meth:`add` has returned is stored as durably as the engine allows. Every
    method but :meth:`close` raises :exc:`StoreUnavailable` when the engine fails.
    """

    #: Whether the plants live in one process. Then several processes must not serve them.
    one_process: ClassVar[bool] = False

    @abstractmethod
    def add(self, plant: Plant) -> None:
        """Store a new plant.

        An id is added at most once, for any number of threads, processes and machines.

        :param plant: the new plant.
        :raises PlantExists: if a plant with its id exists.
        """

    @abstractmethod
    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` if there is none."""

    @abstractmethod
    def remove(self, id: int) -> None:
        """Remove the plant with this id.

        :raises KeyError: if there is none.
        """

    @abstractmethod
    def __iter__(self) -> Iterator[Plant]:
        """Yield the plants in the order of their ids.

        A plant that is added or removed during the iteration may be yielded or not.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of plants."""

    def __bool__(self) -> bool:
        """Return True: an empty store is not a missing store."""
        return True

    @abstractmethod
    def ping(self) -> None:
        """Return if the store can be used now."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources, such as connections. A store may be closed twice."""
