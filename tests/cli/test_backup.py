"""The command backup."""

import os
import resource
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from plantstore import open_store
from tests.support.commands import Run, invoke
from tests.support.databases import FILES, UNREACHABLE, Place, only
from tests.support.sites import ROSE_PLANT


@only(*FILES)
def test_backup_is_a_complete_database(place: Place, tmp_path: Path) -> None:
    """A backup has all plants, also of the write-ahead log, and all tables."""
    backup = tmp_path / "backup.db"
    with open_store(place.url) as store:
        store.add(ROSE_PLANT)
        with closing(sqlite3.connect(place.url[10:].partition("?")[0])) as other:
            other.execute("CREATE TABLE visits AS SELECT 7 AS number")
            other.commit()
        assert invoke("backup", str(backup), "--store", place.url).output == ""
    assert [*tmp_path.iterdir()] == [backup]
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert copy.execute("SELECT number FROM visits").fetchall() == [(7,)]
    with open_store(f"sqlite:///{backup}?mode=rw") as store:
        assert [*store] == [ROSE_PLANT]


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
