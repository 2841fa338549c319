"""SQLite files: journal modes, locks, and adds of concurrent threads."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import create_engine, event

from plantstore import Plant, PlantExists, SQLStore, StoreUnavailable, open_store

from .serving import LIMIT
from .sites import LILY, ROSE_PLANT
from .test_sql import open_sql, started


def test_concurrent_first_use_with_a_write_ahead_log(tmp_path: Path) -> None:
    """With a write-ahead log, stores that open a new file concurrently can all use it."""
    for file in range(30):
        url, start = f"sqlite:///{tmp_path}/{file}.db?journal_mode=wal", Barrier(8)

        def use(number: int, url: str = url, start: Barrier = start) -> None:
            store = open_store(url)
            start.wait()
            store.add(Plant(number, ""))
            store.close()

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(use, range(8)))


def test_nested_add_does_not_deadlock(tmp_path: Path) -> None:
    """An SQLAlchemy event during an add may add another plant to the same file."""
    store = open_sql(f"sqlite:///{tmp_path}/plants.db")
    store.ping()
    adds = iter([lambda: store.add(LILY)])
    event.listen(
        store._connections.engine,  # noqa: SLF001
        "before_cursor_execute",
        lambda *_: next(adds, lambda: None)(),
    )
    with started(lambda: store.add(ROSE_PLANT)) as (adding,):
        adding.result(LIMIT / 2)
    assert len(store) == 2
    store.close()


def test_deleted_file_is_created_again(tmp_path: Path) -> None:
    """A deleted file is created again, and a plant is acknowledged only if it is stored."""
    store = open_store(f"sqlite:///{tmp_path}/plants.db")
    store.add(ROSE_PLANT)
    (tmp_path / "plants.db").unlink()
    with pytest.raises(StoreUnavailable):
        store.add(LILY)
    store.add(LILY)
    assert list(store) == [LILY]
    assert (tmp_path / "plants.db").exists()
    store.close()


def test_missing_folder_is_store_unavailable(tmp_path: Path) -> None:
    """A file in a missing folder is StoreUnavailable, and usable once the folder exists."""
    store = open_sql(f"sqlite:///{tmp_path}/missing/plants.db")
    with pytest.raises(StoreUnavailable):
        store.add(ROSE_PLANT)
    (tmp_path / "missing").mkdir()
    store.add(ROSE_PLANT)
    with pytest.raises(PlantExists):
        store.add(ROSE_PLANT)
    store.close()


def test_file_that_is_no_database(tmp_path: Path) -> None:
    """A file that is no database is StoreUnavailable, and is not changed."""
    file = tmp_path / "plants.db"
    file.write_text("Rose, Lily, Tulip" * 100)
    store = open_sql(f"sqlite:///{file}")
    with pytest.raises(StoreUnavailable):
        store.add(ROSE_PLANT)
    store.close()
    assert file.read_text() == "Rose, Lily, Tulip" * 100


def test_sqlite_timeout_in_the_url(tmp_path: Path) -> None:
    """A locked file is StoreUnavailable after the timeout of the URL."""
    store = open_sql(f"sqlite:///{tmp_path}/plants.db?timeout=0.1")
    store.ping()
    other = sqlite3.connect(tmp_path / "plants.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for add in (lambda: store.add(ROSE_PLANT), lambda: store.add_all([ROSE_PLANT])):
        with pytest.raises(StoreUnavailable, match="locked"):
            add()
    other.execute("ROLLBACK")
    other.close()
    store.add(ROSE_PLANT)
    store.close()


def test_full_disk_is_store_unavailable(tmp_path: Path) -> None:
    """A plant for which the disk has no room is StoreUnavailable, and the stored plants stay."""
    engine = create_engine(f"sqlite:///{tmp_path}/plants.db")
    event.listen(engine, "connect", lambda it, _: it.execute("PRAGMA max_page_count = 20").close())
    store = SQLStore(engine)
    store.add(ROSE_PLANT)
    for add in (store.add, lambda plant: store.add_all([LILY, plant])):
        with pytest.raises(StoreUnavailable, match="full"):
            add(Plant(3, "x" * 1_000_000))
    assert list(store) == [ROSE_PLANT]
    engine.dispose()


@pytest.mark.parametrize("mode", ["wal", "truncate"])
def test_every_commit_is_synced(tmp_path: Path, mode: str) -> None:
    """SQLite syncs every commit, in the journal mode of the URL."""
    store = open_sql(f"sqlite:///{tmp_path}/plants.db?journal_mode={mode}")
    with store, store._connections.connect() as connection:  # noqa: SLF001
        pragmas = [
            connection.exec_driver_sql(f"PRAGMA {pragma}").scalar()
            for pragma in ("synchronous", "journal_mode", "busy_timeout")
        ]
    assert pragmas == [2, mode, 4000]
