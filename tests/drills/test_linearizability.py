"""Concurrent creates, reads, updates and deletes of few ids, also while a worker is killed."""

import random
import time
from collections import defaultdict
from functools import partial
from http.client import HTTPConnection, HTTPException
from itertools import chain, count
from math import inf
from typing import NamedTuple

import orjson
import pytest

from plantstore.blueprint import OPERATIONS
from tests.support.clients import HEADERS
from tests.support.databases import FILES, SERVERS, Place, kill_oldest_worker, memory, only
from tests.support.serving import LIMIT, Gunicorn
from tests.support.sql import call_all, environment, started
from tests.support.waiting import wait_for_more

pytestmark = pytest.mark.drill

CLIENTS, IDS = 8, 4
OPERATIONS_OF_CLIENT = 150
METHODS = {"create": "POST", "read": "GET", "update": "PUT", "delete": "DELETE"}


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


History = dict[int, list[Operation]]
numbers = count()


def work(port: int, history: History) -> None:
    """Create, read, update and delete plants with few ids, and record the operations by their id.

    An operation without a response, or with 503, may have happened or not.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    for _ in range(OPERATIONS_OF_CLIENT):
        id, kind = random.randrange(IDS), random.choice([*METHODS])
        path = "/plants" if kind == "create" else f"/plants/{id}"
        name = f"plant {next(numbers)}" if kind in {"create", "update"} else None
        body = None if name is None else orjson.dumps({"id": id, "name": name})
        operation = Operation(kind, name, time.monotonic(), 0)
        try:
            connection.request(METHODS[kind], path, body, HEADERS)
            response = connection.getresponse()
            content, status = response.read(), response.status
        except (OSError, HTTPException):  # The worker was killed.
            connection.close()
        else:
            if kind == "read" and status == 200:
                name = orjson.loads(content)["name"]
            if status != 503:
                operation = Operation(kind, name, operation.start, status, time.monotonic())
        if kind != "read" or operation.status:
            history[id].append(operation)
    connection.close()


def number(history: History) -> int:
    """Return the number of operations that have ended."""
    return sum(map(len, history.values()))


@only(memory, *FILES, *SERVERS)
def test_operations_are_linearizable(place: Place, long: bool) -> None:
    """Concurrent creates, reads, updates and deletes look as if they happened one after the other.

    Each of them happens between its request and its response. When workers are killed, operations
    without a response may have happened or not.
    """
    settings = environment(place) | {"PLANTSTORE_OPERATIONS": " ".join(OPERATIONS)}
    workers = "1" if place.url == "memory://" else "2"
    for _ in range(5 if long else 1):
        place.clear()
        history: History = defaultdict(list)
        with Gunicorn("-w", workers, **settings) as server:
            gardeners = [partial(work, server.port, history)] * CLIENTS
            assert call_all(*gardeners) == [None] * CLIENTS
            assert {it.status for it in chain(*history.values())} == {200, 204, 400, 404}
            if workers == "2":
                with started(*gardeners) as working:
                    for _ in range(2):
                        wait_for_more(partial(number, history), 100)
                        kill_oldest_worker(server.process.pid)
                assert [call.result() for call in working] == [None] * CLIENTS
        assert all(map(is_linearizable, history.values()))


CREATED = Operation("create", "Rose", 0, 200, 1)
READ = Operation("read", "Rose", 2, 200, 3)
UPDATED = Operation("update", "Lily", 2, 200, 3)
DELETED = Operation("delete", None, 4, 204, 5)
LILY = READ._replace(name="Lily")
HISTORIES: dict[str, list[Operation]] = {
    "two creates succeed": [CREATED, CREATED._replace(name="Lily")],
    "a plant is lost": [CREATED, READ._replace(name=None, status=404)],
    "a read after the delete": [CREATED, DELETED, READ._replace(start=6, end=7)],
    "an update creates a plant": [UPDATED],
    "possible: an update": [CREATED, UPDATED, READ],
    "possible: no response": [CREATED, UPDATED._replace(status=0, end=inf), LILY, DELETED],
    "possible: an early read": [CREATED, READ._replace(start=0, status=404, name=None), DELETED],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_drill_detects_an_impossible_history(name: str) -> None:
    """The drill fails exactly for responses that no order of the operations explains."""
    assert is_linearizable(HISTORIES[name]) == name.startswith("possible")
