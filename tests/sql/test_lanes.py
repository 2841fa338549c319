"""The threads of a store: adds that wait are committed together."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from contextvars import Context, ContextVar
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from plantstore import Plant, SQLStore, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import MODES
from tests.support.serving import LIMIT, ROOT
from tests.support.sql import (
    Limit,
    Listen,
    add_in_one_group,
    call_all,
    call_in_one_group,
    connecting_slowly,
    create_table,
    open_sql,
    started,
)
from tests.support.waiting import wait_until

GROUP = [Plant(id, f"plant {id}") for id in range(1, 6)]


@pytest.fixture(params=MODES)
def store(request: pytest.FixtureRequest, url: str) -> Iterator[SQLStore]:
    """Return an empty store in each journal mode."""
    # On a busy machine, it may take some time to start all calls.
    with open_sql(f"{url}?journal_mode={request.param}&timeout={LIMIT}") as store:
        create_table(store)
        yield store


@pytest.fixture
def changes(listen: Listen) -> list[str]:
    """Return a list to which statements are added that change something, on new connections."""
    changes = list[str]()

    def note(statement: str) -> None:
        if statement.startswith("INSERT"):
            changes.append(f"INSERT {statement.count('(') - 1}")
        elif not statement.startswith(("PRAGMA", "SELECT")):
            changes.append(statement.split()[0])

    listen("connect", lambda driver, _: driver.set_trace_callback(note))
    return changes


LARGE = [plant._replace(name="x" * 25_000) for plant in GROUP]
MANY = [Plant(id, "") for id in range(102)]


@pytest.mark.parametrize(
    ("plants", "sizes"),
    [(GROUP, [5]), (MANY, [100, 2]), (LARGE, [2, 2, 1])],
    ids=["group", "many", "large"],
)
def test_waiting_adds_are_one_transaction(
    store: SQLStore, changes: list[str], listen: Listen, plants: list[Plant], sizes: list[int]
) -> None:
    """Adds that wait are committed together, in the order of their ids, within limits."""
    parameters: list[Any] = []
    listen("before_cursor_execute", lambda *arguments: parameters.append(arguments[3]))
    assert add_in_one_group(store, plants[::-1]) == [None] * len(plants)
    assert list(store) == plants
    expected = [
        ["BEGIN", f"INSERT {size}", "COMMIT"] if size > 1 else ["INSERT 1"] for size in sizes
    ]
    assert changes == sum(expected, [])
    group = sorted(plants[-sizes[0] :])
    assert tuple(value for plant in group for value in plant) in parameters


# The number of the request in which something happens.
_request: ContextVar[int] = ContextVar("request", default=0)


def _call(number: int, method: Callable[..., Any], *arguments: Any) -> None:
    _request.set(number)
    method(*arguments)


def test_statements_are_in_the_context_of_their_caller(store: SQLStore, listen: Listen) -> None:
    """A tracing agent finds each statement in the context of its request, and connections in none.

    The statements of a group of adds are in the context of one of them.
    """
    found, connected = dict[str, int](), set[int]()
    listen("connect", lambda *_: connected.add(_request.get()))
    listen("before_cursor_execute", lambda *it: found.update({it[2]: _request.get()}))
    methods: list[Callable[[], object]] = [
        partial(store.add, Plant(1, "Rose")),
        partial(store.replace, Plant(1, "Lily")),
        partial(store.get, 1),
        partial(list[Plant], store),
        partial(store.remove, 1),
    ]
    for number, method in enumerate(methods, 1):
        found.clear()
        Context().run(_call, number, method)
        assert {*found.values()} == {number}
    group = [partial(_call, number, store.add, plant) for number, plant in enumerate(GROUP, 6)]
    found.clear()
    assert call_in_one_group(store, *group) == [None] * len(GROUP)
    assert [number in range(6, 11) for number in found.values()] == [True]
    assert connected == {0}


def test_removal_is_not_postponed_by_adds(store: SQLStore, changes: list[str]) -> None:
    """A removal is executed before the adds that came after it, however many they are."""
    store.add(Plant(0, "removed"))
    first, second, *rest = [partial(store.add, plant) for plant in GROUP]
    changes.clear()
    outcomes = call_in_one_group(store, first, second, partial(store.remove, 0), *rest)
    assert outcomes == [None] * 6
    assert list(store) == GROUP
    assert changes == ["BEGIN", "INSERT 2", "COMMIT", "DELETE", "BEGIN", "INSERT 3", "COMMIT"]


def test_duplicate_in_a_group_refuses_only_itself(store: SQLStore) -> None:
    """Of adds that are committed together, only a duplicate is refused: the first one succeeds."""
    store.add(Plant(0, "first"))
    again = [*(Plant(1, f"again {number}") for number in range(3)), Plant(0, "again")]
    outcomes = add_in_one_group(store, [GROUP[0], *again, *GROUP[1:]])
    refused = [*["PlantExists(1)"] * 3, "PlantExists(0)"]
    assert [repr(outcome) for outcome in outcomes] == ["None", *refused, *["None"] * 4]
    assert list(store) == [Plant(0, "first"), *GROUP]


class FailingCommit(sqlite3.Connection):
    """A connection whose commits succeed, and then fail."""

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        cursor = super().execute(statement, *arguments)
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


def test_unknown_outcome_of_a_commit(store: SQLStore, tmp_path: Path, listen: Listen) -> None:
    """If a commit may have stored a group or not, no add of it succeeds, and none is repeated."""
    kinds = iter([FailingCommit])

    def connect(_dialect: object, _record: object, arguments: Any, options: Any) -> Any:
        return sqlite3.connect(*arguments, factory=next(kinds, sqlite3.Connection), **options)

    listen("do_connect", connect)
    outcomes = add_in_one_group(store, GROUP)
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert all("not known whether the commit has failed" in str(outcome) for outcome in outcomes)
    # No connection locks the file.
    with closing(sqlite3.connect(tmp_path / "plants.db", timeout=0, isolation_level=None)) as other:
        other.execute("DELETE FROM plants")
    assert add_in_one_group(store, GROUP) == [None] * 5


def test_deadline_in_the_queue(store: SQLStore) -> None:
    """An add whose deadline passes while it waits, or has passed before, is not executed."""
    with connecting_slowly(store) as start:
        adding = start(partial(store.add, GROUP[0]))
        with deadline(0.1), pytest.raises(StoreUnavailable, match="not responded in time"):
            store.add(GROUP[1])
    adding.result()
    with deadline(0), pytest.raises(StoreUnavailable, match="waited too long"):
        store.add(GROUP[3])
    assert list(store) == GROUP[:1]


class Id(int):
    """An id that calls a function when it is compared with those of a group."""

    def __new__(cls, value: int, function: Callable[[], object]) -> "Id":
        """Return an integer."""
        id = super().__new__(cls, value)
        vars(id)["function"] = function
        return id

    def __hash__(self) -> int:
        vars(self)["function"]()
        return super().__hash__()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_fault_of_a_lane(store: SQLStore, moment: str) -> None:
    """A fault of ours in a thread of the store reaches its callers at once, and is not a timeout.

    The store goes on. An add that has succeeded before the fault stays so.
    """
    compared = count()

    def fail() -> None:
        if next(compared) == (0 if moment == "before" else 3):  # The commit is in between.
            raise LookupError("a fault")

    plants = [GROUP[0], Plant(Id(2, fail), ""), *GROUP[2:]]
    outcomes = [repr(error) for error in add_in_one_group(store, plants)]
    fault = "LookupError('a fault')"
    assert outcomes == [fault if moment == "before" else "None", *[fault] * 4]
    store.add(Plant(10, ""))


WITHOUT_C = """
import sys
sys.modules["_queue"] = None
from concurrent.futures import ThreadPoolExecutor
from plantstore import Plant, open_store
with open_store(sys.argv[1]) as store, ThreadPoolExecutor(8) as threads:
    list(threads.map(store.add, [Plant(id, "") for id in range(100)]))
    assert len(store) == 100
"""


def test_python_without_the_c_module_of_queues(url: str) -> None:
    """A store works on any Python, also one whose queues are written in Python, such as PyPy."""
    command = [sys.executable, "-c", WITHOUT_C, url]
    subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT)


def test_close_while_a_lane_takes_an_add(store: SQLStore, limit: Limit) -> None:
    """An add that a thread of the store has seen, and leaves to the next group, is not lost.

    It succeeds, also if the store is closed at this moment.
    """
    limit(close=0.1)
    large = [Plant(id, "x" * 200_000) for id in (1, Id(2, store.close))]
    assert add_in_one_group(store, large) == [None] * 2
    assert list(store) == large


def test_thread_of_a_store_that_drops_it(url: str, limit: Limit, listen: Listen) -> None:
    """A store that nobody uses any more is closed, also if one of its own threads notices it."""
    limit(close=0.1)
    others, may_drop, stores = {*threading.enumerate()}, Event(), [open_sql(url)]
    stores[0].add(GROUP[0])

    def drop(*_: object) -> None:
        may_drop.wait(LIMIT)
        stores.clear()

    listen("close", drop)
    stores[0].close()
    assert stores[0].get(1) == GROUP[0]
    may_drop.set()
    lanes = [it for it in threading.enumerate() if it.name == "plantstore store"]
    wait_until(lambda: not any(lane.is_alive() for lane in {*lanes} - others))


def test_close_while_threads_use_the_store(url: str) -> None:
    """Operations succeed while another thread closes the idle connections again and again."""
    added = list[int]()
    with open_sql(url) as used:

        def add_until_the_end(first: int) -> None:
            for id in count(first):
                used.add(Plant(id, "Rose"))
                added.append(id)
                if close_all.done():
                    return

        adds = [partial(add_until_the_end, 10**6 * client) for client in range(4)]
        with started(lambda: [*map(SQLStore.close, [used] * 100)]) as (close_all,):
            assert call_all(*adds) == [None] * 4
        close_all.result()
        assert len(used) == len(added)
