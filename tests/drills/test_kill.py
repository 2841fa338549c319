"""Workers are killed under load, and what was acknowledged is looked for afterwards."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from itertools import count
from threading import Event

import orjson

from plantstore import Plant, open_store

from ..databases import Place, children, sqlite
from ..serving import Gunicorn
from ..sites import BEARER
from ..waiting import wait_until

KILLS = 20
HEADERS = BEARER | {"Content-Type": "application/json"}


class Clients:
    """Eight clients who create plants for as long as they run, and note what they hear."""

    def __init__(self, port: int) -> None:
        self.sent: set[Plant] = set()
        self.acknowledged: set[Plant] = set()
        self._port, self._ids, self._ended = port, count(), Event()

    def __enter__(self) -> "Clients":
        self._threads = ThreadPoolExecutor(8)
        self._running = [self._threads.submit(self._run) for _ in range(8)]
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        for client in self._running:
            client.result()
        self._threads.shutdown()

    def work(self) -> None:
        """Return once they have heard of fifty more plants that are kept."""
        enough = len(self.acknowledged) + 50
        wait_until(lambda: len(self.acknowledged) >= enough)

    def _run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        while not self._ended.is_set():
            id = next(self._ids)
            plant = Plant(id, f"plant {id}", f"tag {id}")
            self.sent.add(plant)
            try:
                connection.request("POST", "/plants", orjson.dumps(plant._asdict()), HEADERS)
                answer = connection.getresponse()
                answer.read()
            except (OSError, HTTPException):
                connection.close()  # Whether the plant was kept is unknown.
            else:
                assert answer.status in {200, 503}
                if answer.status == 200:
                    self.acknowledged.add(plant)
        connection.close()


def drill(place: Place, app: str) -> tuple[set[Plant], set[Plant]]:
    """Kill workers under load; return what was lost of it, and what came from nowhere."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": place.url}
    with Gunicorn("-w", "2", app, **environment) as server, Clients(server.port) as clients:
        for _ in range(KILLS):
            clients.work()
            kill_one(server.process.pid)
    store = open_store(place.url)
    kept = set(store)
    store.close()
    return clients.acknowledged - kept, kept - clients.sent


def kill_one(master: int) -> None:
    """Kill the worker that has served for the longest, and return once it is gone."""
    victim = min(children(master))
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in children(master))


def test_killed_workers_lose_no_acknowledged_plant(place: Place) -> None:
    """When workers are killed under load, every acknowledged plant is stored.

    No plant is stored that no client sent.
    """
    assert drill(place, "wsgi:app") == (set(), set())


def test_drill_detects_a_store_that_acknowledges_early() -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    with sqlite() as place:
        lost, _ = drill(place, "tests.drills.liar:app")
    assert lost
