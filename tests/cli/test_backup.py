"""The command backup."""

import os
import resource
import signal
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from plantstore import Plant, open_store
from tests.support.commands import COMMAND, Run, invoke
from tests.support.databases import FILES, UNREACHABLE, Place, only
from tests.support.installing import install
from tests.support.serving import LIMIT
from tests.support.waiting import wait_until

ROSE = Plant(1, "Rose")


@pytest.fixture
def file(run: Run, url: str, tmp_path: Path) -> Path:
    """Return the file of the store, which has one plant."""
    with open_store(url) as store:
        store.add(ROSE)
    return tmp_path / "plants.db"


def plants(file: Path | str) -> list[Plant]:
    """Return the plants of a database, which must be correct."""
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with open_store(f"sqlite:///{file}?mode=rw") as store:
        return list(store)


@only(*FILES)
def test_backup_is_a_complete_database(place: Place, tmp_path: Path) -> None:
    """A backup is one file with the plants and all other tables. Every command can use it.

    This includes plants that are only in the write-ahead log yet.
    """
    backup = tmp_path / "backup.db"
    with open_store(place.url) as store:
        store.add(ROSE)
        with closing(sqlite3.connect(place.url[10:].partition("?")[0])) as other:
            other.execute("CREATE TABLE visits AS SELECT 7 AS number")
            other.commit()
        assert invoke("backup", str(backup), "--store", place.url).output == ""
    assert [*tmp_path.iterdir()] == [backup]
    assert invoke("list", "--store", f"sqlite:///{backup}").output == "1\tRose\t\n"
    assert invoke("add", "2", "Lily", "--store", f"sqlite:///{backup}").exit_code == 0
    assert plants(backup) == [ROSE, Plant(2, "Lily")]
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("SELECT number FROM visits").fetchall() == [(7,)]


def test_backup_replaces_an_earlier_one(run: Run, file: Path) -> None:
    """An existing FILE is replaced, and keeps its permissions. A symbolic link stays a link."""
    assert run("backup", "backup.db").exit_code == 0
    os.chmod("backup.db", 0o640)
    os.symlink("backup.db", "link")
    assert run("add", "2", "Lily").exit_code == 0
    assert run("backup", "link").exit_code == 0
    assert os.path.islink("link")
    assert stat.S_IMODE(os.stat("backup.db").st_mode) == 0o640
    assert plants("backup.db") == [ROSE, Plant(2, "Lily")]


def test_backup_never_replaces_the_store(run: Run, file: Path) -> None:
    """FILE must not be the store itself, also by a link, nor a file that belongs to it."""
    os.symlink("plants.db", "link")
    os.link("plants.db", "hard-link")
    os.symlink("plants.db-wal", "log")
    names = ["plants.db", str(file), "link", "hard-link", "log"]
    for name in [*names, *(f"plants.db-{ending}" for ending in ("wal", "shm", "journal"))]:
        result = run("backup", name)
        assert (result.exit_code, result.stdout) == (2, ""), name
        assert result.stderr.endswith(
            " belongs to a database that may be in use. Choose another file.\n"
        )
    assert plants(file) == [ROSE]


def test_backup_never_replaces_an_empty_store(run: Run, tmp_path: Path) -> None:
    """A store that has no table yet is not replaced by its own copy."""
    (tmp_path / "plants.db").touch()
    assert run("backup", "plants.db").exit_code == 2


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_backup_never_replaces_a_database_in_use(run: Run, file: Path, ending: str) -> None:
    """A FILE that has a log or a journal is refused: SQLite would apply it to the new database."""
    Path("other.db").write_text("old")
    Path(f"other.db{ending}").touch()
    result = run("backup", "other.db")
    assert result.exit_code == 2
    assert "other.db belongs to a database that may be in use. Choose another" in result.stderr
    assert Path("other.db").read_text() == "old"


@pytest.mark.parametrize("name", ["-", "", "/dev/null", "pipe"])
def test_backup_must_be_a_file(run: Run, file: Path, name: str) -> None:
    """A backup is not written to standard output, a device or a pipe."""
    os.mkfifo("pipe")
    result = run("backup", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "FILE: must be the name of a file." in result.stderr


@pytest.mark.parametrize("name", ["missing/backup.db", "plants.db/backup.db", "x" * 256])
def test_backup_to_an_impossible_name(run: Run, file: Path, name: str) -> None:
    """A backup into a missing folder, for example, fails with one line that names FILE."""
    result = run("backup", name)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {name}: ")
    assert result.stderr.count("\n") == 1


@contextmanager
def small_files() -> Iterator[None]:
    """Let no process of this test write more than 4 KiB into a file, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_backup_that_cannot_be_written(run: Run, file: Path) -> None:
    """If the disk cannot store the backup, an earlier one is unchanged, and no file remains."""
    Path("backup.db").write_text("old")
    before = sorted(os.listdir())
    with small_files():
        result = run("backup", "backup.db")
    assert (result.exit_code, result.stderr) == (1, "Error: backup.db: disk I/O error\n")
    assert Path("backup.db").read_text() == "old"
    assert sorted(os.listdir()) == before


def test_backup_that_is_interrupted(run: Run, url: str, file: Path) -> None:
    """If the backup is interrupted, an earlier one is unchanged, and no other file remains."""
    Path("backup.db").write_text("old")
    before = sorted(os.listdir())
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")  # The backup waits for it.
        command = [*COMMAND, "backup", "backup.db", "--store", f"{url}?timeout={LIMIT}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: len(os.listdir()) > len(before))
            process.send_signal(signal.SIGINT)
            other.execute("ROLLBACK")
            _, message = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "Traceback" not in message
    assert Path("backup.db").read_text() == "old"
    assert sorted(os.listdir()) == before


def test_backup_of_a_locked_or_wrong_file(run: Run, url: str, file: Path) -> None:
    """If the database is locked for too long, or is none, the backup fails with one line."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        locked = run("backup", "backup.db", "--store", f"{url}?timeout=0")
    Path("text.db").write_text("This is not a database.")
    wrong = run("backup", "backup.db", "--store", "sqlite:///text.db")
    for result, message in (
        (locked, "database is locked: another connection has an open transaction"),
        (wrong, "file is not a database: "),
    ):
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: the store is unavailable: {message}")
        assert result.stderr.count("\n") == 1
    assert not Path("backup.db").exists()


@pytest.mark.parametrize(
    ("url", "program"),
    [
        (UNREACHABLE, "pg_dump"),
        (UNREACHABLE.replace("postgresql", "postgres"), "pg_dump"),
        (UNREACHABLE.replace("postgresql", "mysql"), "mariadb-dump"),
        (UNREACHABLE.replace("postgresql", "mariadb"), "mariadb-dump"),
        ("shelf://me:hunter2@host", "export"),
    ],
)
def test_backup_of_another_store_names_its_program(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, program: str
) -> None:
    """For a store that is not an SQLite file, one line says what to use. It has no password."""
    source = """
from plantstore import MemoryStore
class Shelf(MemoryStore):
    one_process = False
def open(url):
    return Shelf()
"""
    install(monkeypatch, tmp_path, "plantstore-shelf", "shelf", source)
    result = run("backup", "backup.db", "--store", url)
    assert (result.exit_code, result.stdout) == (2, "")
    *_, line = result.stderr.splitlines()
    assert "this command copies only an SQLite file" in line
    assert program in line
    assert "hunter2" not in result.stderr
    assert not Path("backup.db").exists()


@pytest.mark.parametrize(("source", "expected"), [(0o600, 0o600), (0o640, 0o640), (0o666, 0o644)])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_backup_is_not_more_readable_than_the_store(
    run: Run, file: Path, source: int, expected: int, is_replaced: bool
) -> None:
    """Nobody may read a backup who may not read the database, also if FILE existed."""
    file.chmod(source)
    backup = Path("backup.db")
    if is_replaced:
        backup.touch()
        backup.chmod(0o644)
    before = os.umask(0o022)
    assert run("backup", "backup.db").exit_code == 0
    os.umask(before)
    assert stat.S_IMODE(backup.stat().st_mode) == expected
