"""The command backup."""

import os
import resource
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from plantstore import Plant, open_store
from tests.support.commands import Run, invoke
from tests.support.databases import FILES, MODES, UNREACHABLE, Place, only
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import started

# 12 MB.
PLANTS = [Plant(id, "x" * 300_000) for id in range(40)]


def copy(url: str, file: Path) -> list[Plant]:
    """Back up a database; return the plants of the backup, which must be correct."""
    assert invoke("backup", str(file), "--store", url).output == ""
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with open_store(f"sqlite:///{file}?mode=rw") as store:
        return list(store)


@only(*FILES)
def test_backup_is_a_complete_database(place: Place, tmp_path: Path) -> None:
    """A backup has all plants, also of the write-ahead log, and all tables."""
    backup = tmp_path / "backup.db"
    with open_store(place.url) as store:
        store.add(ROSE_PLANT)
        with closing(sqlite3.connect(place.url[10:].partition("?")[0])) as other:
            other.execute("CREATE TABLE visits AS SELECT 7 AS number")
            other.commit()
        assert copy(place.url, backup) == [ROSE_PLANT]
    assert [*tmp_path.iterdir()] == [backup]
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("SELECT number FROM visits").fetchall() == [(7,)]


def test_writers_go_on_with_a_write_ahead_log(url: str, tmp_path: Path) -> None:
    """With a write-ahead log, a backup waits for no writer, and has the plants from its begin."""
    with open_store(f"{url}?journal_mode=wal") as store:
        store.add(ROSE_PLANT)
    with closing(sqlite3.connect(tmp_path / "plants.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO plants (id, name) VALUES (2, 'Lily')")
        assert copy(url, tmp_path / "1.db") == [ROSE_PLANT]
        other.execute("COMMIT")
    assert copy(url, tmp_path / "2.db") == [ROSE_PLANT, LILY]


@pytest.mark.parametrize("mode", MODES)
def test_adds_during_backups(url: str, mode: str, tmp_path: Path) -> None:
    """Adds during backups are not refused. Each backup has all plants up to one moment."""
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


@pytest.fixture
def file(url: str, tmp_path: Path) -> Path:
    """Return the file of the store, which has one plant."""
    with open_store(url) as store:
        store.add(ROSE_PLANT)
    return tmp_path / "plants.db"


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("name", ["plants.db", "link", "/dev/null", "new.db", "."])
def test_backup_must_be_a_new_file(run: Run, name: str) -> None:
    """FILE must not exist, nor have a log or a journal, which SQLite would apply to it."""
    Path("link").symlink_to("elsewhere")
    Path("new.db-journal").touch()
    before = sorted(os.listdir())
    result = run("backup", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{name} exists, or its -wal, -shm or -journal." in result.stderr
    assert sorted(os.listdir()) == before


def test_backup_on_a_full_disk(run: Run, url: str, file: Path) -> None:
    """If the disk cannot store the backup, there is no file."""
    with open_store(url) as store:
        store.add(ROSE_PLANT._replace(id=2, name="x" * 2**17))
    before = sorted(os.listdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The index of a write-ahead log, which SQLite may need to read the database, has 32 KiB.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    try:
        result = run("backup", "backup.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    fault = f"the store cannot be used: {file} cannot be copied: disk I/O error"
    assert (result.exit_code, result.stderr) == (1, f"Error: {fault}\n")
    assert sorted(os.listdir()) == before


def test_backup_of_another_store_names_its_program(run: Run) -> None:
    """For a store that is not an SQLite file, one line says what to use. It has no password."""
    result = run("backup", "backup.db", "--store", UNREACHABLE)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "not an SQLite file: use pg_dump, mariadb-dump or " in result.stderr
    assert "hunter2" not in result.stderr


@pytest.mark.parametrize(("source", "expected"), [(0o600, 0o600), (0o666, 0o644)])
def test_backup_is_not_more_readable_than_the_store(
    run: Run, file: Path, source: int, expected: int
) -> None:
    """Nobody may read a backup who may not read the database."""
    file.chmod(source)
    before = os.umask(0o022)
    assert run("backup", "backup.db").exit_code == 0
    os.umask(before)
    assert stat.S_IMODE(Path("backup.db").stat().st_mode) == expected
