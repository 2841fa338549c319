"""A history of operations on one plant, and whether it is linearizable."""

from math import inf
from typing import NamedTuple


class Operation(NamedTuple):
    """An operation of a client on the plant. Without a response, it may end at any time."""

    kind: str
    name: str | None  # That of the plant that was created, updated or read.
    start: float
    status: int
    end: float = inf


def outcome(operation: Operation, stored: str | None) -> tuple[int, str | None]:
    """Return the status that an operation must get, and the name that is stored afterwards."""
    if operation.kind == "create":
        return (200, operation.name) if stored is None else (400, stored)
    if stored is None:
        return 404, None
    changes = {"read": (200, stored), "update": (200, operation.name), "delete": (204, None)}
    return changes[operation.kind]


def is_linearizable(history: list[Operation]) -> bool:
    """Return whether operations that overlap have an order that explains each of their responses.

    The search is that of Wing and Gong, with the memory of Lowe: "Testing for Linearizability",
    Concurrency and Computation 29, 2017.
    """
    # A state: the operations that have no place in the order yet, and the name that is stored.
    first: tuple[frozenset[int], str | None] = frozenset(range(len(history))), None
    seen, waiting = {first}, [first]
    while waiting:
        left, stored = waiting.pop()
        latest = min((history[number].end for number in left), default=inf)
        if latest == inf:
            return True
        for number in left:
            operation = history[number]
            status, result = outcome(operation, stored)
            is_explained = operation.status == status and (
                operation.kind != "read" or operation.name == stored
            )
            state = left - {number}, result
            is_next = operation.start <= latest and (is_explained or operation.end == inf)
            if is_next and state not in seen:
                seen.add(state)
                waiting.append(state)
    return False
