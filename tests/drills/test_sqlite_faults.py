"""SQLite files under load: locks of other processes, commands, backups, and a full disk."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import orjson
import pytest
from sqlalchemy import make_url

from plantstore import Plant
from tests.support.clients import Clients, Record
from tests.support.databases import FILES, MODES, Place, only
from tests.support.serving import LIMIT, Gunicorn, post
from tests.support.sql import environment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

COMMAND = [sys.executable, "-c", "from plantstore.cli import main; main()"]


class Load:
    """Clients that create plants with a service of two workers."""

    def __init__(self, place: Place, clients: Clients) -> None:
        self.url, self.file = place.url, make_url(place.url).database or ""
        self.clients = clients

    def check(self, read: Callable[[], set[Plant]]) -> None:
        """Check that all plants that have been acknowledged are among those that it reads."""
        acknowledged = self.clients.acknowledged.copy()
        assert acknowledged <= read()

    def stored(self) -> set[Plant]:
        """Return all plants in the file, which must be correct."""
        with connect(self.file) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return plants(connection)

    def wait_for_refusals(self, number: int = 20) -> None:
        """Return when so many more requests have got 503."""
        enough = self.clients.refused + number
        wait_until(lambda: self.clients.refused >= enough)


def connect(file: str | Path) -> closing[sqlite3.Connection]:
    """Open a connection that waits for locks."""
    return closing(sqlite3.connect(file, timeout=LIMIT, isolation_level=None))


def plants(connection: sqlite3.Connection) -> set[Plant]:
    """Return all plants that a connection sees."""
    return {Plant(*row) for row in connection.execute("SELECT id, name, tag FROM plants")}


@contextmanager
def loaded(place: Place) -> Iterator[Load]:
    """Run a service under load; at the end, all plants that were acknowledged must be stored."""
    with Gunicorn("-w", "2", **environment(place)) as server, Clients(server.port) as clients:
        clients.wait_for_creations()
        load = Load(place, clients)
        yield load
        clients.wait_for_creations()
        assert "50001" not in server.log
    load.check(load.stored)


def lock(load: Load) -> None:
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
        run("import", file)
        load.clients.wait_for_creations()


@only(*FILES)
def test_sqlite_under_load(place: Place, tmp_path: Path, record: Record) -> None:
    """While a file is locked, or commands use it, each acknowledged plant is stored at any time.

    No plant is stored that no client sent.
    """
    with loaded(place) as load:
        lock(load)
        command(load, tmp_path)
    record(load.stored(), load.clients)


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """Provide a disk with two megabytes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a disk")
@pytest.mark.parametrize("mode", MODES)
def test_full_disk(tmp_path: Path, mode: str, record: Record) -> None:
    """While a disk is full, or read-only, creates are 503; later, they succeed."""
    with disk(tmp_path) as folder:
        place = Place(f"sqlite:///{folder}/plants.db?journal_mode={mode}")
        ballast = folder / "ballast"
        with loaded(place) as load:
            for _ in range(2):
                with suppress(OSError):
                    ballast.write_bytes(bytes(2 << 20))
                load.wait_for_refusals()
                load.check(load.stored)
                ballast.unlink()
                load.clients.wait_for_creations()
        record(load.stored(), load.clients)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with Gunicorn("-w", "2", **environment(place)) as server:
            rose = post(b'{"id":-1,"name":"Rose"}')
            assert server.request(rose).status == 503
            subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
            wait_until(lambda: server.request(rose).status != 503)
        assert Plant(-1, "Rose") in load.stored()
