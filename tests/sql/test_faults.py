"""Faults of a database under a running store: each is an error that a client can repeat."""

import errno
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from socket import SO_KEEPALIVE, SOL_SOCKET
from threading import Event, Thread, Timer

import pytest
from sqlalchemy import Engine, text

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.clients import GIVES_UP
from tests.support.databases import MODES, SERVERS, Place, mariadb, only
from tests.support.proxy import Proxy
from tests.support.serving import LIMIT
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import (
    Listen,
    call_all,
    create_table,
    end_sessions,
    execute,
    open_sql,
    started,
)
from tests.support.waiting import wait_until


@only(*SERVERS)
def test_server_that_ends_all_sessions(store: SQLStore, engine: Engine) -> None:
    """While the server ends each session at once, an operation succeeds or is StoreUnavailable."""
    is_over, added = Event(), list[int]()
    store.add(ROSE_PLANT)

    def end_all() -> None:
        killer = engine.execution_options(isolation_level="AUTOCOMMIT")
        with killer.connect() as connection:
            while not is_over.is_set():
                end_sessions(connection)

    def use(first: int) -> None:
        for id in range(first, first + 20):
            with suppress(StoreUnavailable):
                assert store.get(1) == ROSE_PLANT
            with suppress(StoreUnavailable):
                store.add(Plant(id, "Lily"))
                added.append(id)

    with started(end_all) as (ending,):
        errors = call_all(*[partial(use, first) for first in (100, 200, 300, 400)])
        is_over.set()
    assert (ending.exception(), errors) == (None, [None] * 4)
    wait_until(lambda: call_all(lambda: store.get(1)) == [None])
    assert {*added} <= {plant.id for plant in store}


@only(mariadb)
@pytest.mark.parametrize("scope", ["plants.plants", "plants.*", "*.*"])
def test_permission_that_is_granted_later(
    place: Place, store: SQLStore, engine: Engine, scope: str
) -> None:
    """When a missing permission is granted, all adds succeed: MariaDB caches it in a session."""
    execute(engine, "CREATE USER gardener", f"GRANT SELECT, DELETE ON {scope} TO gardener")
    with open_sql(place.url.replace("root@", "gardener@")) as used:
        adds = [lambda id=id: used.add(Plant(id, "")) for id in range(30)]
        assert {type(error) for error in call_all(*adds[:8])} == {StoreMisconfigured}
        with suppress(KeyError):
            used.remove(-1)  # A connection that has not been refused anything stays open.
        execute(engine, f"GRANT INSERT ON {scope} TO gardener")
        used.add(Plant(-1, ""))
        assert call_all(*adds) == [None] * 30
    execute(engine, "DROP USER gardener")


def lose(file: Path, fault: str) -> None:
    """Delete an SQLite file, or replace it by a copy."""
    copy = file.with_name("copy.db")
    with closing(sqlite3.connect(file)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    file.unlink() if fault == "deleted" else copy.rename(file)


@pytest.mark.parametrize("mode", [*MODES, "engine of a site"])
@pytest.mark.parametrize("fault", ["deleted", "replaced"])
def test_file_that_is_lost_under_a_store(
    url: str, tmp_path: Path, file_engine: Engine, mode: str, fault: str
) -> None:
    """A plant is acknowledged only if it is in the file of this name: a lost file is an error."""
    file, is_own = tmp_path / "plants.db", mode in MODES
    refused = pytest.raises(StoreUnavailable, match=f"deleted or replaced while .*: {file}$")
    with open_sql(f"{url}?journal_mode={mode}") if is_own else SQLStore(file_engine) as store:
        for use in (lambda: store.add(LILY), lambda: store.add_some([LILY])):
            with suppress(PlantExists):
                store.add(ROSE_PLANT)
            lose(file, fault)
            with refused:
                use()
        store.add(Plant(3, "Tulip"))
        with open_sql(url) as other:
            assert Plant(3, "Tulip") in list(other)
            lose(file, fault)
            for used in (other, store):  # Only the other one has a connection that has read.
                with refused:
                    used.get(1)


@only(*SERVERS)
def test_id_that_stays_locked(store: SQLStore, engine: Engine) -> None:
    """While another client holds the lock on an id, its add fails in time, and others succeed."""
    with engine.connect() as other:
        other.execute(text("INSERT INTO plants (id, name) VALUES (1, 'other')"))
        with started(lambda: store.add(ROSE_PLANT)) as (waiting,):
            adds = [lambda id=id: store.add(Plant(id, "")) for id in range(100, 130)]
            assert call_all(*adds) == [None] * 30
            assert not waiting.done()
            try:
                with pytest.raises(StoreUnavailable, match=r"lock timeout|Lock wait timeout"):
                    waiting.result(GIVES_UP)
            finally:
                other.rollback()


KEEPALIVE = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}


def keepalive_to(port: int) -> Iterator[dict[str, int]]:
    """Yield the options of each socket of this process that is connected to a port."""
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as end:
            if end.getpeername()[1:2] == (port,) and end.getsockopt(SOL_SOCKET, SO_KEEPALIVE):
                values = [getattr(socket, name) for name in KEEPALIVE]
                options = [end.getsockopt(socket.IPPROTO_TCP, value) for value in values]
                yield dict(zip(KEEPALIVE, options, strict=True))


@only(*SERVERS)
def test_connections_have_keepalive(gate: Proxy) -> None:
    """A connection to a server ends some seconds after its host is gone, by TCP keepalive."""
    with open_sql(gate.url) as store:
        store.add(ROSE_PLANT)
        assert KEEPALIVE in keepalive_to(gate.port)


@pytest.mark.parametrize("last", [len, list, lambda store: store.get(1)])
def test_store_that_is_not_closed_ends_its_threads(
    url: str, tmp_path: Path, last: Callable[[SQLStore], object]
) -> None:
    """A store that is no longer used closes its connections, although nobody has closed it."""
    store = open_sql(url)
    store.add(ROSE_PLANT)
    last(store)
    assert has_open(tmp_path / "plants.db")
    del store
    wait_until(lambda: not has_open(tmp_path / "plants.db"))


def test_close_returns_when_the_connections_are_closed(url: str, tmp_path: Path) -> None:
    """When close() returns, no idle connection is open: a child process would inherit it."""
    store = open_sql(url)
    for id in range(50):
        store.add(Plant(id, ""))
        store.close()
        assert not has_open(tmp_path / "plants.db")


def has_open(file: Path) -> bool:
    """Return whether this process has a file open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(descriptor))
    return str(file) in found


@only(*SERVERS)
def test_connection_that_is_not_complete(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a new connection fails in a later step, it is not used, and the next one is complete."""

    def fail(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with open_sql(place.url) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", fail)
            with pytest.raises(StoreUnavailable, match="Too many open files"):
                store.add(ROSE_PLANT)
        for plant in (ROSE_PLANT, LILY):
            store.add(plant)
        assert list(store) == [ROSE_PLANT, LILY]


def test_no_thread(url: str, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be started, operations wait for those that there are, or are refused."""
    reading, go_on, start = Event(), Event(), Thread.start

    def hold(*_: object) -> None:
        if not reading.is_set():
            reading.set()
            assert go_on.wait(LIMIT)

    def fail(thread: Thread) -> None:
        if thread.name == "plantstore store":
            raise RuntimeError("can't start new thread")
        start(thread)

    with open_sql(url) as store:
        create_table(store)
        listen("before_cursor_execute", hold)
        with started(lambda: store.get(2)) as (holding,):
            assert reading.wait(LIMIT)
            monkeypatch.setattr(Thread, "start", fail)
            with pytest.raises(StoreUnavailable, match="cannot start a thread"):
                store.add(ROSE_PLANT)
            Timer(0.2, go_on.set).start()
            assert store.get(1) is None
        holding.result()
