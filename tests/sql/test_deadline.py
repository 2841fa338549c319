"""Connections that open after the deadline: they are used later, or closed."""

import gc
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url

from plantstore import Plant, SQLStore, StoreUnavailable
from plantstore.sql.engines._opening import Opening
from plantstore.stores.deadline import deadline
from tests.support.databases import SERVERS, Place, only
from tests.support.proxy import Proxy, proxy
from tests.support.serving import LIMIT, ROOT
from tests.support.sites import ROSE_PLANT
from tests.support.sql import add_all, open_sql, opening_threads, statements_of
from tests.support.waiting import wait_until

# A deadline that passes soon, in seconds.
SOON = 0.3


@pytest.fixture
def gate(place: Place) -> Iterator[Proxy]:
    """Run a proxy in front of the database."""
    with proxy(place) as gate:
        yield gate


@pytest.fixture
def store(gate: Proxy) -> Iterator[SQLStore]:
    """Return a store that has been used and has no connection."""
    store = open_sql(gate.url)
    store.add_all([])
    store.close()
    wait_until(lambda: not gate.clients)
    yield store
    gate.forwards.set()
    store.close()
    wait_until(lambda: not gate.clients)


def open_connections(store: SQLStore) -> None:
    """Open 16 connections, and wait for them only for a short time."""
    start = Barrier(16)

    def connect(_: int) -> None:
        start.wait(LIMIT)
        with deadline(SOON), suppress(StoreUnavailable), store._connections.connect():  # noqa: SLF001
            raise AssertionError("the connection opened in time")

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(connect, range(16)))


@only(*SERVERS)
def test_late_connections_are_used(
    store: SQLStore, gate: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that open after the deadline are used by later operations.

    While the server is silent, at most 16 connections and threads wait for it.
    """
    gate.forwards.clear()
    monkeypatch.setattr(store._connections, "timeout", SOON)  # noqa: SLF001
    before = gate.accepted
    for attempt in range(3):
        assert not any(add_all(store, 100 * attempt))
    assert len(opening_threads()) <= 16 + 1  # One more checks the table.
    monkeypatch.undo()
    gate.forwards.set()
    wait_until(lambda: not opening_threads())
    assert 1 <= gate.accepted - before <= 16
    assert all(add_all(store, 2000))
    assert gate.accepted - before <= 16


@only(*SERVERS)
@pytest.mark.parametrize("open_first", [True, False], ids=["open", "opening"])
def test_close_closes_late_connections(store: SQLStore, gate: Proxy, open_first: bool) -> None:
    """close() closes connections that opened after the deadline, or are still opening."""
    gate.forwards.clear()
    open_connections(store)
    wait_until(lambda: len(gate.clients) >= 2)
    if open_first:
        gate.forwards.set()
        wait_until(lambda: not opening_threads())
        assert gate.clients
    store.close()
    gate.forwards.set()
    wait_until(lambda: not gate.clients)
    store.add(ROSE_PLANT)


@only(*SERVERS)
def test_late_connections_of_a_stopped_server(place: Place, store: SQLStore, gate: Proxy) -> None:
    """A restart of the server costs no operation, also if connections opened after the deadline."""
    gate.forwards.clear()
    open_connections(store)
    gate.forwards.set()
    wait_until(lambda: not opening_threads())
    assert gate.clients
    with place.server.stopped():
        wait_until(lambda: not gate.clients)
    for id in range(20):
        store.add(Plant(id, "Rose"))


@only(*SERVERS)
def test_refused_attempt_is_not_kept(place: Place, store: SQLStore, gate: Proxy) -> None:
    """An attempt to connect that fails after the deadline does not fail a later operation."""
    gate.forwards.clear()
    open_connections(store)
    with place.server.stopped():
        gate.forwards.set()
        wait_until(lambda: not gate.clients and not opening_threads())
    for id in range(20):
        store.add(Plant(id, "Rose"))


@only(*SERVERS)
def test_timeout_does_not_repeat_the_check_of_the_table(
    store: SQLStore, gate: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an operation without a response, the next one does not check the table again.

    Otherwise, each timeout of one client of a slow server would delay all others.
    """
    store.ping()
    gate.forwards.clear()
    with monkeypatch.context() as patched:
        patched.setattr(store._connections, "timeout", SOON)  # noqa: SLF001
        with pytest.raises(StoreUnavailable):
            store.get(1)
    gate.forwards.set()
    with statements_of(store) as statements:
        store.get(1)
    assert statements == ["SELECT"]


@only(*SERVERS)
def test_failed_connections_are_closed(place: Place) -> None:
    """A connection whose opening failed is closed at once, not by the garbage collector."""
    with proxy(place) as gate:
        gate.forwards.clear()
        short = make_url(gate.url).update_query_dict({"connect_timeout": "2"})
        store = open_sql(short.render_as_string(hide_password=False))
        gc.disable()
        try:
            with pytest.raises(StoreUnavailable):
                store.add(ROSE_PLANT)
            wait_until(lambda: not gate.clients)
        finally:
            gc.enable()
        gate.forwards.set()
        store.add(ROSE_PLANT)
        store.close()


@only(*SERVERS)
def test_name_resolution_that_hangs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the name of the server cannot be resolved, operations fail in time; then they work."""
    resolve, resolved, asked = socket.getaddrinfo, Event(), Event()

    def hang(*arguments: Any, **options: Any) -> Any:
        asked.set()
        resolved.wait(LIMIT)
        return resolve(*arguments, **options)

    store = open_sql(place.url.replace("127.0.0.1", "localhost"))
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", hang)
        patched.setattr(store._connections, "timeout", SOON)  # noqa: SLF001
        assert not any(add_all(store, 100))
        assert asked.is_set()
        assert len(opening_threads()) <= 2
        resolved.set()
    store.add(ROSE_PLANT)
    assert list(store) == [ROSE_PLANT]
    store.close()


FORK = """
import os, sys
from plantstore import Plant, StoreUnavailable
from tests.support.databases import Place
from tests.support.proxy import proxy
from tests.support.sql import add_all, open_sql, opening_threads
from tests.support.waiting import wait_for_ended_threads, wait_until
url, moment = sys.argv[1:]
with proxy(Place(url)) as gate:
    store = open_sql(gate.url)
    if moment != "first use":
        store.add_all([])
        store.close()
    gate.forwards.clear()
    store._connections.timeout = 0.3
    assert not any(add_all(store, 100))
    store._connections.timeout = 30
    if moment == "open":
        gate.forwards.set()
        wait_until(lambda: not opening_threads())
    wait_for_ended_threads()
    child = os.fork()
    gate.forwards.set()
    for id in range(50):
        store.add(Plant(1000 + id + 1000 * (child == 0), ""))
    store.close()
    if child:
        assert os.waitpid(child, 0)[1] == 0
    os._exit(0)
"""


@only(*SERVERS)
@pytest.mark.parametrize("moment", ["open", "opening", "first use"])
def test_fork_with_late_connections(place: Place, moment: str) -> None:
    """After a fork, parent and child can use a store that had connections open after a deadline."""
    command = [sys.executable, "-W", "ignore", "-c", FORK, place.url, moment]
    subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT)
    store = open_sql(place.url)
    assert len(store) == 100
    store.close()


def test_child_process_keeps_late_connections_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child process does not close connections that its parent has opened too late."""
    engine = create_engine("sqlite://")
    closed: list[object] = []
    opening = Opening(engine, lambda: None, lambda _: 0)
    late: Future[Any] = Future()
    late.set_result(SimpleNamespace(close=lambda: closed.append(1)))
    opening._late.append(late)  # noqa: SLF001
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)
        engine.dispose()
    assert not closed
    assert not opening._late  # noqa: SLF001
