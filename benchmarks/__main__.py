"""Compares creates over a socket with what a user could choose instead.

    python -m benchmarks [--quick] [--rounds N] [--seconds N] [NAME ...]

Measures all ENTRIES, or those whose names start with a NAME, one after another. Each is
served on one core, from its own environment in .venv-benchmarks; wrk and PostgreSQL run on
the other core. The figures are medians over the rounds. Only the ratios are comparable
between machines.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.support.databases import Place, memory, postgresql, sqlite, sqlite_wal
from tests.support.serving import ROOT, free_port, listening
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
CLIENTS = 32  # Concurrent connections of wrk.
WARM_UP = 1  # Seconds of load before the measurement.
GUNICORN = "gunicorn --log-level warning -b 127.0.0.1:{port}"
SAME_GUNICORN = f"{GUNICORN} -c benchmarks/peers/gunicorn.conf.py benchmarks.peers."
GRANIAN = "granian --log-level error --port {port} --interface "
GRANIAN_WSGI = GRANIAN + "wsgi --blocking-threads 8 "
UVICORN = "uvicorn --no-access-log --log-level warning --port {port} benchmarks.peers."
OURS, TOKEN = "plantstore", "s3cret"
# What is read. The warm-up has created plants with the ids from 1 on.
PLANT, PAGE = "/plants/100", "/plants?limit=100&after=100"
STORES = {
    "memory": memory,
    "sqlite": sqlite,
    "sqlite_wal": sqlite_wal,
    "postgresql": postgresql,
}
#: The URL schemes of the asyncio drivers for the same databases.
ASYNCHRONOUS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}


class Entry(NamedTuple):
    """An application to measure: its command, its packages in peers/PACKAGES.txt, its store.

    A wrong ``token``, or the ``id`` null, makes the application refuse every create. With a
    ``path``, that is read instead. With ``differ``, each create has another X-Request-ID.
    """

    name: str
    command: str
    packages: str
    store: str = "memory"
    token: str = TOKEN
    id: str = "10000000"
    path: str = ""
    differ: bool = False


ENTRIES = (
    Entry(OURS, GUNICORN, "plantstore"),
    Entry("plantstore, request ids", GUNICORN, "plantstore", differ=True),
    Entry("plantstore, 401", GUNICORN, "plantstore", token="wrong"),
    Entry("plantstore, 400", GUNICORN, "plantstore", id="null"),
    Entry("plantstore, granian", GRANIAN_WSGI + "wsgi:app", "plantstore_granian"),
    Entry("flask-smorest", SAME_GUNICORN + "smorest:app", "smorest"),
    Entry("APIFlask", SAME_GUNICORN + "apiflask:app", "apiflask"),
    Entry("Flask and marshmallow", SAME_GUNICORN + "plain_flask:app", "plain_flask"),
    Entry("Falcon and marshmallow", SAME_GUNICORN + "falcon:app", "falcon"),
    Entry("Falcon, granian", GRANIAN_WSGI + "benchmarks.peers.falcon:app", "falcon_granian"),
    Entry("Django Ninja", SAME_GUNICORN + "ninja:app", "ninja"),
    Entry("FastAPI, uvicorn", UVICORN + "fastapi:app", "fastapi"),
    Entry("FastAPI, granian", GRANIAN + "asgi benchmarks.peers.fastapi:app", "fastapi_granian"),
    Entry("constant bytes, Flask", SAME_GUNICORN + "bare_flask:app", "plain_flask"),
    Entry("constant bytes, WSGI", SAME_GUNICORN + "bare:app", "plain_flask"),
    Entry("plantstore, read", GUNICORN, "plantstore", path=PLANT),
    Entry("flask-smorest, read", SAME_GUNICORN + "smorest:app", "smorest", path=PLANT),
    Entry("FastAPI, read", UVICORN + "fastapi:app", "fastapi", path=PLANT),
    Entry("plantstore, page of 100", GUNICORN, "plantstore", path=PAGE),
    Entry("flask-smorest, page of 100", SAME_GUNICORN + "smorest:app", "smorest", path=PAGE),
    Entry("FastAPI, page of 100", UVICORN + "fastapi:app", "fastapi", path=PAGE),
    Entry("plantstore, SQLite", GUNICORN, "plantstore", "sqlite"),
    Entry("plantstore, SQLite, write-ahead log", GUNICORN, "plantstore", "sqlite_wal"),
    Entry("FastAPI, SQLite", UVICORN + "fastapi_sql:app", "fastapi", "sqlite"),
    Entry("plantstore, PostgreSQL", GUNICORN, "plantstore", "postgresql"),
    Entry("FastAPI, PostgreSQL", UVICORN + "fastapi_sql:app", "fastapi", "postgresql"),
)


class Result(NamedTuple):
    """The figures of one round.

    ``creates`` is per second, ``cpu`` is in microseconds per create, the percentiles are in
    milliseconds, and ``memory`` is in megabytes.
    """

    creates: float
    cpu: float
    p50: float
    p99: float
    p99_9: float
    memory: float


def environment(packages: str) -> Path:
    """Return the bin folder of an environment with these packages; create it if necessary."""
    files = (HERE / "peers" / f"{packages}.txt", ROOT / "requirements.txt")
    pinned = "".join(file.read_text() for file in files)
    folder = ROOT / ".venv-benchmarks" / packages
    made = folder / "pinned.txt"
    if not made.exists() or made.read_text() != pinned:
        python = [sys.executable, "-m"]
        pip = f"install -q -r benchmarks/peers/{packages}.txt".split()
        subprocess.run([*python, "venv", "--clear", "--without-pip", folder], check=True)
        subprocess.run([*python, "pip", "--python", folder, *pip], cwd=ROOT, check=True)
        made.write_text(pinned)
    return folder / "bin"


@contextmanager
def served(
    entry: Entry, place: Place, folder: Path = ROOT
) -> Iterator[tuple[list[psutil.Process], int]]:
    """Serve an entry on the first core, from a folder; yield its processes and its port."""
    scheme = ASYNCHRONOUS.get(entry.store, "")
    settings = {
        "PLANTSTORE_TOKENS": TOKEN,
        "PLANTSTORE_STORE": place.url,
        "DATABASE_URL": f"{scheme}:{place.url.partition(':')[2]}",
    }
    if entry.path:
        settings["PLANTSTORE_OPERATIONS"] = "create,read,list"
    port = free_port()
    program, *arguments = entry.command.format(port=port).split()
    with subprocess.Popen(
        ["taskset", "-c", "0", environment(entry.packages) / program, *arguments],
        cwd=folder,
        env={**os.environ, **settings},
    ) as process:
        try:
            wait_until(lambda: listening(port) or process.poll() is not None)
            assert process.poll() is None, f"{entry.name} did not start"
            load(port, WARM_UP, TOKEN, "0")
            first = psutil.Process(process.pid)
            yield [first, *first.children(recursive=True)], port
        finally:
            process.terminate()


def load(
    port: int, seconds: int, token: str, id: str, *more: str, path: str = "/plants"
) -> dict[str, float]:
    """Send creates with wrk, or GET requests; return the counts and percentiles of wrk."""
    wrk = f"wrk -t1 -c{CLIENTS} -d{seconds}s --timeout 30s -s".split()
    command = [*wrk, str(HERE / "create.lua"), f"http://127.0.0.1:{port}{path}", "--", token, id]
    command += more
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    counted: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert counted["lost"] == 0, counted
    return counted


def measure(entry: Entry, place: Place, seconds: int) -> Result:
    """Serve and measure an entry; check that it accepts every create, or refuses every one."""
    place.clear()
    with served(entry, place) as (processes, port):
        before = cpu(processes)
        id, more = "GET" if entry.path else entry.id, ["differ"] * entry.differ
        counted = load(port, seconds, entry.token, id, *more, path=entry.path or "/plants")
        creates = counted["answers"]
        refused = entry.token != TOKEN or entry.id == "null"
        assert counted["refused"] == (creates if refused else 0), (entry.name, counted)
        return Result(
            creates / counted["seconds"],
            (cpu(processes) - before) / creates * 1e6,
            counted["p50"],
            counted["p99"],
            counted["p99_9"],
            sum(process.memory_full_info().pss for process in processes) / 1e6,
        )


def cpu(processes: list[psutil.Process]) -> float:
    """Return the CPU time that the processes have used, in seconds."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def main() -> None:
    """Measure the chosen entries and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="one round of three seconds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8)
    options = parser.parse_args()
    rounds, seconds = (1, 3) if options.quick else (options.rounds, options.seconds)
    chosen = [
        entry
        for entry in ENTRIES
        if not options.names or entry.name.lower().startswith(tuple(map(str.lower, options.names)))
    ]
    with ThreadPoolExecutor() as threads:
        list(threads.map(environment, {entry.packages for entry in chosen}))
    os.sched_setaffinity(0, {1})
    results: dict[Entry, list[Result]] = {entry: [] for entry in chosen}
    with ExitStack() as running:
        places = {name: running.enter_context(STORES[name]()) for name in {e.store for e in chosen}}
        for _ in range(rounds):
            for entry in chosen:
                results[entry].append(measure(entry, places[entry.store], seconds))
    show({entry: medians(measured) for entry, measured in results.items()})


def medians(measured: list[Result]) -> Result:
    """Return the median of each figure."""
    return Result(*map(statistics.median, zip(*measured, strict=True)))


def show(table: dict[Entry, Result]) -> None:
    """Print a table of the results.

    The ratio is the requests of plantstore for the same, divided by those of the entry.
    """
    ours: dict[tuple[str, str], float] = {}
    print("| | requests/s | ratio | CPU µs | p50 ms | p99 ms | p99.9 ms | MB |")
    print("|---|---|---|---|---|---|---|---|")
    for entry, result in table.items():
        if entry.name.startswith(OURS):
            ours.setdefault((entry.store, entry.path), result.creates)
        ratio = ours.get((entry.store, entry.path), 0) / result.creates
        print(
            f"| {entry.name} | {result.creates:,.0f} | {ratio:.2f} | {result.cpu:.0f}"
            f" | {result.p50:.1f} | {result.p99:.1f} | {result.p99_9:.1f} | {result.memory:.0f} |"
        )


if __name__ == "__main__":
    main()
