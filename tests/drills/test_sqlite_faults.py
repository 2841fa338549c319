"""SQLite files under load: locks of other processes, a full disk, commands, and backups."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import orjson
import pytest
from sqlalchemy import make_url

from plantstore import Plant, open_store
from tests.support.clients import Clients, Record
from tests.support.databases import FILES, MODES, Place, children, only
from tests.support.serving import LIMIT, Gunicorn, post
from tests.support.sql import environment, open_sql
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

COMMAND = [sys.executable, "-c", "from plantstore.cli import main; main()"]
# How often each fault is repeated.
ROUNDS = 10


class AcknowledgedEarly(Exception):
    """A plant was acknowledged before it was stored. ``args`` has the plants."""


class Load:
    """Clients that create plants with a service of two workers."""

    def __init__(self, place: Place, server: Gunicorn, clients: Clients) -> None:
        self.url = place.url
        self.file = Path(make_url(place.url).database or "")
        self.workers = children(server.process.pid)
        self.clients = clients

    def check(self, read: Callable[[], set[Plant]]) -> None:
        """Check that all plants that have been acknowledged are among those that it reads."""
        acknowledged = self.clients.acknowledged.copy()
        lost = acknowledged - read()
        if lost:
            raise AcknowledgedEarly(lost)

    def stored(self) -> set[Plant]:
        """Return all plants in the file."""
        with closing(connect(self.file)) as connection:
            return plants(connection)

    def wait_for_refusals(self) -> None:
        """Return when twenty more requests have got 503."""
        enough = self.clients.refused + 20
        wait_until(lambda: self.clients.refused >= enough)


def connect(file: Path) -> sqlite3.Connection:
    """Open a connection that waits for locks."""
    return sqlite3.connect(file, timeout=LIMIT, isolation_level=None)


def plants(connection: sqlite3.Connection) -> set[Plant]:
    """Return all plants that a connection sees."""
    return {Plant(*row) for row in connection.execute("SELECT id, name, tag FROM plants")}


@contextmanager
def loaded(place: Place, app: str) -> Iterator[Load]:
    """Run a service under load; at the end, all plants that were acknowledged must be stored."""
    with open_sql(place.url) as store:
        store.add_all([])  # Creates the table, also for a service that stores its plants later.
    with Gunicorn("-w", "2", app, **environment(place)) as server, Clients(server.port) as clients:
        clients.wait_for_creations()
        load = Load(place, server, clients)
        yield load
        clients.wait_for_creations()
        assert "50001" not in server.log
    load.check(load.stored)
    with closing(connect(load.file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def lock(load: Load, folder: Path) -> None:
    """Take and release locks, the last one for longer than the timeout of a request."""
    with closing(connect(load.file)) as other:
        for number in range(ROUNDS):
            other.execute(f"BEGIN {('IMMEDIATE', 'EXCLUSIVE')[number % 2]}")
            load.check(partial(plants, other))
            other.execute("ROLLBACK")
            load.clients.wait_for_creations()
        other.execute("BEGIN EXCLUSIVE")
        refused = load.clients.refused
        wait_until(lambda: load.clients.refused > refused)
        load.check(partial(plants, other))


def lock_for_a_second(load: Load, folder: Path) -> None:
    """Take locks for one second each: no request fails."""
    with closing(connect(load.file)) as other:
        for kind in ("IMMEDIATE", "EXCLUSIVE") * 2:
            other.execute(f"BEGIN {kind}")
            time.sleep(1)
            load.check(partial(plants, other))
            other.execute("ROLLBACK")
            load.clients.wait_for_creations()
    assert load.clients.refused == 0


def fill(load: Load, folder: Path) -> None:
    """Let the workers reach the largest size of a file, and then remove this limit."""
    for _ in range(ROUNDS // 2):
        limit(load, max(file.stat().st_size for file in load.file.parent.iterdir()) + 10_000)
        load.check(load.stored)
        load.wait_for_refusals()
        load.check(load.stored)
        limit(load, resource.RLIM_INFINITY)
        load.clients.wait_for_creations()


def limit(load: Load, size: int) -> None:
    """Limit the size of the files that the workers write."""
    for worker in load.workers:
        _, hard = resource.prlimit(worker, resource.RLIMIT_FSIZE)
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (size, hard))


def command(load: Load, folder: Path) -> None:
    """Add, export and import plants with the command line."""
    for number in range(ROUNDS // 3):
        plant = Plant(-1 - number, "by the command")
        run(load, "add", str(plant.id), plant.name)
        load.clients.sent.add(plant)
        load.clients.acknowledged.add(plant)
        file = folder / f"{number}.jsonl"
        load.check(partial(exported, load, file))
        run(load, "import", str(file), "--skip-existing")
        load.clients.wait_for_creations()


def run(load: Load, *arguments: str) -> None:
    """Run the plantstore command, which must succeed."""
    done = subprocess.run(
        [*COMMAND, *arguments, "--store", load.url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def exported(load: Load, file: Path) -> set[Plant]:
    """Return the plants that the plantstore command exports."""
    run(load, "export", str(file))
    return {Plant(**orjson.loads(line)) for line in file.read_bytes().splitlines()}


def back_up(load: Load, folder: Path) -> None:
    """Back up the file."""
    for number in range(ROUNDS):
        load.check(partial(copied, load, folder / f"{number}.db"))
        load.clients.wait_for_creations()


def copied(load: Load, copy: Path) -> set[Plant]:
    """Return the plants in a backup of the file, which must be correct."""
    run(load, "backup", str(copy))
    with closing(connect(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with open_store(f"sqlite:///{copy}") as store:
        return set(store)


FAULTS = pytest.mark.parametrize("fault", [lock, lock_for_a_second, fill, command, back_up])


@FAULTS
@only(*FILES)
def test_sqlite_under_load(
    place: Place, tmp_path: Path, fault: Callable[[Load, Path], None], record: Record
) -> None:
    """At any time during a fault, every plant that has been acknowledged is stored.

    No plant is stored that no client sent.
    """
    with loaded(place, "wsgi:app") as load:
        fault(load, tmp_path)
    record(load.stored(), load.clients)


@FAULTS
@only(*FILES)
def test_drill_detects_a_store_that_acknowledges_early(
    place: Place, tmp_path: Path, fault: Callable[[Load, Path], None]
) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    early = loaded(place, "tests.drills.early_store:app")
    with pytest.raises(AcknowledgedEarly), early as load:
        fault(load, tmp_path)


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """Provide a disk with two megabytes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
@pytest.mark.parametrize("mode", MODES)
def test_full_disk(tmp_path: Path, mode: str, record: Record) -> None:
    """While a disk is full, creates are 503; when it has room again, they succeed."""
    with disk(tmp_path) as folder:
        place = Place(f"sqlite:///{folder}/plants.db?journal_mode={mode}")
        ballast = folder / "ballast"
        with loaded(place, "wsgi:app") as load:
            for _ in range(ROUNDS // 3):
                with suppress(OSError):
                    ballast.write_bytes(bytes(2 << 20))
                load.wait_for_refusals()
                load.check(load.stored)
                ballast.unlink()
                load.clients.wait_for_creations()
        record(load.stored(), load.clients)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a disk that is read-only")
@pytest.mark.parametrize("mode", MODES)
def test_read_only_disk(tmp_path: Path, mode: str) -> None:
    """While a disk is read-only, creates are 503; when it is writable again, they succeed."""
    with disk(tmp_path) as folder:
        place = Place(f"sqlite:///{folder}/plants.db?journal_mode={mode}")
        with open_sql(place.url) as store:
            store.add(Plant(0, "Rose"))
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with Gunicorn("-w", "2", **environment(place)) as server:
            assert server.request(post(b'{"id":1,"name":"Rose"}')).status == 503
            subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
            wait_until(lambda: server.request(post(b'{"id":1,"name":"Rose"}')).status != 503)
        with open_sql(place.url) as store:
            assert [plant.id for plant in store] == [0, 1]


@only(*FILES)
def test_fresh_start_with_an_exclusively_locked_file(place: Place) -> None:
    """While a file is locked exclusively, eight first creates get 503 at the same time.

    One after the other, they would take up to 32 seconds. They succeed once the lock is gone; a
    create that is repeated may find the plant that its first request has stored after its 503.
    """
    file = Path(make_url(place.url).database or "")
    with ThreadPoolExecutor(8) as clients, closing(connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with Gunicorn("-w", "1", **environment(place)) as server:

            def create(id: int) -> tuple[int, float]:
                start = time.monotonic()
                response = server.request(post(b'{"id":%d,"name":"Rose"}' % id))
                outcome = 200 if response.status == 200 else response.error
                return outcome, time.monotonic() - start

            for _ in range(2):
                outcomes, seconds = zip(*clients.map(create, range(8)), strict=True)
                assert outcomes == (50301,) * 8
                assert max(seconds) < 8, seconds
                server.signal(signal.SIGHUP)  # Starts a new worker.
            other.execute("ROLLBACK")
            assert {outcome for outcome, _ in clients.map(create, range(8))} <= {200, 40004}
    with open_store(place.url) as store:
        assert len(store) == 8
