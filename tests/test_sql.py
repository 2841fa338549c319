"""SQLStore, over every engine: a file, and real servers."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import MetaData, create_engine, exc, inspect, text

from plantstore import Plant, PlantExists, Store, StoreUnavailable, open_store
from plantstore.stores.sql import SQLStore

from .databases import DATABASES, SERVERS, Database
from .serving import Answer, Gunicorn, post
from .store_contract import ROSE, StoreContract

ids = count(1000)


@pytest.fixture(scope="session", params=DATABASES, ids=lambda database: database.__name__)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Give a database of each engine in turn."""
    with request.param() as database:
        yield database


@pytest.fixture
def store(database: Database) -> Iterator[SQLStore]:
    """Return an empty store."""
    store = open_store(database.url)
    assert isinstance(store, SQLStore)
    for plant in store:
        store.remove(plant.id)
    yield store
    store.close()


class TestSQLStore(StoreContract):
    """SQLStore keeps every store's promises, on every engine."""


def test_plants_outlive_the_store(database: Database, store: SQLStore) -> None:
    """What one store has kept, the next one finds, under the same URL."""
    store.add(ROSE)
    store.close()
    again = open_store(database.url)
    assert list(again) == [ROSE]
    again.close()


def test_pages_make_one_list(store: SQLStore) -> None:
    """Iterating yields each plant once, also where there are more than it fetches at a time."""
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda id: store.add(Plant(id, "")), range(-1100, 1100)))
    assert [plant.id for plant in store] == [*range(-1100, 1100)]
    assert len(store) == 2200


def drop_table(database: Database) -> None:
    """Remove the table, as if the database was new."""
    engine = create_engine(database.url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE plants"))
    engine.dispose()


def test_many_may_open_at_once(database: Database, store: SQLStore) -> None:
    """Of many that find no table at the same time, each can use the one that is made."""
    drop_table(database)
    stores, start = [open_store(database.url) for _ in range(8)], Barrier(8)

    def use(number: int) -> None:
        start.wait()
        stores[number].add(Plant(number, ""))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(8)))
    assert len(store) == 8
    for opened in stores:
        opened.close()


def test_only_a_duplicate_is_one(store: SQLStore) -> None:
    """A plant that breaks another rule of the table is not taken for a duplicate, nor kept."""
    store.add(ROSE)
    for broken in (Plant(None, "x"), Plant(2, None)):  # type: ignore[arg-type]
        with pytest.raises(exc.IntegrityError):
            store.add(broken)
    assert list(store) == [ROSE]


def test_letters_are_told_apart(store: SQLStore) -> None:
    """Text comes back to the letter: case, accents, trailing spaces, four-byte characters."""
    for id, name in enumerate(("rose", "Rose", "rosé", "rose ", "🌹")):
        store.add(Plant(id, name, name))
    assert [plant.name for plant in store] == ["rose", "Rose", "rosé", "rose ", "🌹"]


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_frozen_database_is_unavailable(database: Database, store: SQLStore) -> None:
    """A server that stops answering is StoreUnavailable within seconds, and usable afterwards."""
    store.add(ROSE)
    with database.frozen():
        for operation in (store.ping, lambda: store.add(Plant(2, "Lily"))):
            start = time.monotonic()
            with pytest.raises(StoreUnavailable):
                operation()
            assert time.monotonic() - start < 10
    store.add(Plant(3, "Tulip"))
    assert store.get(1) == ROSE


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_lost_connection_costs_nobody(database: Database, store: SQLStore) -> None:
    """A connection that the server has closed meanwhile is replaced before it is used."""
    kill = {
        "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        "mysql": "SELECT CONCAT('KILL ', id) FROM information_schema.processlist"
        " WHERE user = 'root' AND id <> CONNECTION_ID()",
    }
    store.add(ROSE)
    engine = create_engine(database.url)
    with engine.connect() as connection:
        for (order,) in connection.execute(text(kill[connection.dialect.name])).all():
            if isinstance(order, str):
                connection.execute(text(order))
    engine.dispose()
    store.add(Plant(2, "Lily"))
    assert len(store) == 2


def test_a_site_has_its_own_engine(database: Database, store: SQLStore) -> None:
    """A store on a site's own engine and metadata leaves the table to the site to make."""
    drop_table(database)
    engine, metadata = create_engine(database.url), MetaData()
    guest = SQLStore(engine, metadata)
    assert list(metadata.tables) == ["plants"]
    with pytest.raises((exc.DBAPIError, StoreUnavailable)):
        guest.ping()
    assert not inspect(engine).has_table("plants")
    metadata.create_all(engine)
    guest.add(ROSE)
    assert list(guest) == list(store) == [ROSE]
    engine.dispose()


@pytest.mark.parametrize("preload", [[], ["--preload"]])
def test_workers_share_it(database: Database, store: SQLStore, preload: list[str]) -> None:
    """Of many clients who create the same ids at four workers, one gets 200 for each."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": database.url}
    with Gunicorn("-w", "4", *preload, **environment) as server:

        def client(number: int) -> list[tuple[int, str]]:
            name, won = f"of client {number}", []
            with server.connect() as connection:
                for id in range(50):
                    connection.send(post(b'{"id":%d,"name":"%s"}' % (id, name.encode())))
                    answer: Answer = connection.receive()
                    if answer.status == 200:
                        won.append((id, name))
                    else:
                        assert answer.error == 40004
            return won

        with ThreadPoolExecutor(16) as clients:
            won = sorted(sum(clients.map(client, range(16)), []))
        assert "Traceback" not in server.log
    assert won == [(plant.id, plant.name) for plant in store]
    assert len(won) == 50


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_frozen_database_is_503(database: Database, store: SQLStore) -> None:
    """While the database doesn't answer, the service answers 50301; then again 200."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": database.url}
    with Gunicorn("-w", "2", **environment) as server:
        assert server.ask(post(b'{"id":1,"name":"Rose"}')).status == 200
        with database.frozen():
            answer = server.ask(post(b'{"id":2,"name":"Lily"}'))
            assert (answer.error, answer.headers["retry-after"]) == (50301, "5")
        assert server.ask(post(b'{"id":3,"name":"Tulip"}')).status == 200
        assert "Traceback" not in server.log


def test_a_file_is_kept_safe(tmp_path: Path) -> None:
    """SQLite syncs every add to disk, and has a write-ahead log only where that is sound."""
    store = open_store(f"sqlite:///{tmp_path}/plants.db")
    assert isinstance(store, SQLStore)
    with store._engine.connect() as connection:  # noqa: SLF001
        pragmas = [
            connection.exec_driver_sql(f"PRAGMA {pragma}").scalar()
            for pragma in ("synchronous", "journal_mode", "busy_timeout")
        ]
    sound = sqlite3.sqlite_version_info >= (3, 51, 3)
    assert pragmas == [2, "wal" if sound else "delete", 5000]
    store.close()


def test_a_file_that_cannot_be_is_unavailable(tmp_path: Path) -> None:
    """A file in a folder that is missing is StoreUnavailable, and there once the folder is."""
    store: Store = open_store(f"sqlite:///{tmp_path}/missing/plants.db")
    with pytest.raises(StoreUnavailable):
        store.add(ROSE)
    (tmp_path / "missing").mkdir()
    store.add(ROSE)
    with pytest.raises(PlantExists):
        store.add(ROSE)
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "postgresql+asyncpg://me:hunter2@host/db",
        "mysql+nothing://me:hunter2@host/db",
        "postgresql+psycopg://me:hunter2@host:port/db",
    ],
)
def test_other_urls_open_nothing(url: str) -> None:
    """A URL that no store can honour is refused, and its password not shown."""
    with pytest.raises(ValueError, match=r"SQLite needs a file|no driver|not a database") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
