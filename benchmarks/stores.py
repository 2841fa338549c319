"""Measures each store: creates per second, an add compared with the bare driver, an import.

    python -m benchmarks.stores [STORE ...]

STORE is memory, sqlite, sqlite_wal (with a write-ahead log), postgresql or mariadb; the default
is all. A temporary database server is started, with its data in the temporary folder. gunicorn
and the database server run on one core, the clients on another. For the adds into SQLite, the
sync is off in the store and in the bare driver. Only the ratios are comparable between machines.
"""

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import event, make_url

from plantstore import Plant, SQLStore
from plantstore.sql.databases import make_engine
from tests.support.databases import STORES, Place
from tests.support.serving import Gunicorn, post

SECONDS = 5  # Duration of the creates.
CLIENTS = 16  # Concurrent connections for the creates.
ROUNDS = 20  # Rounds of the comparison with the bare driver.
BATCH = 200  # Adds per round, for the store and for the bare driver.
SIZES = 100_000, 2_000_000  # Plants per import.
COMMAND = [sys.executable, "-c", "from plantstore.cli import main; main()"]


def creates(place: Place, workers: int) -> float:
    """Return how many plants per second the clients create through gunicorn."""
    ids, end = count(), time.monotonic() + SECONDS
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": place.url}

    def client(number: int) -> int:
        made = 0
        with server.connect() as connection:
            while time.monotonic() < end:
                connection.send(post(b'{"id":%d,"name":"Monstera","tag":"indoor"}' % next(ids)))
                made += connection.receive().status == 200
        return made

    with Gunicorn("-w", str(workers), **environment) as server, ThreadPoolExecutor(CLIENTS) as all:
        os.sched_setaffinity(0, {1})
        end = time.monotonic() + SECONDS
        made = sum(all.map(client, range(CLIENTS)))
        os.sched_setaffinity(0, {0})
    assert made == next(ids)
    return made / SECONDS


def bare_sqlite(url: str) -> Callable[[int], Any]:
    """Return a function that inserts a plant with sqlite3 only, in the same journal mode."""
    connection = sqlite3.connect(make_url(url).database or "", isolation_level=None)
    # The file keeps a write-ahead log, but no other mode.
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        connection.execute("PRAGMA journal_mode=truncate")
    connection.execute("PRAGMA synchronous=OFF")
    insert = "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)"
    return lambda id: connection.execute(insert, (id, "Monstera", "indoor"))


def bare_server(url: str) -> Callable[[int], Any]:
    """Return a function that inserts a plant with psycopg or PyMySQL only."""
    engine = make_engine(url)
    _, where = engine.dialect.create_connect_args(engine.url)
    driver: Any = engine.dialect.loaded_dbapi
    cursor = driver.connect(**where, autocommit=True).cursor()
    insert = "INSERT INTO plants (id, name, tag) VALUES (%s, %s, %s)"
    return lambda id: cursor.execute(insert, (id, "Monstera", "indoor"))


def cost(add: Callable[[int], Any], ids: Iterator[int]) -> float:
    """Return how many microseconds an add takes."""
    start = time.perf_counter()
    for _ in range(BATCH):
        add(next(ids))
    return (time.perf_counter() - start) / BATCH * 1e6


def against_the_driver(place: Place) -> tuple[float, float, float]:
    """Return the microseconds per add of the store and of the bare driver, and the ratio."""
    engine = make_engine(place.url)
    without_sync = place.url.startswith("sqlite")
    if without_sync:
        event.listen(engine, "connect", lambda it, _: it.execute("PRAGMA synchronous=OFF").close())
    store = SQLStore(engine)
    store.add(Plant(-1, ""))  # This creates the table.
    bare = (bare_sqlite if without_sync else bare_server)(place.url)
    ids = count()
    pairs = [
        (cost(lambda id: store.add(Plant(id, "Monstera", "indoor")), ids), cost(bare, ids))
        for _ in range(ROUNDS)
    ]
    store.close()
    ours, theirs = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    return ours, theirs, statistics.median(own / peer for own, peer in pairs)


def bring_in(place: Place, size: int) -> tuple[float, float]:
    """Import plants with the plantstore command; return plants per second and peak megabytes."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        for id in range(size):
            file.write(b'{"id":%d,"name":"Monstera %d","tag":"indoor"}\n' % (id, id))
        file.flush()
        start = time.perf_counter()
        command = subprocess.Popen(
            [*COMMAND, "import", file.name, "--store", place.url], stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(command.pid, 0)
        assert status == 0
        return size / (time.perf_counter() - start), used.ru_maxrss / 1024


def figures(place: Place) -> Iterator[str]:
    """Yield the lines to print for a store."""
    yield f"{creates(place, workers=1):6.0f} creates per second through gunicorn, one worker"
    if place.url == "memory://":
        return
    place.clear()
    ours, theirs, ratio = against_the_driver(place)
    yield f"{ours:6.0f} µs per add; bare driver: {theirs:.0f} µs; ratio {ratio:.2f}"
    for size in SIZES:
        place.clear()
        speed, peak = bring_in(place, size)
        yield f"{speed:6.0f} plants per second in an import of {size:,}; peak {peak:.0f} MB"


def main() -> None:
    """Print the figures of each store."""
    os.chdir(Path(__file__).parent.parent)
    os.sched_setaffinity(0, {0})
    for open_place in STORES:
        if open_place.__name__ in (sys.argv[1:] or [open_place.__name__]):
            with open_place() as place:
                for line in figures(place):
                    print(f"{open_place.__name__:<10}  {line}")


if __name__ == "__main__":
    main()
