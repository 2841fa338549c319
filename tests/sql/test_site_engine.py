"""SQLStore on the engine of a host site: the site's database works as without the store."""

import gc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Event
from typing import Any
from weakref import ref

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Connection, Engine, MetaData, create_engine, event, inspect, text
from sqlalchemy.pool import NullPool, SingletonThreadPool, StaticPool

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import MODES, SERVERS, Place, mariadb, only
from tests.support.serving import LIMIT
from tests.support.sites import BEARER, LILY, ROSE_PLANT, make_site
from tests.support.sql import call_all, create_table, listening, open_sql, started
from tests.support.waiting import wait_until

CREATES = 40


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("options", [{"pool_size": 1, "max_overflow": 0}, {"poolclass": NullPool}])
def test_token_check_may_hold_all_connections_of_the_site(
    place: Place, options: dict[str, object]
) -> None:
    """Creates succeed while the token check of each request holds a connection of the site."""
    site = Flask("site")
    site.config["SQLALCHEMY_DATABASE_URI"] = place.site_url
    site.config["SQLALCHEMY_ENGINE_OPTIONS"] = {**options}
    db = SQLAlchemy(site)

    def verify_token(token: str) -> str:
        return str(db.session.execute(text("SELECT 'flora'")).scalar_one())

    with site.app_context():
        engine = db.engine
    make_site(site, store=SQLStore(engine), verify_token=verify_token)
    site.add_url_rule("/login", "login", lambda: verify_token(""))

    def send(id: int) -> tuple[int, int]:
        client = site.test_client()
        created = client.post("/plants", json={"id": id, "name": ""}, headers=BEARER)
        return created.status_code, client.get("/login").status_code

    with ThreadPoolExecutor(20) as threads:
        assert [*threads.map(send, range(CREATES))] == [(200, 200)] * CREATES
    assert len(SQLStore(engine)) == CREATES
    engine.dispose()


@pytest.mark.parametrize("are_collected", [False, True])
def test_stores_of_one_engine_share_five_connections(engine: Engine, are_collected: bool) -> None:
    """All stores of an engine together use at most five connections, and none of the site's.

    This is also true if a site makes a store for each request.
    """
    engine.connect().close()
    opened, closed = list[object](), list[object]()
    event.listen(engine, "connect", lambda connection, _: opened.append(connection))
    event.listen(engine, "close", lambda connection, _: closed.append(connection))
    stores = [SQLStore(engine), SQLStore(engine, table="garden_plants")]

    def add_five(number: int) -> None:
        for id in range(5):
            store = SQLStore(engine) if are_collected else stores[number % 2]
            store.add(Plant(100 * number + id, ""))

    assert call_all(*[partial(add_five, number) for number in range(20)]) == [None] * 20
    assert sum(map(len, stores)) == 100
    assert 1 <= len(opened) <= 5
    assert not closed
    assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]


def test_busy_connections_are_store_unavailable(file_engine: Engine) -> None:
    """If all five connections stay in use, StoreUnavailable says so; afterwards the store works."""
    store, held, release = SQLStore(file_engine), Barrier(6), Barrier(6)
    store.add(ROSE_PLANT)

    def hold(*_: object) -> None:
        held.wait(LIMIT)
        release.wait(LIMIT)

    with listening("before_cursor_execute", hold), started(*[lambda: store.get(1)] * 5) as holding:
        held.wait(LIMIT)
        with deadline(1), pytest.raises(StoreUnavailable, match="all 5 connections"):
            store.add(LILY)
        release.wait(LIMIT)
    assert [call.result() for call in holding] == [ROSE_PLANT] * 5
    store.add(LILY)


def test_listeners_of_the_site_apply(engine: Engine) -> None:
    """The listeners of the site apply to a store, at the latest after the next dispose()."""
    seen = []
    store = SQLStore(engine)
    event.listen(engine, "do_connect", lambda *_: seen.append("do_connect"))
    event.listen(engine, "connect", lambda *_: seen.append("connect"))
    with listening("before_cursor_execute", lambda *_: seen.append("execute")):
        store.add(ROSE_PLANT)
    assert {*seen} == {"do_connect", "connect", "execute"}
    event.listen(engine, "checkout", lambda *_: seen.append("checkout"))
    store.add(LILY)
    assert "checkout" not in seen
    engine.dispose()
    store.get(1)
    assert "checkout" in seen


@only(*SERVERS)
def test_concurrent_first_use_by_site_and_store(engine: Engine) -> None:
    """When a page of the site and a store use the database first at the same time, both succeed."""
    initialize: Any = engine.dialect.initialize
    initializing, is_over = Event(), Event()

    def initialize_slowly(connection: Connection) -> None:
        initializing.set()
        is_over.wait(0.5)  # The page must wait, so this is the whole time.
        initialize(connection)

    engine.dialect.initialize = initialize_slowly  # type: ignore[method-assign]
    with started(lambda: SQLStore(engine).add(ROSE_PLANT)) as (adding,):
        assert initializing.wait(LIMIT)
        assert inspect(engine).get_schema_names()
        is_over.set()
    assert not adding.exception()


def test_disposing_of_the_site_engine_closes_the_connections(engine: Engine) -> None:
    """dispose() closes the connections of a store, and close() those of the store alone."""
    opened, closed = [], []
    event.listen(engine, "connect", lambda *_: opened.append(1))
    event.listen(engine, "close_detached", lambda *_: closed.append(1))
    event.listen(engine, "close", lambda *_: closed.append(1))
    store = SQLStore(engine)
    store.add(ROSE_PLANT)
    assert len(opened) > len(closed)
    engine.dispose()
    assert len(opened) == len(closed)
    with engine.connect():
        pass
    store.add(LILY)
    assert len(opened) == len(closed) + 2
    store.close()
    assert len(opened) == len(closed) + 1


def test_an_unused_engine_is_freed(tmp_path: Path) -> None:
    """A store does not keep a site's engine in memory."""
    engine = create_engine(f"sqlite:///{tmp_path}/site.db")
    store = SQLStore(engine)
    store.add(ROSE_PLANT)
    store.close()
    engine.dispose()
    freed = ref(engine)
    del engine, store
    wait_until(lambda: gc.collect() >= 0 and freed() is None)


def test_metadata_of_a_site(engine: Engine) -> None:
    """With a site's metadata, the store leaves it to the site to create the table."""
    metadata = MetaData()
    embedded = SQLStore(engine, metadata)
    assert list(metadata.tables) == ["plants"]
    with pytest.raises(StoreMisconfigured, match="migrations"):
        embedded.ping()
    assert not inspect(engine).has_table("plants")
    metadata.create_all(engine)
    embedded.add(ROSE_PLANT)
    assert embedded.add_some([LILY]) == set()
    assert list(SQLStore(engine, metadata)) == list(SQLStore(engine)) == [ROSE_PLANT, LILY]


@pytest.mark.parametrize("kind", ["memory", *MODES])
def test_site_engines_that_begin_transactions(url: str, kind: str) -> None:
    """A listener of all engines may begin transactions in SQLite, as in SQLAlchemy's recipe."""
    if kind in MODES:
        create_table(open_sql(f"{url}?journal_mode={kind}"))
    engine = create_engine(url if kind in MODES else "sqlite://")
    event.listen(engine, "connect", lambda it, _: setattr(it, "isolation_level", None))
    store = SQLStore(engine)
    with listening("begin", lambda it: it.exec_driver_sql("BEGIN")):
        store.add(ROSE_PLANT)
        assert store.add_some([LILY, ROSE_PLANT, Plant(3, "Tulip")]) == {1}
        store.remove(3)
        store.add(Plant(4, "Fern"))
        with pytest.raises(PlantExists):
            store.add(LILY)
        with engine.connect() as other:
            assert other.scalar(text("SELECT COUNT(*) FROM plants")) == 3
    assert list(store) == [ROSE_PLANT, LILY, Plant(4, "Fern")]
    engine.dispose()


@pytest.mark.parametrize("options", [{}, {"poolclass": StaticPool}])
def test_in_memory_database_of_a_site_is_not_lost(options: dict[str, Any]) -> None:
    """A site's in-memory SQLite database is not lost when the store fails or closes."""
    engine, metadata = create_engine("sqlite://", **options), MetaData()
    store = SQLStore(engine, metadata)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE others (id INTEGER)")
        connection.exec_driver_sql("PRAGMA max_page_count = 20")
    with pytest.raises(StoreUnavailable):
        store.add(ROSE_PLANT)
    metadata.create_all(engine)
    store.add(ROSE_PLANT)
    assert store.add_some([LILY, ROSE_PLANT]) == {1}
    with pytest.raises(StoreUnavailable, match="full"):
        store.add(Plant(3, "x" * 1_000_000))
    assert list(store) == [ROSE_PLANT, LILY]
    assert inspect(engine).get_table_names() == ["others", "plants"]
    store.close()
    assert list(store) == [ROSE_PLANT, LILY]
    engine.dispose()


def test_file_of_a_site_with_one_connection_per_thread(url: str) -> None:
    """A store never commits what a site has not committed, also if the pool is that of SQLCipher.

    SQLCipher's driver is given a SingletonThreadPool also for a file.
    """
    engine = create_engine(url, poolclass=SingletonThreadPool, connect_args={"timeout": 0.2})
    store = SQLStore(engine)
    store.add(ROSE_PLANT)
    with engine.connect() as site:
        site.execute(text("INSERT INTO plants (id, name) VALUES (3, 'Tulip')"))
        with pytest.raises(StoreUnavailable, match="locked"):
            store.add(LILY)
        site.rollback()
    store.add(LILY)
    assert list(store) == [ROSE_PLANT, LILY]
    engine.dispose()


def test_other_databases_are_refused() -> None:
    """An engine of a database that the store does not know is refused by name."""
    engine = create_engine("sqlite://")
    engine.dialect.name = "oracle"
    with pytest.raises(ValueError, match="cannot use a database of oracle, only SQLite, Postgre"):
        SQLStore(engine)


def test_imports_into_a_database_in_memory() -> None:
    """Imports that share the connection of a database in memory lose no plant of each other."""
    arguments = {"check_same_thread": False}
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args=arguments)
    store = SQLStore(engine)

    def import_some(first: int) -> set[int]:
        return store.add_some(Plant(id, "Rose") for id in range(first, first + 300))

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(import_some, range(0, 30_000, 1000))] == [set()] * 30
    assert len(store) == 30 * 300
    engine.dispose()


def test_first_use_by_a_listener(file_engine: Engine) -> None:
    """A listener of the site may use another store during the first use of its engine."""
    store, other = SQLStore(file_engine), SQLStore(file_engine, table="garden_plants")
    uses = iter([lambda: other.add(ROSE_PLANT)])
    event.listen(file_engine, "connect", lambda *_: next(uses, lambda: None)())
    store.add(LILY)
    assert (list(store), list(other)) == ([LILY], [ROSE_PLANT])


def test_first_use_of_a_site_engine(engine: Engine) -> None:
    """While one thread opens the first connection, an operation of another thread fails in time."""
    store, connecting, release = SQLStore(engine), Event(), Event()

    def connect(*_: object) -> None:
        connecting.set()
        release.wait(LIMIT)

    event.listen(engine, "do_connect", connect)
    with started(store.ping) as (first,):
        assert connecting.wait(LIMIT)
        with deadline(1), pytest.raises(StoreUnavailable, match="first use"):
            store.ping()
        release.set()
    assert not first.exception()
    store.ping()


@only(mariadb)
def test_update_if_the_driver_of_a_site_counts_only_changes(place: Place) -> None:
    """An equal plant replaces a plant also if the site's driver counts only rows that change."""
    engine = create_engine(place.site_url, connect_args={"client_flag": 0})
    store = SQLStore(engine)
    with pytest.raises(KeyError):
        store.replace(LILY)
    store.add(LILY)
    store.replace(LILY)
    assert list(store) == [LILY]
    engine.dispose()
