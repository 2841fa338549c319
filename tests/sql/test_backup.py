"""A copy of an SQLite file while others use it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from plantstore import Plant, StoreUnavailable, open_store
from plantstore.sql import back_up, database_file
from tests.support.databases import MODES

# 12 MB: the copy takes several steps.
PLANTS = [Plant(id, "x" * 300_000) for id in range(40)]


@pytest.fixture
def source(url: str, mode: str) -> Iterator[sqlite3.Connection]:
    """Return another connection to a database with PLANTS, which does not wait for locks."""
    with open_store(f"{url}?journal_mode={mode}") as store:
        for plant in PLANTS:
            store.add(plant)
        file = database_file(url)
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
            yield other


def add(source: sqlite3.Connection, id: int) -> Plant:
    """Add a plant, and return it. It must not have to wait for a lock."""
    source.execute("INSERT INTO plants (id, name) VALUES (?, 'new')", [id])
    return Plant(id, "new")


def copy(url: str, file: Path, after_step: Callable[[int, int], None]) -> list[Plant]:
    """Copy a database; return the plants of the copy, which must be correct."""
    file.touch()
    back_up(url, str(file), after_step)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with open_store(f"sqlite:///{file}") as store:
        return list(store)


@pytest.mark.parametrize("mode", ["wal"])
def test_writers_go_on_with_a_write_ahead_log(
    url: str, source: sqlite3.Connection, tmp_path: Path
) -> None:
    """With a write-ahead log, plants are added during the copy, which never begins again.

    The copy has the plants of the moment at which it began.
    """
    steps: list[int] = []

    def after_step(copied: int, total: int) -> None:
        steps.append(copied)
        assert len(steps) < 100, "the copy does not end"
        add(source, -len(steps))

    assert copy(url, tmp_path / "copy.db", after_step) == PLANTS
    assert len(steps) >= 3
    assert steps == sorted({*steps})
    assert source.execute("SELECT COUNT(*) FROM plants").fetchone() == (40 + len(steps),)


@pytest.mark.parametrize("mode", ["truncate"])
@pytest.mark.parametrize("writes", [1, 3])
def test_copy_begins_again_without_a_write_ahead_log(
    url: str, source: sqlite3.Connection, tmp_path: Path, writes: int
) -> None:
    """Without it, a copy begins again up to three times, when a plant was added.

    The plant is added at once, and is in the copy.
    """
    added: list[Plant] = []
    steps: list[int] = []

    def after_step(copied: int, total: int) -> None:
        steps.append(copied)
        if len(added) < writes and len(steps) % 2 == 0:
            added.append(add(source, -len(steps)))

    assert copy(url, tmp_path / "copy.db", after_step) == sorted([*added, *PLANTS])
    assert sum(after <= before for before, after in zip(steps, steps[1:], strict=False)) == writes


@pytest.mark.parametrize("mode", ["truncate"])
def test_copy_ends_although_plants_are_added_all_the_time(
    url: str, source: sqlite3.Connection, tmp_path: Path
) -> None:
    """The fourth time, others wait for the copy: it ends however often plants are added."""
    added: list[Plant] = []
    refused: list[sqlite3.OperationalError] = []

    def after_step(copied: int, total: int) -> None:
        assert len(added) < 100, "the copy does not end"
        try:
            added.append(add(source, -1 - len(added)))
        except sqlite3.OperationalError as error:
            refused.append(error)

    assert copy(url, tmp_path / "copy.db", after_step) == sorted([*added, *PLANTS])
    assert {str(error) for error in refused} == {"database is locked"}
    assert len(added) == 4
    add(source, -9)


@pytest.mark.parametrize("mode", ["truncate"])
def test_file_that_is_locked_during_the_copy(
    url: str, source: sqlite3.Connection, tmp_path: Path
) -> None:
    """If another connection locks the file for too long, the copy fails and says why."""

    def lock(copied: int, total: int) -> None:
        with suppress(sqlite3.OperationalError):  # The transaction has begun already.
            source.execute("BEGIN EXCLUSIVE")

    with pytest.raises(StoreUnavailable, match="database is locked: another connection has an"):
        copy(f"{url}?timeout=0", tmp_path / "copy.db", lock)


@pytest.mark.parametrize("mode", MODES)
def test_progress_of_a_copy(url: str, source: sqlite3.Connection, tmp_path: Path) -> None:
    """The progress ends with all pages. An exception that it raises ends the copy.

    SQLite creates no other file for the copy: it would stay if the process is killed.
    """
    steps: list[tuple[int, int]] = []

    def after_step(*step: int) -> None:
        steps.append((step[0], step[1]))
        assert [path.name for path in tmp_path.glob("copy.db*")] == ["copy.db"]

    copy(url, tmp_path / "copy.db", after_step)
    (pages,) = source.execute("PRAGMA page_count").fetchone()
    assert {total for _, total in steps} == {pages}
    assert steps[-1] == (pages, pages)

    def interrupt(copied: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(url, tmp_path / "other.db", interrupt)
    assert source.execute("BEGIN EXCLUSIVE")
