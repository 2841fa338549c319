"""Durability when workers are killed under load."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from itertools import count, pairwise
from threading import Event

import orjson

from plantstore import Plant, open_store

from ..databases import FILES, Place, children, only
from ..serving import LIMIT, Gunicorn
from ..sites import BEARER
from ..waiting import wait_until

# How many workers are killed.
KILLS = 20
HEADERS = BEARER | {"Content-Type": "application/json"}


class Clients:
    """Eight clients that create plants until the block ends, and record the responses.

    :param first: the lowest id of their plants.
    :param number: another number of clients.
    """

    def __init__(self, port: int, first: int = 0, number: int = 8) -> None:
        self.sent: set[Plant] = set()
        self.acknowledged: set[Plant] = set()
        # The number of requests that got 503, and of those without a response.
        self.refused = self.unanswered = 0
        # When each response began and ended, and its status.
        self.responses: list[tuple[float, float, int]] = []
        self._port, self._ids, self._ended = port, count(first), Event()
        self._number = number

    def __enter__(self) -> "Clients":
        self._threads = ThreadPoolExecutor(self._number)
        self._running = [self._threads.submit(self._run) for _ in range(self._number)]
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        for client in self._running:
            client.result()
        self._threads.shutdown()

    def wait_for_creations(self) -> None:
        """Return when fifty more plants have been acknowledged."""
        enough = len(self.acknowledged) + 50
        wait_until(lambda: len(self.acknowledged) >= enough)

    def slowest(self) -> float:
        """Return the seconds of the slowest response."""
        return max(end - start for start, end, _ in self.responses)

    def outage(self) -> float:
        """Return the seconds of the longest time in which no response was 200."""
        created = sorted(end for _, end, status in self.responses if status == 200)
        return max(second - first for first, second in pairwise(created))

    def _run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=LIMIT)
        while not self._ended.is_set():
            id = next(self._ids)
            plant = Plant(id, f"plant {id}", f"tag {id}")
            self.sent.add(plant)
            start = time.monotonic()
            try:
                connection.request("POST", "/plants", orjson.dumps(plant._asdict()), HEADERS)
                response = connection.getresponse()
                response.read()
            except (OSError, HTTPException):
                # The worker was killed: the plant may be stored or not.
                self.unanswered += 1
                connection.close()
            else:
                self.responses.append((start, time.monotonic(), response.status))
                assert response.status in {200, 503}
                if response.status == 200:
                    self.acknowledged.add(plant)
                else:
                    self.refused += 1
        connection.close()


def kill_workers(place: Place, app: str) -> tuple[set[Plant], set[Plant]]:
    """Kill workers under load; return the lost plants, and the plants that no client sent."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": place.url}
    with Gunicorn("-w", "2", app, **environment) as server, Clients(server.port) as clients:
        for _ in range(KILLS):
            clients.wait_for_creations()
            kill_oldest_worker(server.process.pid)
    store = open_store(place.url)
    stored = set(store)
    store.close()
    return clients.acknowledged - stored, stored - clients.sent


def kill_oldest_worker(master: int) -> None:
    """Kill the worker with the lowest process id, and return when it has ended."""
    worker = min(children(master))
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: worker not in children(master))


def test_killed_workers_lose_no_acknowledged_plant(place: Place) -> None:
    """When workers are killed under load, every acknowledged plant is stored.

    No plant is stored that no client sent.
    """
    assert kill_workers(place, "wsgi:app") == (set(), set())


@only(*FILES)
def test_drill_detects_a_store_that_acknowledges_early(place: Place) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    lost, _ = kill_workers(place, "tests.drills.early_store:app")
    assert lost
