"""Group commit: adds of several threads in one transaction of an SQLite file."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.serving import LIMIT, ROOT
from tests.support.sql import open_sql
from tests.support.waiting import wait_until

# The plant of the add that commits while the group waits.
FIRST = Plant(0, "first")
GROUP = [Plant(id, f"plant {id}") for id in range(1, 6)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a new SQLite file."""
    return tmp_path / "plants.db"


@pytest.fixture(params=["truncate", "wal"])
def store(request: pytest.FixtureRequest, file: Path) -> Iterator[SQLStore]:
    """Return an empty store in each journal mode."""
    store = open_sql(f"sqlite:///{file}?journal_mode={request.param}")
    store.add_all([])
    yield store
    store.close()


def add_together(store: SQLStore, file: Path, plants: list[Plant]) -> list[BaseException | None]:
    """Add plants in one group, in this order; return the exception of each add, or None."""
    return call_together(store, file, [partial(store.add, plant) for plant in plants])


def call_together(
    store: SQLStore, file: Path, adds: list[Callable[[], None]]
) -> list[BaseException | None]:
    """Call functions that add plants in one group; return the exception of each, or None."""
    waiting: list[Future[None]] = []
    # The first add waits for this lock, and the others for the first.
    with ThreadPoolExecutor(len(adds) + 1) as threads, locked(file):
        for add in [lambda: store.add(FIRST), *adds]:
            waiting.append(threads.submit(add))
            wait_until(lambda: waits(store, len(waiting)) or waiting[-1].done())
    return [add.exception(LIMIT) for add in waiting[1:]]


def waits(store: SQLStore, adds: int) -> bool:
    """Return whether so many adds are in the queue of the store."""
    return len(store._connections._group._queue) == adds  # noqa: SLF001


class locked:  # noqa: N801
    """Locks an SQLite file against writers for the duration of a block."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *exc: object) -> None:
        self._connection.close()


def execute(file: Path, statement: str) -> None:
    """Execute a statement by another connection."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute(statement)


def listen(store: SQLStore, name: str, listener: Callable[..., Any]) -> None:
    """Listen to an event of the store's engine, also on the connections that it opens later."""
    store.close()
    event.listen(store._connections.engine, name, listener)  # noqa: SLF001


def check_still_works(store: SQLStore, file: Path) -> None:
    """Check that the store can add plants, and that no connection still locks the file."""
    store.add(Plant(1000, "afterwards"))
    execute(file, "DELETE FROM plants WHERE id = 1000")


def test_waiting_adds_are_one_transaction(store: SQLStore, file: Path) -> None:
    """Adds that wait while another add commits are committed by one transaction."""
    statements: list[str] = []
    listen(store, "connect", lambda it, _: it.set_trace_callback(statements.append))
    assert add_together(store, file, GROUP) == [None] * 5
    assert list(store) == [FIRST, *GROUP]
    start, end = statements.index("BEGIN IMMEDIATE"), statements.index("COMMIT")
    assert [it.count("(") for it in statements[start:end] if it.startswith("INSERT")] == [6]
    assert statements.count("COMMIT") == 1


def test_duplicate_in_a_group_refuses_only_itself(store: SQLStore, file: Path) -> None:
    """Of adds that are committed together, only a duplicate is refused."""
    again = [GROUP[0]._replace(name="again"), FIRST]
    outcomes = add_together(store, file, [GROUP[0], *again, *GROUP[1:]])
    assert [repr(it) for it in outcomes] == [
        "None",
        "PlantExists(1)",
        "PlantExists(0)",
        *["None"] * 4,
    ]
    assert list(store) == [FIRST, *GROUP]


REFUSALS = {
    "unique": "CREATE UNIQUE INDEX names ON plants (name)",
    **{
        action: "CREATE TRIGGER refuse BEFORE INSERT ON plants WHEN NEW.name = 'first'"
        f" AND NEW.id > 0 BEGIN SELECT RAISE({action}); END"
        for action in ("ROLLBACK, 'no'", "ABORT, 'no'", "FAIL, 'no'", "IGNORE")
    },
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_refused_plant_in_a_group_refuses_only_itself(
    store: SQLStore, file: Path, refusal: str
) -> None:
    """Of adds that are committed together, only the plant that a site refuses is refused."""
    execute(file, refusal)
    refused = GROUP[2]._replace(name="first")
    outcomes = add_together(store, file, [*GROUP[:2], refused, *GROUP[3:]])
    assert [type(it) for it in outcomes if it is not None] == [StoreMisconfigured]
    assert isinstance(outcomes[2], StoreMisconfigured)
    assert list(store) == [FIRST, *GROUP[:2], *GROUP[3:]]


def test_full_disk_in_a_group(store: SQLStore, file: Path) -> None:
    """A full disk refuses the plants of a group that do not fit; all the others are stored."""
    listen(store, "connect", lambda it, _: it.execute("PRAGMA max_page_count = 20").close())
    large = GROUP[2]._replace(name="x" * 1_000_000)
    outcomes = add_together(store, file, [*GROUP[:2], large, *GROUP[3:]])
    assert isinstance(outcomes[2], StoreUnavailable)
    assert all(it is None or isinstance(it, StoreUnavailable) for it in outcomes)
    acknowledged = [plant for plant, it in zip(GROUP, outcomes, strict=True) if it is None]
    assert acknowledged
    assert list(store) == [FIRST, *acknowledged]
    check_still_works(store, file)


class Interrupted(sqlite3.Connection):
    """A connection whose thread is interrupted once, before or after a statement."""

    # When the thread is interrupted: "before" or "after", and the statement.
    when = ("", "")
    # The exception of the interrupt.
    error: type[BaseException] = KeyboardInterrupt

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        self._interrupt("before", statement)
        cursor = super().execute(statement, *arguments)
        self._interrupt("after", statement)
        return cursor

    def _interrupt(self, *now: str) -> None:
        when, statement = Interrupted.when
        if when == now[0] and now[1].startswith(statement):
            Interrupted.when = ("", "")
            raise Interrupted.error


def listen_to_interrupts(store: SQLStore) -> None:
    """Let the store use connections whose thread may be interrupted."""
    listen(
        store,
        "do_connect",
        lambda _dialect, _record, arguments, options: sqlite3.connect(
            *arguments, factory=Interrupted, **options
        ),
    )
    with store._connections.connect(), store._connections.connect():  # noqa: SLF001
        pass  # The next add uses another connection than the group.


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "INSERT", "COMMIT"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_interrupted_transaction_of_a_group(
    store: SQLStore, file: Path, when: str, statement: str
) -> None:
    """If the thread that commits a group is interrupted, every other add succeeds."""
    listen_to_interrupts(store)
    Interrupted.when = (when, statement)
    check_interrupted(store, file, add_together(store, file, GROUP))


def test_unknown_outcome_of_a_commit(
    store: SQLStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a commit fails in a way that may have stored the plants, no add of the group succeeds."""
    listen_to_interrupts(store)
    monkeypatch.setattr(Interrupted, "error", sqlite3.OperationalError)
    Interrupted.when = ("after", "COMMIT")
    outcomes = add_together(store, file, GROUP)
    assert {type(it) for it in outcomes} == {StoreUnavailable}
    check_still_works(store, file)


def test_interrupt_after_a_commit(
    store: SQLStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a thread is interrupted before it lets another one lead, the others still succeed."""
    group = store._connections._group  # noqa: SLF001
    leave, interrupts = group._leave, iter([KeyboardInterrupt()])  # noqa: SLF001

    def interrupted(add: Any) -> None:
        for interrupt in interrupts:
            raise interrupt
        leave(add)

    monkeypatch.setattr(group, "_leave", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.add(Plant(7, ""))
    assert add_together(store, file, GROUP) == [None] * 5


def check_interrupted(store: SQLStore, file: Path, outcomes: list[BaseException | None]) -> None:
    """Check that only the first thread of the group was interrupted."""
    assert isinstance(outcomes[0], KeyboardInterrupt)
    assert outcomes[1:] == [None] * 4
    assert set(store) - {GROUP[0]} == {FIRST, *GROUP[1:]}
    check_still_works(store, file)


def test_deadline_in_the_queue(store: SQLStore, file: Path) -> None:
    """An add whose deadline passes while it waits for other adds is not executed later."""

    def add_late() -> None:
        with deadline(0.1):
            store.add(GROUP[1])

    with ThreadPoolExecutor(2) as threads, locked(file):
        first = threads.submit(store.add, GROUP[0])
        wait_until(lambda: waits(store, 1))
        late = threads.submit(add_late)
        with pytest.raises(StoreUnavailable, match="took too long"):
            late.result(LIMIT)
        assert waits(store, 1)
    first.result(LIMIT)
    assert list(store) == [GROUP[0]]


def test_deadline_during_a_commit_is_no_duplicate(store: SQLStore, file: Path) -> None:
    """An add whose deadline passes during a commit is a duplicate only if the plant is stored.

    A reader of the file delays the commit of a truncated journal.
    """
    reader = sqlite3.connect(file, isolation_level=None, check_same_thread=False)

    def read(connection: Any, *_: Any) -> None:
        if connection.connection.dbapi_connection.in_transaction and not reader.in_transaction:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM plants").close()

    def add(seconds: float) -> None:
        with deadline(seconds):
            store.add(GROUP[0])

    listen(store, "before_cursor_execute", read)
    with closing(reader):
        _, outcome = call_together(store, file, [partial(add, 2), partial(add, 1)])
    assert isinstance(outcome, PlantExists if GROUP[0] in store else StoreUnavailable)
    check_still_works(store, file)


FORK = """
import os, sys
from threading import Thread
from time import sleep
from sqlalchemy import event
from plantstore import Plant, open_store
store = open_store(sys.argv[1])
list(store)  # The first use is over.
connections = store._connections
waits = forked = False
def wait(*_):
    global waits
    waits = True
    while not forked:
        sleep(0.01)
event.listen(connections.engine, "before_cursor_execute", wait)
def add(id):
    store.add(Plant(id, ""))
threads = [Thread(target=add, args=[id]) for id in range(5)]
for thread in threads:
    thread.start()
while not waits or len(connections._group._queue) < 5:
    sleep(0.01)
child = os.fork()
forked = True
if child == 0:
    add(100)
    os._exit(0)
for thread in threads:
    thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_fork_while_adds_wait(store: SQLStore, file: Path) -> None:
    """A fork while adds wait for each other costs none of them, and the child can add plants.

    The first add has not begun its transaction: SQLite does not support a fork during one.
    """
    command = [sys.executable, "-W", "ignore", "-c", FORK, f"sqlite:///{file}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT)
    assert [plant.id for plant in store] == [*range(5), 100]
