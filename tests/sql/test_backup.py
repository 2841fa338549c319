"""A copy of an SQLite file while others use it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from plantstore import Plant, open_store
from plantstore.sql import back_up, file_of, make_engine
from tests.support.databases import MODES
from tests.support.sites import ROSE_PLANT
from tests.support.sql import started

# 12 MB.
PLANTS = [Plant(id, "x" * 300_000) for id in range(40)]


def copy(url: str, file: Path) -> list[Plant]:
    """Copy a database; return the plants of the copy, which must be correct."""
    file.unlink(missing_ok=True)
    file.touch()
    back_up(url, str(file))
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with open_store(f"sqlite:///{file}") as store:
        return list(store)


def test_writers_go_on_with_a_write_ahead_log(url: str, tmp_path: Path) -> None:
    """With a write-ahead log, a copy waits for no writer, and has the plants from its begin."""
    with open_store(f"{url}?journal_mode=wal") as store:
        store.add(ROSE_PLANT)
    with closing(sqlite3.connect(file_of(make_engine(url).url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO plants (id, name) VALUES (2, 'Lily')")
        assert copy(url, tmp_path / "copy.db") == [ROSE_PLANT]
        other.execute("COMMIT")
    assert [plant.id for plant in copy(url, tmp_path / "copy.db")] == [1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_adds_during_copies(url: str, mode: str, tmp_path: Path) -> None:
    """Adds during copies are not refused. Each copy has all plants up to one moment."""
    is_over, ids = Event(), list[int]()
    with open_store(f"{url}?journal_mode={mode}") as store:
        for plant in PLANTS:
            store.add(plant)

        def add() -> None:
            while not is_over.is_set():
                store.add(Plant(100 + len(ids), "new"))
                ids.append(100 + len(ids))

        with started(add) as (adding,):
            copies = [copy(url, tmp_path / f"{number}.db") for number in range(5)]
            is_over.set()
        adding.result()
        assert list(store)[40:] == [Plant(id, "new") for id in ids]
    for plants in copies:
        assert plants[:40] == PLANTS
        assert [plant.id for plant in plants[40:]] == ids[: len(plants) - 40]
