"""A copy of an SQLite file while others use it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from plantstore import Plant, StoreUnavailable, open_store
from plantstore.sql import back_up, database_file
from tests.support.databases import MODES
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import started

# 12 MB.
PLANTS = [Plant(id, "x" * 300_000) for id in range(40)]


@pytest.fixture
def source(url: str, mode: str) -> Iterator[sqlite3.Connection]:
    """Return another connection to a database with a rose, which does not wait for locks."""
    with open_store(f"{url}?journal_mode={mode}") as store:
        store.add(ROSE_PLANT)
        file = database_file(url)
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
            yield other


def copy(url: str, file: Path) -> list[Plant]:
    """Copy a database; return the plants of the copy, which must be correct."""
    file.unlink(missing_ok=True)
    file.touch()
    back_up(url, str(file))
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with open_store(f"sqlite:///{file}") as store:
        return list(store)


@pytest.mark.parametrize("mode", ["wal"])
def test_writers_go_on_with_a_write_ahead_log(
    url: str, source: sqlite3.Connection, tmp_path: Path
) -> None:
    """With a write-ahead log, a transaction that writes and a copy do not wait for each other.

    The copy has the plants of the moment at which it began.
    """
    source.execute("BEGIN IMMEDIATE")
    source.execute("INSERT INTO plants (id, name) VALUES (2, 'Lily')")
    assert copy(url, tmp_path / "copy.db") == [ROSE_PLANT]
    source.execute("COMMIT")
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


@pytest.mark.parametrize("mode", ["truncate"])
def test_copy_of_a_locked_file(url: str, source: sqlite3.Connection, tmp_path: Path) -> None:
    """If another connection locks the file for too long, the copy fails and says why."""
    source.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailable, match="database is locked: another connection has an"):
        copy(f"{url}?timeout=0", tmp_path / "copy.db")


@pytest.mark.parametrize("mode", MODES)
def test_copy_is_one_file(url: str, source: sqlite3.Connection, tmp_path: Path) -> None:
    """A copy is one file, and the source can be used at once after that."""
    (tmp_path / "copy.db").touch()
    back_up(url, str(tmp_path / "copy.db"))
    assert [path.name for path in tmp_path.glob("copy.db*")] == ["copy.db"]
    source.execute("INSERT INTO plants (id, name) VALUES (?, ?)", LILY[:2])
