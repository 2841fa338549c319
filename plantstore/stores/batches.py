"""Batches of plants, for an import."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from .base import Plant

#: The maximum number of plants in a batch, and that of their characters, unless it has one plant.
PLANTS, CHARACTERS = 1000, 60_000

_T = TypeVar("_T")


def _same(item: Any) -> Plant:
    return item  # type: ignore[no-any-return]


def batches(items: Iterable[_T], plant_of: Callable[[_T], Plant] = _same) -> Iterator[list[_T]]:
    """Yield the items in their order, as batches that any database accepts as one statement.

    :param items: plants, or what a plant belongs to, such as a line of a file.
    :param plant_of: returns the plant of an item. By default, it is the item.
    """
    batch, room = list[_T](), CHARACTERS
    for item in items:
        size = plant_of(item).characters
        if batch and (len(batch) == PLANTS or size > room):
            yield batch
            batch, room = [], CHARACTERS
        batch.append(item)
        room -= size
    if batch:
        yield batch
