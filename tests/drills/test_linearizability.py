"""Concurrent creates, reads, updates and deletes of few ids, also while a worker is killed."""

import random
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPException
from itertools import count
from math import inf
from typing import NamedTuple

import orjson
import pytest

from plantstore.blueprint import OPERATIONS
from tests.support.clients import HEADERS
from tests.support.databases import FILES, SERVERS, Place, kill_oldest_worker, memory, only
from tests.support.serving import LIMIT, Gunicorn
from tests.support.sql import environment, started
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


class Gardeners:
    """Clients that create, read, update and delete plants with few ids, and record the outcomes."""

    def __init__(self, port: int) -> None:
        self.history: dict[int, list[Operation]] = defaultdict(list)
        self.statuses: list[int] = []
        self._port, self._names = port, count()

    def work(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Let all clients work, and call a function meanwhile."""
        with started(*[self._work] * CLIENTS) as working:
            meanwhile()
        for call in working:
            call.result()

    def _work(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=LIMIT)
        for _ in range(OPERATIONS_OF_CLIENT):
            id, kind = random.randrange(IDS), random.choice([*METHODS])
            name = f"plant {next(self._names)}" if kind in {"create", "update"} else None
            operation = Operation(kind, name, time.monotonic(), 0)
            try:
                operation = self._send(connection, id, operation)
            except (OSError, HTTPException):  # The worker was killed.
                connection.close()
            if kind != "read" or operation.status:
                self.history[id].append(operation)
        connection.close()

    def _send(self, connection: HTTPConnection, id: int, operation: Operation) -> Operation:
        """Return the operation with its response. After 503, a change may still be executed."""
        kind, name = operation.kind, operation.name
        path = "/plants" if kind == "create" else f"/plants/{id}"
        body = None if name is None else orjson.dumps({"id": id, "name": name})
        connection.request(METHODS[kind], path, body, HEADERS)
        response = connection.getresponse()
        content, status = response.read(), response.status
        self.statuses.append(status)
        if status == 503:
            return operation
        if kind == "read" and status == 200:
            name = orjson.loads(content)["name"]
        return operation._replace(name=name, status=status, end=time.monotonic())


def kill_two_workers(process: int, clients: Gardeners) -> None:
    """Kill a worker twice, each time after more operations."""
    for _ in range(2):
        wait_for_more(lambda: len(clients.statuses), 100)
        kill_oldest_worker(process)


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
        with Gunicorn("-w", workers, **settings) as server:
            clients = Gardeners(server.port)
            clients.work()
            assert {*clients.statuses} == {200, 204, 400, 404}
            if workers == "2":
                clients.work(partial(kill_two_workers, server.process.pid, clients))
        assert all(map(is_linearizable, clients.history.values()))


CREATED = Operation("create", "Rose", 0, 200, 1)
READ = Operation("read", "Rose", 2, 200, 3)
UPDATED = Operation("update", "Lily", 2, 200, 3)
DELETED = Operation("delete", None, 4, 204, 5)
LILY = READ._replace(name="Lily")
LATE = READ._replace(start=6, end=7)
UNANSWERED = Operation("create", "Rose", 0, 0)
HISTORIES: dict[str, list[Operation]] = {
    "two creates succeed": [CREATED, CREATED._replace(name="Lily")],
    "a read of another name": [CREATED, LILY],
    "a plant is lost": [CREATED, READ._replace(name=None, status=404)],
    "a read after the delete": [CREATED, DELETED, LATE],
    "an update creates a plant": [UPDATED],
    "an update is lost": [CREATED, UPDATED, LATE],
    "possible: an update": [CREATED, UPDATED, READ],
    "possible: no response": [CREATED, UPDATED._replace(status=0, end=inf), LILY, DELETED],
    "possible: an early read": [CREATED, READ._replace(start=0, status=404, name=None), DELETED],
    "possible: nothing": [UNANSWERED],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_drill_detects_an_impossible_history(name: str) -> None:
    """The drill fails exactly for responses that no order of the operations explains."""
    assert is_linearizable(HISTORIES[name]) == name.startswith("possible")
