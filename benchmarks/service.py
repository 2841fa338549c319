"""Measures the service with each store: its start, its memory, its creates, an import.

    python -m benchmarks.service [--creates N] [STORE ...]

STORE is memory, sqlite, sqlite_wal, postgresql or mariadb; the default is all. The start ends with
the response to the first create. There is a worker for each core, but only one with memory. wrk and
a database server run on the second core, which the service has, too, in the figures for two cores.
The import, on the first core, is that of a file of IMPORTED plants, and its memory the maximum.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psutil

from benchmarks.__main__ import TOKEN, load
from tests.support.databases import STORES, Place
from tests.support.serving import Gunicorn, post

STARTS = 5
SECONDS = 5
IMPORTED = 300_000
PLANT = b'{"id":%d,"name":"Monstera","tag":"indoor"}'


class Served(NamedTuple):
    """A service that has acknowledged its first create, and the seconds until then."""

    port: int
    start: float
    workers: list[psutil.Process]

    def memory(self) -> float:
        """Return the megabytes of the largest worker."""
        return max(worker.memory_full_info().pss for worker in self.workers) / 1e6


@contextmanager
def served(place: Place, cores: set[int]) -> Iterator[Served]:
    """Serve a store on these cores, with a worker on each of them if it can have several."""
    place.clear()
    workers = 1 if place.url.startswith("memory") else len(cores)
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": place.url}
    os.sched_setaffinity(0, cores)  # The processes that it starts inherit it.
    began = time.perf_counter()
    with Gunicorn(f"--workers={workers}", **settings) as server:
        assert server.request(post(PLANT % -1)).status == 200
        start = time.perf_counter() - began
        os.sched_setaffinity(0, {1})
        yield Served(server.port, start, psutil.Process(server.process.pid).children())


def creates(service: Served, least: int) -> float:
    """Create at least a number of plants; return how many are created in a second."""
    created = seconds = 0.0
    while created < least:
        first = round(created) * 1000  # No load sends so many creates.
        counted = load(f"http://127.0.0.1:{service.port}", SECONDS, "create", first)
        assert counted["refused"] == 0, counted
        created += counted["answers"]
        seconds += counted["seconds"]
    return created / seconds


def bring_in(place: Place) -> str:
    """Import plants with the plantstore command; return plants per second, and megabytes."""
    place.clear()
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        for id in range(IMPORTED):
            file.write(b'{"id":%d,"name":"Monstera %d","tag":"indoor"}\n' % (id, id))
        file.flush()
        command = [sys.executable, "-c", "from plantstore.cli import main; main()"]
        command += ["import", file.name, "--store", place.url]
        start = time.perf_counter()
        process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        seconds = time.perf_counter() - start
    return f"{IMPORTED / seconds:,.0f} | {used.ru_maxrss / 1024:.0f}"


def main() -> None:
    """Print a table with a row for each store."""
    stores = {open_place.__name__: open_place for open_place in STORES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE", choices=[*stores, []])
    parser.add_argument("--creates", type=int, default=1)
    options = parser.parse_args()
    os.sched_setaffinity(0, {1})  # Database servers inherit it.
    print("| store | start s | MB | creates/s | MB then | on two cores | imported/s | MB |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.stores or stores:
        with stores[name]() as place:
            print(f"| {name} | {figures(place, options.creates)} |")


def figures(place: Place, least: int) -> str:
    """Return the figures of a store, for at least this number of creates."""
    starts = []
    for _ in range(STARTS):
        with served(place, {0}) as service:
            starts.append(service.start)
    with served(place, {0}) as service:
        before, one, after = service.memory(), creates(service, least), service.memory()
    with served(place, {0, 1}) as service:
        two = creates(service, 1)
    imported = "|" if place.url.startswith("memory") else bring_in(place)
    start = statistics.median(starts)
    return f"{start:.2f} | {before:.0f} | {one:,.0f} | {after:.0f} | {two:,.0f} | {imported}"


if __name__ == "__main__":
    main()
