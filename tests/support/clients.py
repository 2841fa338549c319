"""Clients of a service that fails meanwhile."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import count, pairwise
from threading import Event
from typing import Any, TypeVar

import orjson

from plantstore import Plant
from tests.support.databases import Place
from tests.support.serving import LIMIT, Gunicorn, Server, tls_context, together
from tests.support.sites import BEARER
from tests.support.sql import environment
from tests.support.waiting import wait_for_more

HEADERS = BEARER | {"Content-Type": "application/json"}


@dataclass
class Clients:
    """Clients that create plants with ids from ``first`` on, and record the responses.

    :param kept: whether each client keeps its connection for the next request.
    :param pause: the seconds between two requests: without it, they would use the processor.
    :param path: of the plants.
    :param tls: whether the port has TLS.
    :param ids: of the plants, if other clients send them, too. A plant is sent until it exists.
    """

    port: int
    first: int = 0
    number: int = 8
    _: KW_ONLY
    kept: bool = True
    pause: float = 0.03
    path: str = "/plants"
    tls: bool = False
    ids: Iterator[int] | None = None

    def __post_init__(self) -> None:
        self.sent, self.acknowledged = set[Plant](), set[Plant]()
        # The requests that got 503, those without a response, and the connections that the system
        # has refused, because no service listens.
        self.refused = self.unanswered = self.unconnected = 0
        # When each response began and ended, and its status.
        self.responses: list[tuple[float, float, int]] = []
        self._ids, self._ended = self.ids or count(self.first), Event()

    def __enter__(self) -> "Clients":
        self._threads = ThreadPoolExecutor(self.number)
        self._running = [self._threads.submit(self._run) for _ in range(self.number)]
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        for client in self._running:
            client.result()
        self._threads.shutdown()

    def wait_for_creations(self) -> None:
        """Return when fifty more plants have been acknowledged."""
        wait_for_more(lambda: len(self.acknowledged), 50)

    def slowest(self) -> float:
        """Return the seconds of the slowest response."""
        return max(end - start for start, end, _ in self.responses)

    def outage(self) -> float:
        """Return the seconds of the longest time in which no response was 200."""
        created = sorted(end for _, end, status in self.responses if status == 200)
        return max(second - first for first, second in pairwise(created))

    def _run(self) -> None:
        kind = partial(HTTPSConnection, context=tls_context()) if self.tls else HTTPConnection
        connection = kind("127.0.0.1", self.port, timeout=LIMIT)
        again: int | None = None
        while not self._ended.is_set():
            try:
                if connection.sock is None:
                    connection.connect()
            except ConnectionError:
                self.unconnected += 1
                time.sleep(0.01)
                continue
            id = next(self._ids) if again is None else again
            again = id if self.ids else None
            plant = Plant(id, f"plant {id}", f"tag {id}")
            self.sent.add(plant)
            start = time.monotonic()
            try:
                connection.request("POST", self.path, orjson.dumps(plant.members()), HEADERS)
                response = connection.getresponse()
                exists = b":40004," in response.read()
            except (OSError, HTTPException):
                # The worker was killed: the plant may be stored or not.
                self.unanswered += 1
                connection.close()
            else:
                self.responses.append((start, time.monotonic(), response.status))
                assert (exists and self.ids) or response.status in {200, 503}
                again = again if response.status == 503 else None
                if response.status == 200:
                    self.acknowledged.add(plant)
                self.refused += response.status == 503
                if not self.kept:
                    connection.close()
            time.sleep(self.pause)
        connection.close()


@contextmanager
def clients_of(servers: list[Server], **options: Any) -> Iterator[list[Clients]]:
    """Let clients create plants with several services, each with ids of its own or shared ones."""
    with ExitStack() as running:
        yield [
            running.enter_context(Clients(server.port, first=number * 10**6, **options))
            for number, server in enumerate(servers)
        ]


@contextmanager
def loaded(urls: list[str], **options: Any) -> Iterator[list[Clients]]:
    """Run a service for each URL of a store, under load; each gets a response to every request."""
    services = (Gunicorn("-w", "1", **environment(Place(url))) for url in urls)
    with together(services) as servers, clients_of(servers, **options) as groups:
        wait_for_creations(groups)
        yield groups
        wait_for_creations(groups)
        assert not any("50001" in server.log for server in servers)
        assert [clients.unanswered for clients in groups] == [0] * len(groups)


def wait_for_creations(groups: list[Clients]) -> None:
    """Return when each service has acknowledged fifty more plants."""
    for clients in groups:
        clients.wait_for_creations()


def acknowledged(groups: Sequence[Clients]) -> set[Plant]:
    """Return the plants of all requests that got 200."""
    return set[Plant]().union(*[clients.acknowledged.copy() for clients in groups])


def wait_for_responses(groups: list[Clients], number: int) -> None:
    """Return when so many more requests have been answered, with any status."""
    wait_for_more(lambda: sum(len(clients.responses) for clients in groups), number)


# A function that compares what is stored with what clients know, for the table of the drills.
Record = Callable[..., None]

# The seconds after which a response is too late. The store promises five; the rest is for a busy
# machine.
LATEST = 8

_T = TypeVar("_T")


def timed(function: Callable[[], _T]) -> tuple[_T, float]:
    """Return the result of a function, and the seconds that it took."""
    start = time.monotonic()
    return function(), time.monotonic() - start


# Seconds after which a test fails because an operation has not given up. The store's own
# deadline is 5 seconds; the rest is for a busy machine. Without a deadline an operation takes
# longer: MariaDB waits 50 seconds for a lock, and PostgreSQL waits without a limit. Eight adds
# that wait for an SQLite file one after the other take 32 seconds.
GIVES_UP = 25
