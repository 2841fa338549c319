"""A history of operations on one plant, and whether it is linearizable."""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple


class Operation(NamedTuple):
    """An operation of a client on the plant.

    :param name: the name of the plant that was created, updated or read, or ``None``.
    :param end: when the response was complete. Without a response, the operation may still be
        executed at any time.
    """

    kind: str
    name: str | None
    start: float
    status: int
    end: float = inf


# The numbers of the operations that have no place in the order yet, and the name that is stored.
State = tuple[frozenset[int], str | None]


def outcome(operation: Operation, stored: str | None) -> tuple[int, str | None]:
    """Return the status that an operation must get, and the name that is stored afterwards.

    :param stored: the name that is stored before it, or ``None`` if there is no plant.
    """
    if operation.kind == "create":
        return (200, operation.name) if stored is None else (400, stored)
    if operation.kind == "update":
        return (404, None) if stored is None else (200, operation.name)
    if operation.kind == "delete":
        return (404 if stored is None else 204), None
    return (404 if stored is None else 200), stored


def is_linearizable(history: list[Operation]) -> bool:
    """Return whether operations that overlap have an order that explains each of their responses.

    The search is that of Wing and Gong, with the memory of Lowe: "Testing for Linearizability",
    Concurrency and Computation 29, 2017.
    """
    first: State = frozenset(range(len(history))), None
    seen, waiting = {first}, [first]
    while waiting:
        left, stored = waiting.pop()
        if all(history[number].end == inf for number in left):
            return True
        for number, result in _next(history, left, stored):
            state = left - {number}, result
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    return False


def _next(
    history: list[Operation], left: frozenset[int], stored: str | None
) -> Iterator[tuple[int, str | None]]:
    """Yield the operations that may be the next one, and what is stored afterwards."""
    latest = min(history[number].end for number in left)
    for number in left:
        operation = history[number]
        status, result = outcome(operation, stored)
        is_explained = operation.status == status and (
            operation.kind != "read" or operation.name == stored
        )
        if operation.start <= latest and (is_explained or operation.end == inf):
            yield number, result
