"""Measures the service with each store: its start, its memory, and creates on one and two cores.

    python -m benchmarks.service [--creates N] [STORE ...]

STORE is memory, sqlite, sqlite_wal or postgresql; the default is all. The start ends with the
response to the first create. There is a worker for each core, but only one with memory. wrk runs
on the second core, which the service has, too, in the figures for two cores.
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psutil

from benchmarks.__main__ import STORES, TOKEN, load
from tests.support.databases import Place
from tests.support.serving import Gunicorn, post

STARTS = 5
SECONDS = 5
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
        counted = load(service.port, SECONDS, TOKEN, str(first))
        assert counted["refused"] == 0, counted
        created += counted["answers"]
        seconds += counted["seconds"]
    return created / seconds


def main() -> None:
    """Print a table with a row for each store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE", choices=[*STORES, []])
    parser.add_argument("--creates", type=int, default=1)
    options = parser.parse_args()
    print("| store | start s | MB at the start | creates/s | MB then | creates/s on two cores |")
    print("|---|---|---|---|---|---|")
    for name in options.stores or STORES:
        with STORES[name]() as place:
            starts = []
            for _ in range(STARTS):
                with served(place, {0}) as service:
                    starts.append(service.start)
            with served(place, {0}) as service:
                before = service.memory()
                one = creates(service, options.creates)
                after = service.memory()
            with served(place, {0, 1}) as service:
                two = creates(service, 1)
        start = statistics.median(starts)
        print(f"| {name} | {start:.2f} | {before:.0f} | {one:,.0f} | {after:.0f} | {two:,.0f} |")


if __name__ == "__main__":
    main()
