"""An SQLite file on a disk that is full, or read-only, under load."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from plantstore import Plant
from tests.support.clients import Clients, Record
from tests.support.databases import MODES, Place
from tests.support.serving import LIMIT, Gunicorn, post
from tests.support.sql import environment
from tests.support.waiting import wait_for_more, wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a disk"),
]


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """Provide a disk with two megabytes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def stored(file: Path) -> set[Plant]:
    """Return all plants in a file, which must be correct."""
    with closing(sqlite3.connect(file, timeout=LIMIT)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {Plant(*row) for row in connection.execute("SELECT id, name, tag FROM plants")}


@pytest.mark.parametrize("mode", MODES)
def test_full_disk(tmp_path: Path, mode: str, record: Record) -> None:
    """While a disk is full, or read-only, creates are 503; later, they succeed."""
    with disk(tmp_path) as folder:
        file, ballast = folder / "plants.db", folder / "ballast"
        settings = environment(Place(f"sqlite:///{file}?journal_mode={mode}"))
        with Gunicorn("-w", "2", **settings) as server:
            with Clients(server.port) as clients:
                for _ in range(2):
                    clients.wait_for_creations()
                    with suppress(OSError):
                        ballast.write_bytes(bytes(2 << 20))
                    wait_for_more(lambda: clients.refused, 20)
                    acknowledged = clients.acknowledged.copy()
                    assert acknowledged <= stored(file)
                    ballast.unlink()
                clients.wait_for_creations()
            assert "50001" not in server.log
        record(stored(file), clients)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with Gunicorn("-w", "2", **settings) as server:
            rose = post(b'{"id":-1,"name":"Rose"}')
            assert server.request(rose).status == 503
            subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
            wait_until(lambda: server.request(rose).status != 503)
        assert Plant(-1, "Rose") in stored(file)
