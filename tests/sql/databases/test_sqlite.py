"""SQLite files: journal modes, locks, and adds of concurrent threads."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine

from plantstore import Plant, PlantExists, SQLStore, StoreUnavailable
from tests.support.databases import MODES
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import COLUMNS, Listen, ask, call_all, check_refused, create_table, open_sql
from tests.support.users import ordinary_user

# Versions of SQLite: those that are safe with a write-ahead log, and others.
SAFE = [(3, 44, 6), (3, 44, 9), (3, 50, 7), (3, 51, 3), (3, 52, 0)]
UNSAFE = [(3, 40, 1), (3, 44, 5), (3, 45, 0), (3, 50, 6), (3, 51, 0), (3, 51, 2)]


def journal_mode(file: Path) -> str:
    """Return the journal mode that is in force for a file, while a store has it open."""
    if file.read_bytes()[18] == 2:
        return "wal"
    journal = file.with_name(f"{file.name}-journal")
    return "truncate" if journal.exists() and journal.stat().st_size == 0 else "delete"


@pytest.mark.parametrize("version", SAFE + UNSAFE, ids=str)
def test_default_journal_mode_of_each_version(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]
) -> None:
    """The default is a write-ahead log exactly for the versions of SQLite that are safe with it."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    with open_sql(url) as store:
        store.add(ROSE_PLANT)
        assert journal_mode(tmp_path / "plants.db") == ("wal" if version in SAFE else "truncate")


@pytest.mark.parametrize("old", [*MODES, "delete"])
@pytest.mark.parametrize("wanted", MODES)
@pytest.mark.parametrize("access", ["rwc", "rw"])
def test_existing_file_keeps_its_journal(
    url: str, tmp_path: Path, old: str, wanted: str, access: str
) -> None:
    """A file keeps its journal, which is never deleted: a power failure could undo a commit."""
    file = tmp_path / "plants.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode={old}")
        connection.execute(f"CREATE TABLE plants ({COLUMNS})")
    before = file.read_bytes()
    with open_sql(f"{url}?mode={access}&journal_mode={wanted}") as store:
        assert list(store) == []
        assert file.read_bytes() == before
        store.add(ROSE_PLANT)
        assert journal_mode(file) == ("wal" if old == "wal" else "truncate")


# An operator learns from the log what usually locks a file.
LOCKED = "locked: .* in this SQLite file. If a hook or the token check .* must commit or roll back"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_new", [True, False])
def test_locked_file(url: str, tmp_path: Path, mode: str, is_new: bool) -> None:
    """Adds to a locked file, also a new one, are StoreUnavailable after the timeout of the URL.

    They wait at the same time, and can be repeated afterwards.
    """
    with open_sql(f"{url}?journal_mode={mode}&timeout=0.5") as store:
        if not is_new:
            create_table(store)
        adds = [lambda id=id: store.add(Plant(id, "")) for id in range(40)]
        with closing(sqlite3.connect(tmp_path / "plants.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE" if is_new else "BEGIN IMMEDIATE")
            start = time.monotonic()
            assert {type(error) for error in call_all(*adds)} == {StoreUnavailable}
            # One after the other, they would take twenty seconds.
            assert 0.5 <= time.monotonic() - start < 15
            check_refused(store, StoreUnavailable, LOCKED, ROSE_PLANT)
        assert {type(error) for error in call_all(*adds)} <= {type(None), PlantExists}
        assert len(store) == 40


def test_concurrent_first_use_with_a_write_ahead_log(tmp_path: Path) -> None:
    """With a write-ahead log, stores that open a new file concurrently can all use it."""

    def use(url: str, id: int) -> None:
        with open_sql(url) as store:
            store.add(Plant(id, ""))

    for file in range(15):
        url = f"sqlite:///{tmp_path}/{file}.db?journal_mode=wal"
        assert call_all(*[partial(use, url, id) for id in range(8)]) == [None] * 8


def test_first_use_of_a_locked_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that opens a new file while another program has locked it waits, and can use it."""
    other = sqlite3.connect(tmp_path / "plants.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(time, "sleep", lambda _: other.close())  # It ends while the store waits.
    with open_sql(f"sqlite:///{tmp_path}/plants.db?journal_mode=wal") as store:
        store.add(ROSE_PLANT)
        assert list(store) == [ROSE_PLANT]


@pytest.mark.parametrize("mode", [*MODES, "engine of a site"])
def test_full_disk_is_store_unavailable(
    url: str, file_engine: Engine, listen: Listen, mode: str
) -> None:
    """A plant for which the disk has no room is StoreUnavailable, and the stored plants stay."""
    store = open_sql(f"{url}?journal_mode={mode}") if mode in MODES else SQLStore(file_engine)
    # As if the disk had room for twenty pages.
    listen("connect", lambda it, _: it.execute("PRAGMA max_page_count=20").close())
    store.add(ROSE_PLANT)
    check_refused(store, StoreUnavailable, "full: .*plants.db$", Plant(3, "x" * 1_000_000))
    assert list(store) == [ROSE_PLANT]
    store.add(LILY)
    assert list(store) == [ROSE_PLANT, LILY]
    store.close()


@pytest.mark.parametrize("mode", MODES)
def test_every_commit_is_synced(url: str, mode: str) -> None:
    """SQLite syncs every commit, in the journal mode of the URL."""
    with open_sql(f"{url}?journal_mode={mode}") as store:
        create_table(store)
        pragmas = ("synchronous", "journal_mode", "busy_timeout")
        assert [ask(f"PRAGMA {pragma}", store.ping) for pragma in pragmas] == [2, mode, 4000]


@pytest.mark.parametrize("read_only", ["plants.db", ".", "plants.db-journal"])
def test_ping_of_a_file_that_cannot_be_written(public_folder: Path, read_only: str) -> None:
    """A store with a file or folder that its user may only read is unavailable to ping.

    The message names the file. Plants can be read.
    """
    file, journal = public_folder / "plants.db", public_folder / "plants.db-journal"
    with open_sql(f"sqlite:///{file}?journal_mode=truncate") as store:
        store.add(ROSE_PLANT)
    file.chmod(0o666)
    if read_only != journal.name:
        journal.unlink()
    (public_folder / read_only).chmod(0o555)
    named = journal if read_only == journal.name else file
    with ordinary_user(), open_sql(f"sqlite:///{file}") as store:
        if named == file:
            assert list(store) == [ROSE_PLANT]
        with pytest.raises(StoreUnavailable, match=f"write a readonly database: {named}$"):
            store.ping()


# Characters that have a meaning in a URL or in a URI, in names of files.
NAMES = "plants.db/my plants.db/a#b.db/100%.db/a%3Fb.db/green%20house.db/a@b:c.db/pläne 🌹.db"


@pytest.mark.parametrize("name", NAMES.split("/"))
def test_mode_of_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With mode=rw, a missing file is an error. Otherwise, it is empty, and an add creates it."""
    monkeypatch.chdir(tmp_path)
    for folder in ("", f"{tmp_path}/", f"../{tmp_path.name}/"):
        url = f"sqlite:///{folder}{name}"
        with open_sql(f"{url}?mode=rw") as store:
            for use in (store.ping, lambda store=store: store.add(ROSE_PLANT)):
                with pytest.raises(StoreUnavailable, match=r"unable to open .*\.db$"):
                    use()
        with open_sql(url) as store:
            store.ping()
            assert (store.get(1), list(store), len(store)) == (None, [], 0)
            assert os.listdir() == []
            store.add(ROSE_PLANT)
        assert name in os.listdir()  # Nothing in the URL is decoded.
        with open_sql(f"{url}?mode=rwc") as store, open_sql(f"{url}?mode=rw") as other:
            other.add(LILY)
            assert list(store) == [ROSE_PLANT, LILY]
        for made in tmp_path.iterdir():
            made.unlink()


TEXT = "Rose, Lily, Tulip" * 100


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda file: file.write_text(TEXT), "file is not a database: {file}"),
        (Path.mkdir, "file: {file}: it is a folder, not a file"),
        (lambda file: file.parent.rmdir(), "{file}: its folder is missing"),
        (lambda file: (file.parent.rmdir(), file.parent.touch()), "{file}: its folder is missing"),
    ],
    ids=["text", "folder", "missing folder", "file as folder"],
)
def test_error_names_the_file(
    tmp_path: Path, prepare: Callable[[Path], object], reason: str
) -> None:
    """An error that concerns the file names the file, and changes nothing in it."""
    file = tmp_path / "my garden" / "plants.db"
    file.parent.mkdir()
    prepare(file)
    with open_sql(f"sqlite:///{file}") as store:
        for use in (store.ping, lambda: store.add(ROSE_PLANT)):
            with pytest.raises(StoreUnavailable) as caught:
                use()
            assert reason.format(file=file) in str(caught.value)
    assert not file.is_file() or file.read_text() == TEXT
