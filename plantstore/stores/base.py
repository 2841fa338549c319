"""The plant that a store keeps, the interfaces of stores, and their exceptions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from operator import call
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

#: The ids that a plant can have: the signed 64-bit integers.
INT64 = range(-(2**63), 2**63)


class Plant(NamedTuple):
    """A plant as a store takes it and returns it: the NewPlant of the OpenAPI document.

    Its first fields are the id and a field that is required. Each field is an integer or a text,
    or ``None`` if the plant need not have it. An integer is within int64. A text does not contain
    U+0000, because not every database can store it.
    """

    id: int
    name: str
    tag: str | None = None

    def members(self) -> dict[str, int | str]:
        """Return the fields by name. A field that the plant does not have is left out."""
        named = zip(self._fields, self, strict=True)
        return {name: value for name, value in named if value is not None}

    @property
    def characters(self) -> int:
        """The number of characters of all texts."""
        return sum([len(value) for value in self if isinstance(value, str)])


def check_plant(plant: Plant) -> Plant:
    """Return a plant if it is valid: every store can keep it. Each store calls this function.

    :raises ValueError: if it is not valid. The message says what is wrong with each field.
    """
    faults = [*map(call, _FAULTS, plant)]
    if any(faults):
        named = zip(Plant._fields, faults, strict=True)
        raise ValueError(" ".join(f"{name}: {fault}" for name, fault in named if fault))
    return plant


def int64_fault(value: object) -> str | None:
    """Return what is wrong with an id, or ``None`` if it is an integer within int64."""
    if not isinstance(value, int) or isinstance(value, bool):
        return f"Must be an integer, not {type(value).__name__}."
    is_within = -(2**63) <= value < 2**63
    return None if is_within else "Must be between -2^63 and 2^63-1."


def text_fault(value: object) -> str | None:
    """Return what is wrong with a name or a tag, or ``None`` if every store can keep it."""
    if not isinstance(value, str):
        return f"Must be a string, not {type(value).__name__}."
    if "\0" in value:
        return "Must not contain U+0000."
    try:
        value.encode()
    except UnicodeEncodeError:
        return "Must not contain a lone surrogate."
    return None


def _unless_none(fault: Callable[[object], str | None]) -> Callable[[object], str | None]:
    return lambda value: None if value is None else fault(value)


# What is wrong with a value, by the type of its field. A field can have only these types.
_FAULTS_OF_TYPES: dict[Any, Callable[[object], str | None]] = {
    int: int64_fault,
    str: text_fault,
    int | None: _unless_none(int64_fault),
    str | None: _unless_none(text_fault),
}
# The same for each field of a plant, in their order.
_FAULTS = [_FAULTS_OF_TYPES[type] for type in get_type_hints(Plant).values()]


class PlantExists(Exception):
    """A plant with this id already exists. The stored plant is unchanged. ``args`` has the id."""


class StoreUnavailable(Exception):
    """The store cannot execute the operation now, for example because it cannot be reached.

    The same call may succeed later. After :meth:`Store.add`, the plant may have been stored.
    """


class StoreMisconfigured(StoreUnavailable):
    """The store is not set up for plants. The message says what an operator must correct.

    For example, the table of a SQL store has other columns. Once this is corrected, the same call
    succeeds. The service logs the message, and a client gets only the number of the error.
    """


class Store(ABC):
    """The interface of every store: plants by id. Any number of threads may call it.

    A plant whose :meth:`add` has returned is stored as durably as the database allows. Every
    method but :meth:`close` raises :exc:`StoreUnavailable` when the database fails. At the end of
    a ``with`` block, the store is closed. An id can be any integer: no plant has one outside int64.
    """

    #: Whether only this process can access the plants. Several processes must not serve such a
    #: store.
    one_process: ClassVar[bool] = False

    @abstractmethod
    def add(self, plant: Plant) -> None:
        """Store a new plant.

        Of any number of concurrent calls with one id, one succeeds. This holds for all threads,
        processes and machines that share the plants.

        :raises PlantExists: if a plant with its id exists.
        :raises ValueError: if the plant is not valid: see :func:`check_plant`.
        """

    def add_some(self, plants: Iterable[Plant]) -> set[int]:
        """Add those of the plants whose ids do not exist, and return the ids that do.

        So an import adds up to some 1,000 plants at a time. It is no transaction: after an
        exception, some of the plants may have been added, and the same call adds the others. Of
        several plants with one id, the first is added, and the id is returned.

        By default, each plant is added by :meth:`add`. Override it if the database can add many
        plants faster.

        :raises ValueError: if a plant is not valid: see :func:`check_plant`. Then none is added.
        """
        existing = set[int]()
        for plant in [check_plant(plant) for plant in plants]:
            try:
                self.add(plant)
            except PlantExists:
                existing.add(plant.id)
        return existing

    def get_some(self, ids: Iterable[int]) -> dict[int, Plant]:
        """Return the plants with these ids that exist, by their ids.

        So an import compares what it has with what is there. By default, each one is read by
        :meth:`get`. Override it if the database can read many plants faster.
        """
        return {id: plant for id in ids if (plant := self.get(id)) is not None}

    @abstractmethod
    def get(self, id: int) -> Plant | None:
        """Return the plant with an id, or ``None`` if there is none."""

    def replace(self, plant: Plant) -> None:
        """Replace the plant with the id of this one by this one. No plant is added.

        It may be an equal plant. A store without this method cannot serve ``update``.

        :raises KeyError: if no plant has its id.
        :raises ValueError: if the plant is not valid: see :func:`check_plant`.
        """
        raise NotImplementedError("this store cannot change plants")

    @abstractmethod
    def remove(self, id: int) -> None:
        """Remove the plant with an id. The id can then be added again.

        :raises KeyError: if no plant has this id.
        """

    @abstractmethod
    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants in the order of their ids: all of them, or those with a greater id.

        A plant that is added or removed during the iteration may be yielded or not. The plants up
        to ``after`` are not read, so the last page of a list takes no more time than the first.
        """

    def __iter__(self) -> Iterator[Plant]:
        """Yield all plants, as :meth:`iterate` does."""
        return self.iterate()

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of plants."""

    def __bool__(self) -> bool:
        """Return True: an empty store is not a missing store."""
        return True

    @abstractmethod
    def ping(self) -> None:
        """Check that the store can be used now.

        :raises StoreUnavailable: if it cannot.
        :raises StoreMisconfigured: if an operator must correct something first.
        """

    @abstractmethod
    def close(self) -> None:
        """Close idle connections. A store may be closed twice, and used again."""

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the store."""
        self.close()
