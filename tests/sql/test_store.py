"""SQLStore on every engine: an SQLite file, and real database servers."""

import operator
import re
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from plantstore import (
    Plant,
    PlantExists,
    SQLStore,
    StoreMisconfigured,
    StoreUnavailable,
    open_store,
)
from plantstore.sql import _executors
from tests.support.databases import SERVERS, Place, mariadb, only, postgresql, sqlite, sqlite_wal
from tests.support.responses import check_error, create
from tests.support.serving import LIMIT, ROOT, Gunicorn, post
from tests.support.sites import LILY, ROSE, ROSE_PLANT, make_site
from tests.support.sql import (
    COLUMNS,
    ask,
    check_outage,
    end_sessions,
    lock_waits,
    open_sql,
    own_connections,
    started,
)
from tests.support.waiting import wait_until


@pytest.fixture
def store(place: Place) -> Iterator[SQLStore]:
    """Return an empty store."""
    store = open_sql(place.url)
    yield store
    store.close()


def test_plant_added_after_add_all_is_committed(place: Place, store: SQLStore) -> None:
    """A plant that is added after an import is stored as durably as any other."""
    store.add_all([ROSE_PLANT])
    store.add(LILY)
    store.close()
    again = open_store(place.url)
    assert list(again) == [ROSE_PLANT, LILY]
    again.close()


def test_iteration_reads_no_plants_before_its_start(store: SQLStore) -> None:
    """An iteration after an id reads only plants after it, and not many more than are used."""
    store.add_all(Plant(id, "") for id in range(1000))
    read: list[Any] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        read.append(
            (statement, [*parameters.values()] if isinstance(parameters, dict) else parameters)
        )

    event.listen(own_connections(store).engine, "before_cursor_execute", note)
    first = [plant.id for plant, _ in zip(store.iterate(899), range(101), strict=False)]
    assert first == [*range(900, 1000)]
    assert len(read) == 2
    for (statement, parameters), after in zip(read, (899, 911), strict=True):
        assert re.search(r"WHERE \S*id > .* ORDER BY \S*id\s+LIMIT ", statement, re.DOTALL)
        assert after in parameters


def test_iteration_over_several_pages(store: SQLStore) -> None:
    """Iteration yields each plant once, also when it needs several pages."""
    store.add_all(Plant(id, "") for id in range(-250, 250))
    assert [plant.id for plant in store] == [*range(-250, 250)]
    assert len(store) == 500


def test_concurrent_first_use_creates_the_table_once(place: Place) -> None:
    """Stores that create the missing table concurrently can all use it."""
    stores, start = [open_store(place.url) for _ in range(8)], Barrier(8)

    def use(number: int) -> None:
        start.wait()
        stores[number].add(Plant(number, ""))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(8)))
    assert len(stores[0]) == 8
    for store in stores:
        store.close()


@only(postgresql)
def test_table_created_in_a_concurrent_transaction(store: SQLStore, engine: Engine) -> None:
    """A store waits for a concurrent transaction that creates the table, and then uses it."""
    with engine.connect() as other, lock_waits(engine) as waiting:
        other.execute(text(f"CREATE TABLE plants ({COLUMNS})"))
        with started(lambda: store.add(ROSE_PLANT)) as (adding,):
            wait_until(lambda: waiting() >= 1)
            other.commit()
    adding.result()
    assert list(store) == [ROSE_PLANT]


def test_skip_existing_skips_only_duplicate_ids(store: SQLStore, engine: Engine) -> None:
    """skip_existing does not skip a plant that violates another constraint of the site's table."""
    store.add(ROSE_PLANT)
    name = "name(9)" if engine.dialect.name == "mysql" else "name"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE UNIQUE INDEX names ON plants ({name})"))
    with pytest.raises(StoreMisconfigured, match="refuses an operation: .*name"):
        store.add_all([LILY, Plant(3, ROSE_PLANT.name)], skip_existing=True)
    assert list(store) == [ROSE_PLANT]


LOGGING = {
    "sqlite": (
        "CREATE TRIGGER logging AFTER INSERT ON plants"
        " BEGIN INSERT INTO garden_plants VALUES (NEW.id + 10); END"
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION logging() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO garden_plants VALUES (NEW.id + 10); RETURN NEW; END $$;"
        "CREATE TRIGGER logging AFTER INSERT ON plants FOR EACH ROW EXECUTE FUNCTION logging()"
    ),
    "mysql": (
        "CREATE TRIGGER logging AFTER INSERT ON plants"
        " FOR EACH ROW INSERT INTO garden_plants VALUES (NEW.id + 10)"
    ),
}


def test_duplicate_in_another_table(store: SQLStore, engine: Engine) -> None:
    """If a trigger of the site writes a duplicate to another table, it is not PlantExists."""
    store.add_all([])
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE garden_plants (id BIGINT PRIMARY KEY)"))
        connection.execute(text("INSERT INTO garden_plants VALUES (11)"))
        connection.execute(text(LOGGING[engine.dialect.name]))
    for skip_existing in (False, True):
        with pytest.raises(StoreMisconfigured, match="it refuses an operation: "):
            store.add_all([ROSE_PLANT], skip_existing=skip_existing)
    with pytest.raises(StoreMisconfigured, match="it refuses an operation: "):
        store.add(ROSE_PLANT)
    store.add(LILY)
    assert list(store) == [LILY]


TRIGGERS = {
    "sqlite": "CREATE TRIGGER no_roses BEFORE INSERT ON plants BEGIN SELECT RAISE(ABORT, {}); END",
    "postgresql": (
        "CREATE OR REPLACE FUNCTION no_roses() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION USING MESSAGE = {}; END $$;"
        "CREATE TRIGGER no_roses BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION no_roses()"
    ),
    "mysql": (
        "CREATE TRIGGER no_roses BEFORE INSERT ON plants FOR EACH ROW"
        " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {}"
    ),
}


def test_message_of_the_driver_is_one_line_in_the_log(
    store: SQLStore, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """A message of the database that has several lines is one line in the log."""
    store.add_all([])
    with engine.begin() as connection:
        connection.execute(text(TRIGGERS[engine.dialect.name].format("'no roses\nhere'")))
    check_error(create(make_site(store=store).test_client(), ROSE), 50303)
    (message,) = caplog.messages
    assert "table plants: it refuses an operation: " in message
    assert "no roses" in message
    assert "\n" not in message


def large_plants() -> Iterator[Plant]:
    """Yield plants with a tag of a megabyte, then plants with such a name."""
    for id in range(60):
        long = f"{id:<1000000}"
        yield Plant(id, "", long) if id < 40 else Plant(id, long)


def test_memory_use_of_large_plants(store: SQLStore) -> None:
    """add_all and iteration hold only a few plants of a megabyte in memory at a time."""
    assert peak(lambda: store.add_all(large_plants())) < 30_000_000
    assert peak(lambda: [None for _ in store]) < 30_000_000
    assert all(map(operator.eq, store, large_plants()))
    assert len(store) == 60


@only(sqlite, sqlite_wal, postgresql)
def test_long_names_after_short_ones(store: SQLStore) -> None:
    """However long the names are, an iteration needs little memory, also after short names."""
    long_name = "🌵" + "x" * 1_000_000  # Python uses four bytes for each character.
    store.add_all(Plant(id, "") for id in range(12))
    store.add_all(Plant(id, long_name) for id in range(12, 60))
    assert peak(lambda: [None for _ in store]) < 30_000_000
    assert [(plant.id, len(plant.name)) for plant in store] == [
        (id, 0 if id < 12 else 1_000_001) for id in range(60)
    ]


def peak(function: Callable[[], Any]) -> int:
    """Return the largest number of bytes in use during a call."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@only(*SERVERS)
@pytest.mark.parametrize("skip_existing", [True, False])
def test_concurrent_duplicate_during_add_all(
    store: SQLStore, engine: Engine, skip_existing: bool
) -> None:
    """A plant that another transaction adds during add_all is handled as a duplicate."""
    store.add_all([])
    many = [Plant(id, "own") for id in range(300)]
    with engine.connect() as other, lock_waits(engine) as waiting:
        other.execute(text("INSERT INTO plants (id, name) VALUES (150, 'other')"))
        with started(lambda: store.add_all(many, skip_existing=skip_existing)) as (adding,):
            wait_until(lambda: waiting() >= 1)
            other.commit()
    if skip_existing:
        assert adding.result() == 299
        assert len(store) == 300
    else:
        with pytest.raises(PlantExists, match="150"):
            adding.result()
        assert list(store) == [Plant(150, "other")]
    assert store.get(150) == Plant(150, "other")
    store.add(Plant(1000, "Rose"))


@only(mariadb)
def test_add_is_retried_after_a_lock_timeout(store: SQLStore, engine: Engine) -> None:
    """An add that waits for a lock succeeds after the rollback of the other transaction."""
    store.add_all([])
    with engine.connect() as other, lock_waits(engine) as waiting:
        other.execute(text("INSERT INTO plants (id, name) VALUES (1, 'other')"))
        with started(lambda: store.add(ROSE_PLANT)) as (adding,):
            wait_until(lambda: waiting() >= 2)
            other.rollback()
    adding.result()
    assert list(store) == [ROSE_PLANT]


@only(mariadb)
def test_deadlock_is_retried(store: SQLStore, engine: Engine) -> None:
    """Two adds of one id that deadlock end as one success and one duplicate."""
    store.add_all([])
    with engine.connect() as other, lock_waits(engine) as waiting:
        other.execute(text("INSERT INTO plants (id, name) VALUES (1, 'other')"))
        with started(lambda: store.add(ROSE_PLANT), lambda: store.add(ROSE_PLANT)) as adding:
            wait_until(lambda: waiting() >= 2)
            other.rollback()
    assert sorted(repr(call.exception()) for call in adding) == ["None", "PlantExists(1)"]
    assert list(store) == [ROSE_PLANT]


@only(*SERVERS)
def test_closed_connection_is_replaced(store: SQLStore, engine: Engine) -> None:
    """A connection that the server closed is replaced before it is used; no operation fails."""
    store.add(ROSE_PLANT)
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        wait_until(lambda: end_sessions(connection) == 0)
    store.add(LILY)
    assert len(store) == 2


@only(postgresql)
def test_sql_ascii_database(place: Place, engine: Engine) -> None:
    """A PostgreSQL database with the encoding SQL_ASCII stores any text unchanged."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0"))
    store = open_store(place.url.replace("/postgres", "/ascii"))
    store.add(Plant(1, "Rosé 🌹"))
    assert list(store) == [Plant(1, "Rosé 🌹")]
    store.close()


@only(postgresql)
def test_role_without_insert_permission(place: Place, store: SQLStore, engine: Engine) -> None:
    """A role that may only read gets StoreUnavailable for add, and can read."""
    store.add(ROSE_PLANT)
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE reader LOGIN"))
        connection.execute(text("GRANT SELECT ON plants TO reader"))
    reader = open_store(place.url.replace("plants@", "reader@"))
    with pytest.raises(StoreUnavailable, match="permission denied"):
        reader.add(LILY)
    assert list(reader) == [ROSE_PLANT]
    reader.close()


@only(postgresql)
def test_read_only_database(place: Place, store: SQLStore, engine: Engine) -> None:
    """A read-only database is StoreUnavailable for add, and can be read."""
    store.add(ROSE_PLANT)
    with engine.connect() as connection:
        connection.execute(text("ALTER DATABASE postgres SET default_transaction_read_only = on"))
        connection.commit()
    reader = open_store(place.url)
    try:
        with pytest.raises(StoreUnavailable):
            reader.add(LILY)
        assert list(reader) == [ROSE_PLANT]
    finally:
        reader.close()
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("SET default_transaction_read_only = off"))
            connection.execute(text("ALTER DATABASE postgres RESET default_transaction_read_only"))


@only(*SERVERS)
def test_altered_table_fails_at_most_once(store: SQLStore, engine: Engine) -> None:
    """After ALTER TABLE under a running store, at most one operation fails."""
    # After some repetitions psycopg prepares a statement.
    for id in range(10):
        store.add(Plant(id, "Rose"))
        assert store.get(id) == Plant(id, "Rose")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE plants ALTER COLUMN tag SET DEFAULT 'x'"))
        kind = {"postgresql": "varchar", "mysql": "longtext"}[connection.dialect.name]
        change = {"postgresql": "ALTER COLUMN name TYPE", "mysql": "MODIFY name"}
        connection.execute(text(f"ALTER TABLE plants {change[connection.dialect.name]} {kind}"))
    with suppress(StoreUnavailable):
        store.get(1)
    assert store.get(1) == Plant(1, "Rose")
    store.add(Plant(10, "Lily"))


FORK = """
import os, sys
from sqlalchemy import create_engine
from plantstore import Plant, SQLStore, open_store
url, opened_by = sys.argv[1:]
store = open_store(url) if opened_by == "url" else SQLStore(create_engine(url))
store.add(Plant(-1, ""))
child = os.fork()
for id in range(200):
    store.add(Plant(id + 1000 * (child == 0), ""))
    assert store.get(id + 1000 * (child == 0)) is not None
if child:
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""


@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_fork_shares_no_connection(place: Place, store: SQLStore, opened_by: str) -> None:
    """After a fork, parent and child can use the store concurrently."""
    url = place.url if opened_by == "url" else place.site_url
    command = [sys.executable, "-c", FORK, url, opened_by]
    subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT)
    assert len(store) == 401
    # Coverage does not see the child process, so this process becomes the child.
    _executors._before_fork()  # noqa: SLF001
    _executors._after_fork()  # noqa: SLF001
    assert len(store) == 401


# Prints the sessions of a store on the server before and after the life of a child process.
SESSIONS_OF_PARENT = """
import gc, os, sys
from plantstore import Plant
from tests.support.sql import open_sql, own_connections
store = open_sql(sys.argv[1])
def session(writes):
    run = lambda connection: connection.exec_driver_sql(sys.argv[2]).scalar()
    return own_connections(store).call(store._statements, run, writes=writes)
before = session(True), session(False)
child = os.fork()
if child == 0:
    store.add(Plant(1, ""))
    gc.collect()
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
print(*before, session(True), session(False))
"""
SESSION = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}


@only(*SERVERS)
def test_child_process_ends_no_session_of_its_parent(place: Place, store: SQLStore) -> None:
    """A child process that uses the store, and ends, closes no connection of its parent."""
    query = SESSION[store._url.get_backend_name()]  # noqa: SLF001
    command = [sys.executable, "-W", "ignore", "-c", SESSIONS_OF_PARENT, place.url, query]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=LIMIT)
    first, second, *after = done.stdout.split()
    assert after == [first, second]
    assert [plant.id for plant in store] == [1]


@only(*SERVERS)
def test_default_timeout_of_sockets(place: Place) -> None:
    """A default timeout of sockets, which a site may set, is no timeout of the store."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(LIMIT)
    try:
        with open_sql(place.url) as store:
            store.add(ROSE_PLANT)
            # The server responds some time after the store has begun to wait for it.
            sleep = {"postgresql": "pg_sleep", "mysql": "SLEEP"}[store._url.get_backend_name()]  # noqa: SLF001
            assert ask(store, f"SELECT {sleep}(0.2)") is not None
            assert [*store] == [ROSE_PLANT]
    finally:
        socket.setdefaulttimeout(before)


@pytest.mark.server
@only(*SERVERS)
def test_unavailable_database_is_503_until_it_returns(place: Place) -> None:
    """While the database is stopped the response is 50301; afterwards it is 200."""
    check_outage(place, place.server.stopped())


@pytest.mark.server
@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_log_contains_no_password(scheme: str) -> None:
    """The log says that the database is unreachable, without the URL's password."""
    url = f"{scheme}://me:hunter2@127.0.0.1:1/plants"
    with Gunicorn("-w", "1", PLANTSTORE_TOKENS="s3cret", PLANTSTORE_STORE=url) as server:
        assert server.request(post(b'{"id":1,"name":"Rose"}')).error == 50301
        assert "refused" in server.wait_for(r"The store is unavailable: .*")[0]
        assert "hunter2" not in server.log


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "postgresql+asyncpg://me:hunter2@host/db",
        "mysql+nothing://me:hunter2@host/db",
        "postgresql+psycopg://me:hunter2@host:port/db",
        "postgresql://me:se@hunter2@host/db",
        "mysql://me:hunter2@host",
    ],
)
def test_invalid_database_url_is_refused(url: str) -> None:
    """An invalid database URL is refused, and the message contains no password."""
    with pytest.raises(ValueError, match=r"sqlite://") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
