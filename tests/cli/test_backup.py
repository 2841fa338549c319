"""The command backup."""

import os
import re
import resource
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from plantstore import Plant, open_store
from tests.support.commands import Run, invoke
from tests.support.databases import FILES, UNREACHABLE, Place, only

ROSE = Plant(1, "Rose")


@pytest.fixture
def file(run: Run, url: str, tmp_path: Path) -> Path:
    """Return the file of the store, which has one plant. Beside it, there is an old backup.db."""
    with open_store(url) as store:
        store.add(ROSE)
    (tmp_path / "backup.db").write_text("old")
    return tmp_path / "plants.db"


def plants(file: Path | str) -> list[Plant]:
    """Return the plants of a database, which must be correct."""
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with open_store(f"sqlite:///{file}?mode=rw") as store:
        return list(store)


@only(*FILES)
def test_backup_is_a_complete_database(place: Place, tmp_path: Path) -> None:
    """A backup has all plants, also of the write-ahead log, and all tables, and replaces a file."""
    backup = tmp_path / "backup.db"
    backup.write_text("old")
    with open_store(place.url) as store:
        store.add(ROSE)
        with closing(sqlite3.connect(place.url[10:].partition("?")[0])) as other:
            other.execute("CREATE TABLE visits AS SELECT 7 AS number")
            other.commit()
        assert invoke("backup", str(backup), "--store", place.url).output == ""
    assert [*tmp_path.iterdir()] == [backup]
    assert invoke("list", "--store", f"sqlite:///{backup}").output == "1\tRose\t\n"
    assert plants(backup) == [ROSE]
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("SELECT number FROM visits").fetchall() == [(7,)]


@pytest.mark.parametrize("command", ["backup", "export"])
def test_file_never_replaces_a_database_in_use(run: Run, file: Path, command: str) -> None:
    """FILE must not be the store itself, also by a link, nor belong to a database with a log."""
    Path("empty.db").touch()
    os.symlink("plants.db", "link")
    os.link("plants.db", "hard-link")
    os.symlink("plants.db-wal", "log")
    names = ["plants.db", str(file), "link", "hard-link", "log"]
    for ending in ("wal", "shm", "journal"):
        names += [f"plants.db-{ending}", f"{ending}.db"]
        Path(f"{ending}.db").touch()
        Path(f"{ending}.db-{ending}").touch()  # SQLite would apply it to the new database.
    calls = [[command, name] for name in names]
    for arguments in [*calls, ["backup", "empty.db", "--store", "sqlite:///empty.db"]]:
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert result.stderr.endswith(
            " belongs to a database that may be in use. Choose another file.\n"
        )
    assert plants(file) == [ROSE]
    assert os.path.getsize("wal.db") == 0


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        *((name, 2, ".*FILE: must be the name of a file.") for name in ("-", "", "/dev/null")),
        *((name, 1, f"{name}: .*") for name in ("missing/a.db", "plants.db/a.db", "x" * 256)),
    ],
)
def test_backup_must_be_a_file(run: Run, file: Path, name: str, code: int, message: str) -> None:
    """A backup to a device or an impossible name fails with a message about FILE."""
    result = run("backup", name)
    assert (result.exit_code, result.stdout) == (code, "")
    assert re.fullmatch(f"Error: {message}", result.stderr.splitlines()[-1])


def test_backup_that_cannot_be_written(run: Run, file: Path) -> None:
    """If the disk cannot store the backup, an earlier one is unchanged, and no file remains."""
    with open_store(f"sqlite:///{file}") as store:
        store.add(Plant(2, "x" * 2**17))
    before = sorted(os.listdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The index of a write-ahead log, which SQLite may need to read the database, has 32 KiB.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    try:
        result = run("backup", "backup.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (result.exit_code, result.stderr) == (1, "Error: backup.db: disk I/O error\n")
    assert (Path("backup.db").read_text(), sorted(os.listdir())) == ("old", before)


def test_backup_of_another_store_names_its_program(run: Run) -> None:
    """For a store that is not an SQLite file, one line says what to use. It has no password."""
    result = run("backup", "backup.db", "--store", UNREACHABLE)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "copies only an SQLite file. Use pg_dump or mariadb-dump" in result.stderr
    assert "hunter2" not in result.stderr
    assert not Path("backup.db").exists()


@pytest.mark.parametrize(
    ("source", "old", "expected"),
    [
        *((0o600, None, 0o600), (0o666, None, 0o644)),
        *((0o600, 0o644, 0o600), (0o666, 0o640, 0o640)),
    ],
)
def test_backup_is_not_more_readable_than_the_store(
    run: Run, file: Path, source: int, old: int | None, expected: int
) -> None:
    """Nobody may read a backup who may not read the database. FILE keeps its permissions."""
    file.chmod(source)
    backup = Path("backup.db")
    backup.unlink() if old is None else backup.chmod(old)
    before = os.umask(0o022)
    assert run("backup", "backup.db").exit_code == 0
    os.umask(before)
    assert stat.S_IMODE(backup.stat().st_mode) == expected
