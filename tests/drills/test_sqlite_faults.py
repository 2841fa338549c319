"""SQLite files under load: locks of other processes, a full disk, commands, and backups."""

import os
import resource
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
from tests.support.clients import LATEST, Clients, Record, timed
from tests.support.databases import FILES, MODES, Place, children, only
from tests.support.serving import LIMIT, Gunicorn, post
from tests.support.sql import environment, open_sql
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

COMMAND = [sys.executable, "-c", "from plantstore.cli import main; main()"]


class Load:
    """Clients that create plants with a service of two workers."""

    def __init__(self, place: Place, server: Gunicorn, clients: Clients) -> None:
        self.url, self.file = place.url, file_of(place)
        self.workers, self.clients = children(server.process.pid), clients

    def check(self, read: Callable[[], set[Plant]]) -> None:
        """Check that all plants that have been acknowledged are among those that it reads."""
        acknowledged = self.clients.acknowledged.copy()
        assert acknowledged <= read(), "acknowledged early"

    def stored(self) -> set[Plant]:
        """Return all plants in the file, which must be correct."""
        with connect(self.file) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return plants(connection)

    def wait_for_refusals(self, number: int = 20) -> None:
        """Return when more requests have got 503."""
        enough = self.clients.refused + number
        wait_until(lambda: self.clients.refused >= enough)


def file_of(place: Place) -> str:
    """Return the path of a file."""
    return make_url(place.url).database or ""


def connect(file: str | Path) -> closing[sqlite3.Connection]:
    """Open a connection that waits for locks."""
    return closing(sqlite3.connect(file, timeout=LIMIT, isolation_level=None))


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


def lock(load: Load, folder: Path) -> None:
    """Take locks for a second: no request fails. Take one for longer than a request may take."""
    with connect(load.file) as other:
        for kind in ("IMMEDIATE", "EXCLUSIVE"):
            other.execute(f"BEGIN {kind}")
            time.sleep(1)
            load.check(partial(plants, other))
            other.execute("ROLLBACK")
            load.clients.wait_for_creations()
        assert load.clients.refused == 0
        other.execute("BEGIN EXCLUSIVE")
        load.wait_for_refusals(1)
        load.check(partial(plants, other))


def fill(load: Load, folder: Path) -> None:
    """Let the workers reach the largest size of a file, and then remove this limit."""
    for _ in range(2):
        files = Path(load.file).parent.iterdir()
        limit(load, max(file.stat().st_size for file in files) + 10_000)
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
    """Add, export, import and back up plants with the command line."""

    def run(*arguments: object) -> None:
        command = [*COMMAND, *map(str, arguments), "--store", load.url]
        subprocess.run(command, capture_output=True, check=True)

    def exported() -> set[Plant]:
        run("export", file)
        return {Plant(**orjson.loads(line)) for line in file.read_bytes().splitlines()}

    def copied() -> set[Plant]:
        run("backup", copy)
        with connect(copy) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return plants(connection)

    for number in range(2):
        file, copy = folder / f"{number}.jsonl", folder / f"{number}.db"
        plant = Plant(-1 - number, "by the command")
        run("add", plant.id, plant.name)
        load.clients.sent.add(plant)
        load.clients.acknowledged.add(plant)
        load.check(exported)
        load.check(copied)
        run("import", file, "--skip-existing")
        load.clients.wait_for_creations()


@pytest.mark.parametrize("fault", [lock, fill, command])
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


@only(FILES[0])
def test_drill_detects_a_store_that_acknowledges_early(place: Place, tmp_path: Path) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    early = loaded(place, "tests.drills.early_store:app")
    with pytest.raises(AssertionError, match="acknowledged early"), early as load:
        command(load, tmp_path)


NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a disk")


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """Provide a disk with two megabytes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@NEEDS_ROOT
@pytest.mark.parametrize("mode", MODES)
def test_full_disk(tmp_path: Path, mode: str, record: Record) -> None:
    """While a disk is full, creates are 503; when it has room again, they succeed."""
    with disk(tmp_path) as folder:
        place = Place(f"sqlite:///{folder}/plants.db?journal_mode={mode}")
        ballast = folder / "ballast"
        with loaded(place, "wsgi:app") as load:
            for _ in range(2):
                with suppress(OSError):
                    ballast.write_bytes(bytes(2 << 20))
                load.wait_for_refusals()
                load.check(load.stored)
                ballast.unlink()
                load.clients.wait_for_creations()
        record(load.stored(), load.clients)


@NEEDS_ROOT
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

    One after the other, they would take up to 32 seconds. They succeed soon after the lock is gone;
    one that is repeated may find the plant that its first request has stored after its 503.
    """
    with ThreadPoolExecutor(8) as clients, connect(file_of(place)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with Gunicorn("-w", "1", **environment(place)) as server:

            def create(id: int) -> int:
                response, seconds = timed(
                    lambda: server.request(post(b'{"id":%d,"name":"Rose"}' % id))
                )
                assert seconds < LATEST
                return 200 if response.status == 200 else response.error

            assert {*clients.map(create, range(8))} == {50301}
            other.execute("ROLLBACK")
            wait_until(lambda: {*clients.map(create, range(8))} <= {200, 40004})
    with open_store(place.url) as store:
        assert len(store) == 8
