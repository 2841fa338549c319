"""Faults of a database under a running store: each is an error that a client can repeat."""

import errno
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Barrier, Event, Thread, Timer

import pytest
from sqlalchemy import Engine, event, exc, text

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.deadline import set_waited
from tests.support.databases import (
    SERVERS,
    Place,
    mariadb,
    only,
    postgresql,
    sqlite,
    sqlite_wal,
)
from tests.support.proxy import proxy
from tests.support.serving import LIMIT
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import (
    add_in_one_group,
    end_sessions,
    execute,
    open_sql,
    own_connections,
    raise_conflicts,
    started,
)
from tests.support.waiting import wait_until


@only(*SERVERS)
def test_server_that_ends_all_sessions(place: Place, engine: Engine) -> None:
    """While the server ends each session at once, an operation succeeds or is StoreUnavailable."""
    store, is_over = open_sql(place.url), Event()
    store.add(ROSE_PLANT)
    killer = engine.execution_options(isolation_level="AUTOCOMMIT")

    def end_all() -> None:
        while not is_over.is_set():
            with suppress(exc.DBAPIError), killer.connect() as connection:
                while not is_over.is_set():
                    end_sessions(connection)

    def use(client: int) -> list[int]:
        added = []
        for id in range(100 * client, 100 * client + 50):
            with suppress(StoreUnavailable):
                assert store.get(1) == ROSE_PLANT
            with suppress(StoreUnavailable):
                store.add(Plant(id, "Lily"))
                added.append(id)
        return added

    with ThreadPoolExecutor(5) as threads:
        ending = threads.submit(end_all)
        try:
            added = [id for ids in threads.map(use, range(1, 5)) for id in ids]
        finally:
            is_over.set()
        ending.result()
    wait_until(lambda: works(store))
    assert {*added} <= {plant.id for plant in store}
    store.close()


def works(store: SQLStore) -> bool:
    """Return whether a store finds the rose."""
    with suppress(StoreUnavailable):
        return store.get(1) == ROSE_PLANT
    return False


@only(mariadb)
def test_permission_that_is_granted_later(place: Place, engine: Engine) -> None:
    """When a missing permission is granted, all operations succeed: MariaDB caches it in a session.

    The connections that were refused are replaced.
    """
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE plants (id BIGINT PRIMARY KEY, name LONGTEXT CHARACTER SET utf8mb4"
            " NOT NULL, tag LONGTEXT CHARACTER SET utf8mb4) ENGINE=InnoDB",
            "CREATE USER gardener@'%%'",
            "GRANT SELECT ON plants.plants TO gardener@'%%'",
        ):
            connection.exec_driver_sql(statement)
    with open_sql(place.url.replace("root@", "gardener@")) as store:
        start = Barrier(8)

        def refused(id: int) -> bool:
            start.wait(LIMIT)
            with pytest.raises(StoreMisconfigured, match="denied"):
                store.add(Plant(id, ""))
            return True

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(refused, range(8)))
            with engine.begin() as connection:
                connection.exec_driver_sql("GRANT INSERT ON plants.plants TO gardener@'%%'")
            list(threads.map(lambda id: store.add(Plant(id, "")), range(100)))
        assert len(store) == 100
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP USER gardener@'%%'")


@pytest.mark.parametrize("mode", ["truncate", "wal"])
@pytest.mark.parametrize("fault", ["deleted", "replaced"])
def test_file_that_is_lost_under_a_store(tmp_path: Path, mode: str, fault: str) -> None:
    """A deleted or replaced SQLite file is noticed at the next add, which fails.

    Nothing is acknowledged that is not in the file that has this name.
    """
    file = tmp_path / "plants.db"
    with open_sql(f"sqlite:///{file}?journal_mode={mode}") as store:
        store.add(ROSE_PLANT)
        store.get(1)
        if fault == "replaced":
            with (
                closing(sqlite3.connect(file)) as old,
                closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
            ):
                old.backup(copy)
            (tmp_path / "copy.db").rename(file)
        else:
            file.unlink()
        with pytest.raises(StoreUnavailable, match=f"deleted or replaced while .*: {file}$"):
            store.add(LILY)
        with suppress(StoreUnavailable):
            store.get(1)
        with suppress(PlantExists):
            store.add(Plant(3, "Tulip"))
    with open_sql(f"sqlite:///{file}") as again:
        assert Plant(3, "Tulip") in list(again)


def test_file_that_is_lost_again(tmp_path: Path) -> None:
    """Each time that an SQLite file is deleted, the next add fails."""
    file = tmp_path / "plants.db"
    with open_sql(f"sqlite:///{file}") as store:
        for _ in range(3):
            store.add(LILY)
            file.unlink()
            with pytest.raises(StoreUnavailable, match="deleted or replaced"):
                store.add(ROSE_PLANT)


def test_read_of_a_file_that_was_deleted(tmp_path: Path) -> None:
    """If an SQLite file was deleted, the next read is an error, and does not find it empty."""
    file = tmp_path / "plants.db"
    with open_sql(f"sqlite:///{file}") as store:
        store.add(ROSE_PLANT)
        store.get(1)
        file.unlink()
        with pytest.raises(StoreUnavailable, match="deleted or replaced while it was in use"):
            store.get(1)


def test_file_that_is_lost_during_an_import(tmp_path: Path) -> None:
    """If an SQLite file is deleted during an import, the import fails."""
    file = tmp_path / "plants.db"

    def plants() -> Iterator[Plant]:
        yield ROSE_PLANT
        file.unlink()

    with open_sql(f"sqlite:///{file}") as store:
        store.add(LILY)
        with pytest.raises(StoreUnavailable, match="deleted or replaced while it was in use"):
            store.add_all(plants())


def test_one_winner(place: Place) -> None:
    """Of eight threads that add one id at the same time, one succeeds, also in groups."""
    with open_sql(place.url) as store:
        start = Barrier(8)

        def add(client: int) -> list[int]:
            added = []
            for id in range(50):
                start.wait(LIMIT)
                with suppress(PlantExists):
                    store.add(Plant(id, f"of client {client}"))
                    added.append(id)
            return added

        with ThreadPoolExecutor(8) as threads:
            added = [*threads.map(add, range(8))]
        assert sorted(id for ids in added for id in ids) == [*range(50)]
        for client, ids in enumerate(added):
            assert {store.get(id) for id in ids} == {Plant(id, f"of client {client}") for id in ids}


@only(*SERVERS)
def test_locked_id_delays_no_other_add(place: Place, engine: Engine) -> None:
    """While another client holds the lock on an id, adds of other ids in its group succeed."""
    with open_sql(place.url) as store:
        store.add_all([])
        with engine.connect() as other:
            other.execute(text("INSERT INTO plants (id, name) VALUES (1, 'other')"))
            with started(lambda: store.add(ROSE_PLANT)) as (waiting,):
                with ThreadPoolExecutor(8) as threads:
                    list(threads.map(lambda id: store.add(Plant(id, "")), range(100, 200)))
                assert not waiting.done()
                other.rollback()
        waiting.result()
        assert len(store) == 101


@only(*SERVERS)
def test_connections_have_keepalive(place: Place) -> None:
    """A connection to a server ends some seconds after its host is gone, by TCP keepalive."""
    with open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        lanes = own_connections(store)._writing._lanes  # noqa: SLF001
        # A second one has no connection if the first one was free again.
        other = next(filter(None, (lane.held._socket for lane in lanes)))  # noqa: SLF001
        assert other.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        for option, value in (
            (socket.TCP_KEEPIDLE, 4),
            (socket.TCP_KEEPINTVL, 2),
            (socket.TCP_KEEPCNT, 3),
            (socket.TCP_USER_TIMEOUT, 10_000),
        ):
            assert other.getsockopt(socket.IPPROTO_TCP, option) == value


@only(*SERVERS)
def test_connection_lost_during_an_import(place: Place, engine: Engine) -> None:
    """If the connection of an import is lost, nothing is stored, also of the plants after that."""

    def plants() -> Iterator[Plant]:
        yield from (Plant(id, "") for id in range(250))
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            wait_until(lambda: end_sessions(connection) == 0)
        yield from (Plant(id, "") for id in range(250, 500))

    with open_sql(place.url) as store:
        store.add_all([])
        with pytest.raises(StoreUnavailable):
            store.add_all(plants())
        assert len(store) == 0


@pytest.mark.parametrize("last", [len, list, lambda store: store.get(1)])
def test_store_that_is_not_closed_ends_its_threads(
    tmp_path: Path, last: Callable[[SQLStore], object]
) -> None:
    """A store that is no longer used closes its connections, although nobody has closed it."""
    file = tmp_path / "plants.db"
    store = open_sql(f"sqlite:///{file}")
    store.add(ROSE_PLANT)
    last(store)
    assert has_open(file)
    del store
    wait_until(lambda: not has_open(file))


def test_close_returns_when_the_connections_are_closed(tmp_path: Path) -> None:
    """When close() returns, no idle connection is open: a child process would inherit it."""
    file = tmp_path / "plants.db"
    store = open_sql(f"sqlite:///{file}")
    for id in range(50):
        store.add(Plant(id, ""))
        store.close()
        assert not has_open(file)


def has_open(file: Path) -> bool:
    """Return whether this process has a file open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(descriptor))
    return str(file) in found


@only(*SERVERS)
def test_one_caller_waits_for_a_silent_server(place: Place) -> None:
    """While a server does not respond, only one of its callers waits until its deadline.

    The others are refused after two seconds, so that other requests can use their threads.
    """
    with proxy(place) as gate, open_sql(gate.url) as store:
        store.add(ROSE_PLANT)
        gate.forwards.clear()
        with started(*[lambda id=id: store.add(Plant(id, "")) for id in range(100, 108)]) as adding:
            wait_until(lambda: sum(add.done() for add in adding) >= 7)
            assert sum(add.done() for add in adding) == 7
        assert {type(add.exception()) for add in adding} == {StoreUnavailable}
        gate.forwards.set()
        wait_until(lambda: works(store))


@only(*SERVERS)
def test_connection_that_is_not_complete(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a new connection fails in a later step, it is not used, and the next one is complete."""
    with open_sql(place.url) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", raise_too_many_files)
            with pytest.raises(StoreUnavailable, match="Too many open files"):
                store.add(ROSE_PLANT)
        for plant in (ROSE_PLANT, LILY):
            store.add(plant)
        assert list(store) == [ROSE_PLANT, LILY]


def raise_too_many_files(descriptor: int) -> int:
    """Fail as os.dup does when there are too many open files."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_request_that_has_waited_too_long(place: Place) -> None:
    """If a request has waited for a thread until its deadline, its operation is not begun."""
    with open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        set_waited(10)
        try:
            with pytest.raises(StoreUnavailable, match="waited too long"):
                store.add(LILY)
        finally:
            set_waited(0)
        assert list(store) == [ROSE_PLANT]


DROPPING = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN IF NEW.name = 'Rose' THEN RETURN NULL; END IF; RETURN NEW; END $$",
    "CREATE TRIGGER refuse BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION refuse()",
)


@only(postgresql)
def test_trigger_that_drops_a_plant(place: Place, store: SQLStore, engine: Engine) -> None:
    """A plant that a trigger drops is neither acknowledged nor a duplicate, also in a group."""
    execute(engine, *DROPPING)
    for add in (lambda: store.add(ROSE_PLANT), lambda: store.add_all([ROSE_PLANT, LILY])):
        with pytest.raises(StoreMisconfigured, match="drops plants"):
            add()
    adds = [lambda id=id: store.add(Plant(id, "Rose" if id % 2 else "Lily")) for id in range(20)]
    with started(*adds) as adding:
        pass
    assert [type(add.exception()) for add in adding] == [type(None), StoreMisconfigured] * 10
    assert [plant.id for plant in store] == [*range(0, 20, 2)]


@only(*SERVERS)
def test_refused_plant_in_a_group(place: Place, store: SQLStore, engine: Engine) -> None:
    """If the server refuses one plant of a group, the others are added."""
    execute(engine, "ALTER TABLE plants ADD CONSTRAINT no_weeds CHECK (name <> 'Weed')")
    names = ["Rose", "Weed", "Lily", "Fern"]
    errors = add_in_one_group(store, [Plant(id, name) for id, name in enumerate(names)])
    store.add(Plant(10, "Tulip"))
    assert [type(error) for error in errors] == [type(None), StoreMisconfigured, *[type(None)] * 2]
    assert [plant.name for plant in store] == ["Rose", "Lily", "Fern", "Tulip"]


@only(sqlite)
def test_trigger_that_drops_imported_plants(store: SQLStore, engine: Engine) -> None:
    """If a trigger drops a plant of an import into SQLite, no plant is stored."""
    drop = "CREATE TRIGGER drops BEFORE INSERT ON plants WHEN NEW.id = 2"
    execute(engine, f"{drop} BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(StoreMisconfigured, match="drops plants"):
        store.add_all([ROSE_PLANT, LILY])
    assert len(store) == 0


@only(sqlite, sqlite_wal)
@pytest.mark.parametrize("skip_existing", [True, False])
def test_add_during_an_import(store: SQLStore, skip_existing: bool) -> None:
    """A plant that a client adds during an import into SQLite exists at the end of the import."""

    def plants() -> Iterator[Plant]:
        yield from (Plant(id, "imported") for id in range(150))
        store.add(Plant(7, "of a client"))

    if skip_existing:
        assert store.add_all(plants(), skip_existing=True) == 149
        assert len(store) == 150
    else:
        with pytest.raises(PlantExists, match="7"):
            store.add_all(plants())
        assert len(store) == 1
    assert store.get(7) == Plant(7, "of a client")


@pytest.mark.parametrize("mode", ["truncate", "wal"])
def test_reads_until_the_commit_of_an_import(tmp_path: Path, mode: str) -> None:
    """Others can read an SQLite file until an import into it commits, also one of 10 MB."""
    file, counts = tmp_path / "plants.db", list[int]()

    def read(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO plants ") and " SELECT " in statement:
            with closing(sqlite3.connect(file, timeout=0)) as other:
                counts.extend(other.execute("SELECT COUNT(*) FROM plants").fetchone())

    with open_sql(f"sqlite:///{file}?journal_mode={mode}") as store:
        store.add(ROSE_PLANT)
        event.listen(own_connections(store).engine, "after_cursor_execute", read)
        assert store.add_all(Plant(id, "x" * 100_000) for id in range(100, 200)) == 100
    assert counts == [1]


@only(*SERVERS)
def test_conflicts_on_the_engine_of_a_site(store: SQLStore, engine: Engine) -> None:
    """On a site's engine, too, an add is repeated if the database asks for it."""
    raise_conflicts(engine, "40P01" if engine.dialect.name == "postgresql" else "1213", "n < 3")
    SQLStore(engine).add(ROSE_PLANT)
    assert list(store) == [ROSE_PLANT]


def test_unexpected_error_is_passed_on(place: Place) -> None:
    """An error that is not one of the database is not taken for one, and breaks no thread."""
    with open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        with pytest.raises(ZeroDivisionError):
            own_connections(store).call(store._statements, lambda _: 1 / 0)  # noqa: SLF001
        assert store.get(1) == ROSE_PLANT


@only(sqlite)
def test_no_other_thread(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no other thread can be started, operations wait for those that there are."""
    with open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        executor, reading, go_on = own_connections(store), Event(), Event()

        def hold(_: object) -> None:
            reading.set()
            assert go_on.wait(LIMIT)

        with started(lambda: executor.call(store._statements, hold)) as (holding,):  # noqa: SLF001
            assert reading.wait(LIMIT)
            real = Thread.start
            monkeypatch.setattr(
                Thread,
                "start",
                lambda it: fail_to_start() if it.name == "plantstore store" else real(it),
            )
            Timer(0.2, go_on.set).start()
            assert store.get(1) == ROSE_PLANT
        holding.result()


def fail_to_start() -> None:
    """Fail as when the operating system starts no more threads."""
    raise RuntimeError("can't start new thread")
