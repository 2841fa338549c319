"""SQLStore on every engine: an SQLite file, and real database servers; and imports."""

import operator
import re
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine, text

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.batches import batches
from tests.support.commands import invoke
from tests.support.databases import SERVERS, Place, mariadb, only, postgresql
from tests.support.serving import LIMIT, ROOT, Gunicorn, post
from tests.support.sites import LILY, ROSE_PLANT, new_rose
from tests.support.sql import (
    COLUMNS,
    Listen,
    add_in_one_group,
    ask,
    create_table,
    end_sessions,
    environment,
    execute,
    lock_waits,
    make_store,
    open_sql,
    raise_conflicts,
    started,
    statements,
)
from tests.support.waiting import wait_until


def test_iteration_reads_no_plants_before_its_start(store: SQLStore, listen: Listen) -> None:
    """An iteration after an id reads only plants after it, and not many more than are used."""
    store.add_some(Plant(id, "") for id in range(1000))
    read: list[Any] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        is_dict = isinstance(parameters, dict)
        read.append((statement, [*parameters.values()] if is_dict else parameters))

    listen("before_cursor_execute", note)
    first = [plant.id for plant, _ in zip(store.iterate(899), range(101), strict=False)]
    assert first == [*range(900, 1000)]
    assert len(read) == 2
    for (statement, parameters), after in zip(read, (899, 911), strict=True):
        assert re.search(r"WHERE \S*id > .* ORDER BY \S*id\s+LIMIT ", statement, re.DOTALL)
        assert after in parameters


@only(postgresql)
def test_table_created_in_a_concurrent_transaction(place: Place, engine: Engine) -> None:
    """A store waits for a concurrent transaction that creates the table, and then uses it."""
    with open_sql(place.url) as store, engine.connect() as other, lock_waits(engine) as waiting:
        other.execute(text(f"CREATE TABLE plants ({COLUMNS})"))
        with started(lambda: store.add(ROSE_PLANT)) as (adding,):
            wait_until(lambda: waiting() >= 1)
            other.commit()
        adding.result()
        assert list(store) == [ROSE_PLANT]


def large_plants(short: int) -> Iterator[Plant]:
    """Yield so many plants with short names, then plants with a long tag, or a long name."""
    # Python uses four bytes for each character of a text with an emoji.
    long = ("🌵" if short else "x") + "x" * 1_000_000
    for id in range(60):
        yield Plant(id, "") if id < short else Plant(id, "", long) if id < 40 else Plant(id, long)


def test_memory_use_of_large_plants(place: Place, store: SQLStore) -> None:
    """An import and an iteration hold only a few large plants in memory at a time."""
    short = 0 if place.url.startswith("mysql") else 12  # Its driver reads all rows of a page.
    assert peak(lambda: [*map(store.add_some, batches(large_plants(short)))]) < 30_000_000
    assert peak(lambda: [None for _ in store]) < 30_000_000
    assert all(map(operator.eq, store, large_plants(short)))
    assert len(store) == 60


def peak(function: Callable[[], Any]) -> int:
    """Return the largest number of bytes in use during a call."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@only(*SERVERS)
def test_concurrent_duplicate_during_add_some(store: SQLStore, engine: Engine) -> None:
    """A plant that another transaction adds during add_some exists, and the others are added."""
    many = [Plant(id, "own") for id in range(300)]
    with engine.connect() as other, lock_waits(engine) as waiting:
        other.execute(text("INSERT INTO plants (id, name) VALUES (150, 'other')"))
        with started(lambda: store.add_some(many)) as (adding,):
            wait_until(lambda: waiting() >= 1)
            other.commit()
    assert adding.result() == {150}
    assert len(store) == 300
    assert store.get(150) == Plant(150, "other")
    store.add(Plant(1000, "Rose"))


@only(*SERVERS)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_closed_connection(place: Place, engine: Engine, opened_by: str) -> None:
    """A connection that the server closed is replaced; on a site's engine, one operation fails."""
    with make_store(place.url, opened_by) as store:
        store.add(ROSE_PLANT)
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            wait_until(lambda: end_sessions(connection) == 0)
        if opened_by != "url":
            with pytest.raises(StoreUnavailable):
                store.add(LILY)
        store.add(LILY)
        assert list(store) == [ROSE_PLANT, LILY]


FORK = """
import gc, os, sys
from sqlalchemy import create_engine
from plantstore import Plant, SQLStore, open_store
url, opened_by = sys.argv[1:]
store = open_store(url) if opened_by == "url" else SQLStore(create_engine(url))
store.add(Plant(-1, ""))
store.get(0)
child = os.fork()
for id in range(100):
    store.add(Plant(id + 1000 * (child == 0), ""))
    assert store.get(id + 1000 * (child == 0)) is not None
    if id > 90:
        store.close()  # While the other process may use its own connections.
if child == 0:
    del store
    gc.collect()
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
store.add(Plant(-2, ""))
"""


def run_python(source: str, *arguments: str) -> str:
    """Run Python in a process of its own; return its output."""
    command = [sys.executable, "-W", "ignore", "-c", source, *arguments]
    output = subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT, stdout=subprocess.PIPE)
    return output.stdout.decode()


@pytest.mark.posix
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_fork_between_two_calls(place: Place, store: SQLStore, opened_by: str) -> None:
    """A process that forks while no call is running may use the store in both, and close it."""
    run_python(FORK, place.url if opened_by == "url" else place.site_url, opened_by)
    assert len(store) == 202


FORK_DURING_A_CALL = """
import os, sys
from itertools import count
from threading import Event, Thread
from sqlalchemy import Engine, event
from plantstore import Plant, StoreMisconfigured, open_store
from tests.support.waiting import wait_until
store, reading, go_on, added = open_store(sys.argv[1]), Event(), Event(), []

def add():
    for id in count(1000):
        store.add(Plant(id, ""))
        added.append(id)
        if go_on.is_set():
            break

def hold(_, __, statement, *___):
    if "count(" in statement:
        reading.set()
        go_on.wait()

def use_in_child(used, id):
    child = os.fork()
    if child == 0:
        try:
            used().add(Plant(id, "of a child"))
        except StoreMisconfigured as error:
            os._exit(3 if "was forked" in str(error) else 4)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

store.add(Plant(-1, ""))
event.listen(Engine, "before_cursor_execute", hold)
# A fork in the midst of an SQLite statement: the child's coverage, a file too, could wait for ever.
is_file = sys.argv[1].startswith("sqlite")
threads = [Thread(target=add)] * (not is_file) + [Thread(target=len, args=[store])]
for thread in threads:
    thread.start()
wait_until(lambda: (is_file or len(added) > 10) and reading.is_set())
outcomes = [use_in_child(lambda: store, 1), use_in_child(lambda: open_store(sys.argv[1]), 2)]
go_on.set()
for thread in threads:
    thread.join()
event.remove(Engine, "before_cursor_execute", hold)
print(*outcomes, use_in_child(lambda: store, 3))
assert {*added} <= {plant.id for plant in store}
"""


@pytest.mark.posix
def test_fork_during_a_call(place: Place, store: SQLStore, engine: Engine) -> None:
    """A child of a process that uses a server meanwhile begins anew; with a file, it is refused.

    No plant is lost, and after the call, the parent can fork again.
    """
    is_file = engine.dialect.name == "sqlite"
    outcomes = run_python(FORK_DURING_A_CALL, place.url)
    assert outcomes.split() == (["3", "3", "0"] if is_file else ["0"] * 3)
    children = [plant.id for plant in store if plant.name]
    assert children == ([3] if is_file else [1, 2, 3])


@only(*SERVERS)
def test_default_timeout_of_sockets(store: SQLStore, engine: Engine) -> None:
    """A default timeout of sockets, which a site may set, is no timeout of the store."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(LIMIT)
    try:
        store.add(ROSE_PLANT)
        # The server responds some time after the store has begun to wait for it.
        sleep = {"postgresql": "pg_sleep", "mysql": "SLEEP"}[engine.dialect.name]
        assert ask(f"SELECT {sleep}(0.2)", store.ping) is not None
    finally:
        socket.setdefaulttimeout(before)


@pytest.mark.server
@only(*SERVERS)
def test_unavailable_database_is_503_until_it_returns(place: Place) -> None:
    """While the database is stopped the response is 50301; afterwards it is 200."""
    with Gunicorn("-w", "1", **environment(place)) as server:
        assert server.request(post(new_rose())).status == 200
        with place.server.stopped():
            # The first request uses an open connection to the database, the second a new one.
            for _ in range(2):
                response = server.request(post(new_rose()))
                assert (response.error, response.headers["retry-after"]) == (50301, "5")
        assert server.request(post(new_rose())).status == 200
        assert "50001" not in server.log


@only(*SERVERS)
def test_batch_that_is_rolled_back(store: SQLStore, engine: Engine) -> None:
    """If the server ends a batch because of another client, it is executed again."""
    raise_conflicts(engine, "40P01" if engine.dialect.name == "postgresql" else "1213", "n = 250")
    plants = [Plant(id, "Rose") for id in range(600)]
    assert store.add_some(plants) == set()
    assert list(store) == plants


def test_batch_with_a_refused_plant(store: SQLStore, engine: Engine) -> None:
    """If the database refuses a plant, its error says why, and those before it are added."""
    name = "name(9)" if engine.dialect.name == "mysql" else "name"
    execute(engine, f"CREATE UNIQUE INDEX unique_name ON plants ({name})")
    plants = [Plant(id, f"{id % 7}") for id in range(20)]
    with pytest.raises(StoreMisconfigured, match="name"):
        store.add_some(plants)
    assert list(store) == plants[:7]


@pytest.mark.parametrize("step", [1, 2], ids=["all exist", "half of them exist"])
def test_batch_of_plants_that_exist(store: SQLStore, step: int) -> None:
    """To add plants that exist, and to read them, takes a few statements for all of them."""
    plants = [Plant(id, f"plant {id}") for id in range(200)]
    store.add_some(plants[::step])
    with statements() as executed:
        existing = store.add_some(plants[::-1])
        assert existing == {plant.id for plant in plants[::step]}
        assert store.get_some([*existing, -1, 2**63]) == {it.id: it for it in plants[::step]}
    assert len(executed) <= 8
    assert list(store) == plants


@pytest.mark.usefixtures("patient")
def test_clients_beside_an_import(place: Place, store: SQLStore) -> None:
    """During an import, each create of others succeeds, also one of an id of the import."""
    is_over, added = Event(), list[Plant]()
    lines = b"".join(b'{"id":%d,"name":"imported"}\n' % id for id in range(20_000))

    def create(thread: int) -> None:
        for number in count(thread, 4):
            if is_over.wait(0.01):  # Without a pause, the import would not get the lock of a file.
                break
            for id in (-1 - number, 20_000 - 37 * (number % 500)):
                with suppress(PlantExists):
                    other.add(Plant(id, "of a client"))
                    added.append(Plant(id, "of a client"))

    with open_sql(place.url) as other, started(*[partial(create, i) for i in range(4)]) as creating:
        wait_until(lambda: bool(added))
        result = invoke("import", "-", "--store", place.url, input=lines)
        is_over.set()
    assert [call.exception() for call in creating] == [None] * 4
    assert {plant for plant in store if plant.name == "of a client"} == {*added}
    different = sum(0 <= plant.id < 20_000 for plant in added)
    assert result.exit_code == (different > 0)
    last = f"{20_000 - different} added, 0 already there, {different} different"
    assert result.stdout.splitlines()[-1] == last


@only(mariadb)
def test_plants_that_are_large_for_the_server(place: Place, engine: Engine) -> None:
    """A plant that is too large for the server is refused. Groups and batches are never too large.

    A quote and an emoji have the most bytes in a statement.
    """
    plants = [Plant(id, "🌵'" * 7_500) for id in range(40)]
    execute(engine, f"SET GLOBAL max_allowed_packet = {2**20}")
    with open_sql(place.url) as store:
        create_table(store)
        with statements() as executed:
            assert add_in_one_group(store, plants[:20]) == [None] * 20
            assert store.add_some([*plants[20:], Plant(99, "x" * 900_000)]) == set()
        assert executed.count("INSERT") == 11  # Four plants in each, and the last one.
        # The server may close the connection before the client has read the reason.
        with pytest.raises(StoreUnavailable, match="max_allowed_packet|gone away|Lost connection"):
            store.add(Plant(100, "x" * 2**20))
        store.add(Plant(100, "Rose"))
        assert len(store) == 42
    execute(engine, "SET GLOBAL max_allowed_packet = DEFAULT")
